import json
import re

import pytest
from hydra import compose, initialize_config_dir

from graphrerank.cli import schema
from graphrerank.cli.http_service import serve_http
from graphrerank.serving.settings import ServiceSettings, check_exposure
from tests.support import ROOT

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


def test_the_image_does_not_start_without_a_key(monkeypatch):
    """Once it published without one, as its documented ``docker run`` sets none."""
    monkeypatch.delenv("GRAPHRERANK_API_KEY", raising=False)
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    entrypoint, cmd = (json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", dockerfile, re.M))
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        cfg = compose("serve", overrides=[*entrypoint[2:], *cmd])
    with pytest.raises(ValueError, match=r"`api_key` must be set \(GRAPHRERANK_API_KEY\) where host=0\.0\.0\.0"):
        serve_http(cfg)
    assert all("GRAPHRERANK_API_KEY" in line for line in dockerfile.splitlines() if line.startswith("# docker run"))
