import pytest

from graphrerank.serving.settings import ServiceSettings


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"host": "example.org"}, "`host` must be one of"),
        ({"workers": 0}, "`workers` must be a positive integer, got 0"),
        ({"http_processes": 1.5}, "`http_processes` must be a positive integer, got 1.5"),
    ],
)
def test_settings_that_do_not_fit(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServiceSettings(**setting)  # type: ignore[arg-type]
