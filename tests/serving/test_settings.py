import pytest

from graphrerank.serving.settings import ServiceSettings


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"host": "example.org"}, "`host` must be one of"),
        ({"workers": 0}, "`workers` must be a positive integer, got 0"),
    ],
)
def test_settings_that_do_not_fit(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServiceSettings(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize("api_key", [None, ""])
def test_other_machines_need_a_key(host: str, api_key: str | None) -> None:
    with pytest.raises(ValueError, match=r"`api_key` must be set .* host="):
        ServiceSettings(host=host, api_key=api_key)
    assert not ServiceSettings(host=host, api_key="key").is_local
    ServiceSettings(host=host, allow_no_key=True)
