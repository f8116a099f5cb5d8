import pytest

from graphrerank.serving.settings import ServiceSettings


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"host": "example.org"}, "`host` must be one of"),
        ({"workers": 0}, "`workers` must be a positive integer, got 0"),
        ({"port": 99999}, "`port` must be 0 to 65535, got 99999"),  # once an OverflowError
        ({"port": -1}, "`port` must be 0 to 65535, got -1"),
        ({"host": "0.0.0.0"}, r"`api_key` must be set .* host="),
        ({"host": "::", "api_key": ""}, r"`api_key` must be set .* host="),
    ],
)
def test_settings_that_do_not_fit(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServiceSettings(**setting)  # type: ignore[arg-type]
    assert not ServiceSettings(host="::", api_key="key").is_local
    ServiceSettings(host="::", allow_no_key=True)
