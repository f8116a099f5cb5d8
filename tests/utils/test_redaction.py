import pytest

from graphrerank.utils.redaction import check_no_password, without_passwords

URLS = [
    "postgresql://me:hunter2@host/db",
    "postgresql+psycopg://me:hunter2/with/slashes@host/db",
    "postgresql://:hunter2@host",
    "postgresql://me@host/db?password=hunter2",
    "postgresql://me@host/db?sslmode=require&PassWord=hunter2",
    "postgresql:///db?host=h&user=me&sslpassword=hunter2",
    "mysql://me@host/db?passwd=hunter2&charset=utf8",
    "mssql+pyodbc://?odbc_connect=DRIVER%3Dx%3BPWD%3Dhunter2",
    "mssql+pyodbc://host/db;PWD=hunter2",
    "snowflake://me@host/db?token=hunter2",
    "https://host/v1?api_key=hunter2",
]


@pytest.mark.parametrize("url", URLS)
def test_passwords_are_found_and_hidden(url: str) -> None:
    shown = without_passwords(f"could not connect to {url} today")
    assert "hunter2" not in shown
    assert "***" in shown
    assert shown.endswith(" today")
    assert without_passwords(shown) == shown.replace("hunter2", "***")
    with pytest.raises(ValueError, match="`url` must not contain a password") as caught:
        check_no_password(url=url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["sqlite:///my.db", "my.db", "postgresql://me@host:5432/db?sslmode=require", "data.path=a:b@c", "?password=x", ""],
)
def test_what_holds_none_stays(url: str) -> None:
    assert without_passwords(url) == url
    check_no_password(url=url)
