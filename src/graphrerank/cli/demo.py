"""``graphrerank demo``: the page over MITRE ATT&CK, from what is installed; nothing is downloaded."""

import os
import sys
import time
import webbrowser
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import ProxyHandler, build_opener

from omegaconf import DictConfig

from graphrerank.cli.http_service import serve_http
from graphrerank.data.loaders.attack import clean_description, read_attack
from graphrerank.utils.files import atomic_folder, write_json_lines, write_text

ARTIFACT = "base"
QUESTIONS = (
    "ransomware that deletes shadow copies before it encrypts files",
    "Which mitigations prevent a phishing attachment from running?",
    "groups that steal credentials from memory with Mimikatz",
    "worms that spread through removable drives to networks without internet",
)
LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 300.0  # for the service to be ready


def run(cfg: DictConfig) -> Path:
    """Build the corpus, serve it with ``checkpoint`` or ``artifact``, and open the page as soon as it is ready.

    Without either setting the shipped checkpoint ``base`` ranks.
    """
    cfg.index = str(write_demo_corpus(Path(cfg.paths.cache) / "demo" / "attack"))
    if cfg.checkpoint is None and cfg.artifact is None:
        cfg.artifact = ARTIFACT
    address = f"http://localhost:{cfg.port}"
    print(f"ATT&CK is indexed; the page opens at {address}/ when the service is ready. Ctrl+C ends it.", flush=True)
    if cfg.browser and has_screen():
        Thread(target=open_page, args=(address,), daemon=True).start()
    return serve_http(cfg)


def write_demo_corpus(folder: Path) -> Path:
    """Write ATT&CK of the installed package as a data set folder: all its objects and relations, some questions."""
    nodes, relations = read_attack()
    id_of = {node["id"]: node["external_id"] for node in nodes}
    pairs = sorted({tuple(sorted((id_of[r["source"]], id_of[r["target"]]))) for r in relations})
    with atomic_folder(folder) as temporary:
        (temporary / "qrels").mkdir(parents=True)
        documents = (
            {"_id": node["external_id"], "title": node["name"], "text": clean_description(node["text"])}
            for node in nodes
        )
        queries = ({"_id": f"q{number}", "text": text} for number, text in enumerate(QUESTIONS))
        write_json_lines(temporary / "corpus.jsonl", documents)
        write_json_lines(temporary / "queries.jsonl", queries)
        write_text(temporary / "edges.tsv", "".join(f"{a}\t{b}\treference\n" for a, b in pairs if a != b))
        judged = f"query-id\tcorpus-id\tscore\nq0\t{nodes[0]['external_id']}\t1\n"
        write_text(temporary / "qrels" / "test.tsv", judged)
    return folder


def has_screen() -> bool:
    """Return whether a browser would open in a window, rather than in the terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def open_page(address: str) -> None:
    """Open the page in the browser when the service is ready; give up after five minutes."""
    opener: Any = build_opener(ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            with opener.open(f"{address}/ready", timeout=5):
                webbrowser.open(f"{address}/")
                return
        except OSError:
            time.sleep(LOOK_SECONDS)
