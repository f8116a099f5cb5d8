import re

import pytest

from graphrerank.cli.arguments import read_arguments


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("datasets=a,b", "datasets=a,b"),
        ("-m", "-m"),
        ("settings.fastinsight.budget=5", "+settings.fastinsight.budget=5"),
    ],
)
def test_settings_of_pipelines_are_added(argument: str, expected: str) -> None:
    assert read_arguments(["seed=1", argument]) == ["seed=1", expected]


@pytest.mark.parametrize(
    ("argument", "new"),
    [
        ("ket.solutions=[ket_p]", "job.solutions"),
        ("~adapter.data.scifact", "job.data.scifact"),
        ("+adapter.settings.max_epochs=8", "job.settings.max_epochs"),
        ("tables=null", "job"),
    ],
)
def test_a_key_of_an_earlier_version_names_the_new_one(argument: str, new: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"must be written as `{new}`, got {argument!r}")):
        read_arguments([argument])


@pytest.mark.parametrize(
    "argument",
    ["data.url=postgresql://me:hunter2@host/db", "+data.url=postgresql://me@host/db?password=hunter2"],
)
def test_a_password_is_refused_before_hydra_writes_it_down(argument: str) -> None:
    with pytest.raises(ValueError, match=r"`data\.url` must not hold a password") as caught:
        read_arguments(["data=sql_schema", argument])
    assert "hunter2" not in str(caught.value)


def test_errors_show_no_password() -> None:
    with pytest.raises(ValueError, match="must be written as") as caught:
        read_arguments(["tables.url=postgresql://me:hunter2@host/db"])
    assert "hunter2" not in str(caught.value)
