"""What deploy/ and docs/serving.md say is what there is."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
import tomllib
from contextlib import ExitStack

import httpx
import pytest
import yaml
from hydra import compose, initialize_config_dir

from graphrerank.cli import schema
from graphrerank.cli.http_service import serve_http
from graphrerank.cli.hydra_jobs import read_arguments
from graphrerank.serving import metrics
from graphrerank.serving.limits import Limits
from tests.support import ROOT
from tests.support.running import Service, free_port, running

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
DOCS = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
ENTRYPOINT, CMD = (
    json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", DOCKERFILE, re.MULTILINE)
)
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))


def plain(setting: str) -> str:
    """Put in what compose puts in for variables that are not set."""
    return re.sub(r"\$\{\w+:-(.*?)\}", r"\1", setting)


COMMANDS = [
    [*ENTRYPOINT[2:], *CMD],
    [*ENTRYPOINT[2:], *map(plain, COMPOSE["services"]["rerank"]["command"])],
    *(shlex.split(line, comments=True)[2:] for line in DOCS.splitlines() if line.startswith("graphrerank serve")),
]


@pytest.mark.parametrize("overrides", COMMANDS)
def test_every_command_composes(overrides):
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        compose("serve", overrides=read_arguments(overrides))


def test_the_image_does_not_start_without_a_key(monkeypatch):
    monkeypatch.delenv("GRAPHRERANK_API_KEY", raising=False)
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        cfg = compose("serve", overrides=COMMANDS[0])
    with pytest.raises(ValueError, match=r"`api_key` must be set because host=0\.0\.0\.0"):
        serve_http(cfg)
    assert all("GRAPHRERANK_API_KEY" in line for line in DOCKERFILE.splitlines() if line.startswith("# docker run"))


def test_the_image_holds_what_it_copies_and_runs_without_rights():
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    for copied in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE):
        for name in copied.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in ignored
    assert DOCKERFILE.index("USER graphrerank") < DOCKERFILE.index("ENTRYPOINT")
    assert "HEALTHCHECK" in DOCKERFILE
    assert ENTRYPOINT[:2] == ["graphrerank", "serve"]


def test_each_image_installs_one_faiss():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    cpu, gpu = re.findall(r"extra=(\w+)", DOCKERFILE)
    assert [re.findall(r"faiss-\w+", line) for line in (*extras[cpu], *extras[gpu])] == [["faiss-cpu"], ["faiss-gpu"]]
    of_all = re.findall(r"\w+", extras["all"][0])
    assert cpu in of_all
    assert gpu not in of_all


def test_the_proxy_is_in_front_of_the_service():
    """Its limits are those of the service; only the proxy and Prometheus have ports of the machine."""
    caddyfile = (ROOT / "deploy" / "Caddyfile").read_text(encoding="utf-8")
    (upstream,) = re.findall(r"reverse_proxy \{\$SERVICE:(\S+):8000\}", caddyfile)
    assert upstream in COMPOSE["services"]
    assert COMPOSE["services"]["proxy"]["depends_on"] == {upstream: {"condition": "service_healthy"}}
    with_ports = [name for name, service in COMPOSE["services"].items() if "ports" in service]
    assert with_ports == ["proxy", "proxy-tls", "prometheus"]
    assert Limits().body_bytes == 8 << 20
    assert "max_size 8MiB" in caddyfile
    assert "max_header_size 16KB" in caddyfile


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """The address of our proxy in front of a running service."""
    if (caddy := shutil.which("caddy")) is None:
        pytest.skip("caddy is not installed")
    folder = tmp_path_factory.mktemp("proxy")
    port = free_port()
    with running(folder, "artifact=attack", "encoder=none") as service, (folder / "proxy.log").open("wb") as log:
        places = {"SITE": f"http://localhost:{port}", "SERVICE": service.url.removeprefix("http://")}
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(folder))
        command = [caddy, "run", "--config", str(ROOT / "deploy" / "Caddyfile"), "--adapter", "caddyfile"]
        process = subprocess.Popen(command, env=os.environ | places | homes, stdout=log, stderr=log)
        try:
            Service(places["SITE"], process, folder / "proxy.log", folder / "proxy.log").wait_until_ready()
            yield places["SITE"]
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.mark.slow
def test_the_proxy_as_a_process(proxy):
    """It passes answers, refuses long headers and bodies, and closes what a slow client does not finish."""
    body = {"query": "spreads by removable media", "documents": ["a cake", "malware on removable media"]}
    address = ("localhost", int(proxy.rpartition(":")[2]))
    unfinished = {
        "header": b"GET /ready HTTP/1.1\r\nHost: localhost\r\n",
        "body": b"POST /v2/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    }
    with ExitStack() as stack:
        slow = {name: stack.enter_context(socket.create_connection(address)) for name in unfinished}
        started = time.monotonic()
        for name, sent in unfinished.items():
            slow[name].sendall(sent)
        answer = httpx.post(f"{proxy}/v2/rerank", json=body, timeout=60)
        assert [each["index"] for each in answer.json()["results"]] == [1, 0]
        assert httpx.get(f"{proxy}/ready", headers={"x-long": "a" * 32_768}).status_code == 431
        assert httpx.post(f"{proxy}/v2/rerank", content=b" " * (9 << 20), timeout=60).status_code == 413
        for name, connection in slow.items():
            connection.settimeout(120)
            while connection.recv(4096):  # until the proxy closes it
                pass
            assert time.monotonic() - started > 5, name  # it is the proxy's limit on time, no error


def test_measures_of_the_docs_exist():
    metrics.STAGE_SECONDS.labels("queue").observe(1)
    text = metrics.render().decode()
    for name in re.findall(r"graphrerank_\w+", DOCS):
        assert re.search(rf"^{name}\b", text, re.MULTILINE) or f"# TYPE {name} " in text


def test_ports_are_open_to_other_machines_only_with_the_profile_for_tls() -> None:
    for service in COMPOSE["services"].values():
        if service.get("profiles") != ["tls"]:
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_an_artifact_and_a_corpus_of_this_machine_can_be_served() -> None:
    service = COMPOSE["services"]["rerank"]
    assert {"${ARTIFACT_DIR:-artifact}:/artifact:ro", "${INDEX_DIR:-index}:/index"} <= set(service["volumes"])
    assert {"artifact=${ARTIFACT:-base}", "index=${INDEX:-null}"} <= set(service["command"])
    assert {"artifact", "index"} <= set(COMPOSE["volumes"])
