import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from omegaconf import OmegaConf

from graphrerank import GraphReranker
from graphrerank.doors.serve import serve
from graphrerank.models import Checkpoint, ComplexityAdapter
from graphrerank.serving import export_artifact

ROOT = Path(__file__).parents[2]
REQUEST = {
    "query": "spreads by removable media",
    "documents": ["a cake", "malware on removable media", "a dog"],
    "edges": [[0, 2]],
}


def test_http_without_an_encoder(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "serve.py"), "artifact=attack", "encoder=none", f"port={port}"]
    server = subprocess.Popen(
        [*command, f"paths.runs={tmp_path}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    try:
        answer = _post(f"http://127.0.0.1:{port}/rerank").json()["results"]
    finally:
        server.terminate()
        server.wait(timeout=30)
    reranker = GraphReranker.from_pretrained("attack")
    expected = reranker.rerank(REQUEST["query"], REQUEST["documents"], edges=REQUEST["edges"])
    assert [result["index"] for result in answer] == list(expected.ids)
    assert [result["score"] for result in answer] == pytest.approx(expected.scores.tolist(), abs=1e-5)


def test_an_adapter_is_no_reranker(tmp_path: Path) -> None:
    arguments = {"num_features": 4, "num_selected": 2, "hidden_channels": [3]}
    manifest = {"model": {"name": "complexity_adapter", "arguments": arguments}}
    adapter = Checkpoint(ComplexityAdapter(**arguments).eval(), manifest, tmp_path / "best.ckpt")
    folder = export_artifact(adapter, tmp_path / "artifact")
    with pytest.raises(ValueError, match=r"`artifact` must hold a reranker, .*artifact holds a complexity adapter"):
        serve(OmegaConf.create({"mode": "http", "artifact": str(folder)}))


def _post(url: str) -> httpx.Response:
    for _ in range(600):
        try:
            return httpx.post(url, json=REQUEST, timeout=30)
        except httpx.ConnectError:
            time.sleep(0.1)
    raise AssertionError(f"no answer from {url}")
