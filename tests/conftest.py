import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the doors that tests start as processes

import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def datasets_folder() -> Path:
    """The folder of real data sets, which only some machines have."""
    named = os.environ.get("GRAPHRERANK_DATASETS")
    return Path(named) if named else Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def datasets(datasets_folder: Path) -> Path:
    """The folder of real data sets, or a skip."""
    if not datasets_folder.is_dir():
        pytest.skip(f"no data sets: {datasets_folder} is no folder; set GRAPHRERANK_DATASETS")
    return datasets_folder


class ChatEndpoint(BaseHTTPRequestHandler):
    """A local chat endpoint that plays a script of (status, body) per question; at its end it echoes."""

    script: dict[str, list[tuple[int, Any]]]
    requests: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        question = body["messages"][-1]["content"]
        echo = {"choices": [{"message": {"content": f"<{question}>"}}]}
        status, answer = self.script[question].pop(0) if self.script.get(question) else (200, echo)
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[ChatEndpoint]]]:
    """A chat endpoint's address, and its handler to script and to look at."""
    handler = type("Scripted", (ChatEndpoint,), {"script": {}, "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/", handler
    server.shutdown()
    server.server_close()
