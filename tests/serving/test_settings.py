import pytest

from graphrerank.serving.settings import ServiceSettings, check_exposure

OPEN = ("0.0.0.0", "::", "", "192.168.1.5", "example.org", "localhost.example.org")
OWN = ("127.0.0.1", "127.0.0.2", "::1", "localhost")


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


@pytest.mark.parametrize("host", OPEN)
@pytest.mark.parametrize("api_key", [None, ""])
def test_other_machines_need_a_key(host, api_key):
    with pytest.raises(ValueError, match=r"`api_key` must be set .* host="):
        check_exposure(host, api_key)
    check_exposure(host, "key")
    check_exposure(host, None, allow_no_key=True)


@pytest.mark.parametrize("host", OWN)
def test_this_machine_needs_none(host):
    check_exposure(host, None)
