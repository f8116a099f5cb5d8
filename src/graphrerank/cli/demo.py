"""``graphrerank demo``: serve the search page over MITRE ATT&CK from an installed package, without any download."""

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
QUESTIONS = (  # `base` ranks the right answer of the first one first, and the retriever third
    "worms that spread through removable drives to networks without internet",
    "ransomware that deletes volume shadow copies to prevent recovery",
    "Which groups dump credentials from LSASS memory with Mimikatz?",
    "Which mitigations prevent a phishing attachment from running?",
)
LOOK_SECONDS = 0.25  # interval at which the demo checks whether the service is ready
PATIENCE_SECONDS = 300.0  # maximum waiting time until the service is ready


def run(cfg: DictConfig) -> Path:
    """Build the corpus, serve it, and open the page in a browser as soon as the service is ready.

    Args:
        cfg: Settings of ``conf/serve.yaml``. If both ``checkpoint`` and ``artifact`` are null, the shipped checkpoint
            ``base`` is used.

    Returns:
        Folder of the artifact.
    """
    cfg.index = str(write_demo_corpus(Path(cfg.paths.cache) / "demo" / "attack"))
    if cfg.checkpoint is None and cfg.artifact is None:
        cfg.artifact = ARTIFACT
    address = f"http://localhost:{cfg.port}"
    print(f"ATT&CK is indexed. The page opens at {address}/ when the service is ready. Stop with Ctrl+C.", flush=True)
    if cfg.browser and has_screen():
        Thread(target=open_page, args=(address,), daemon=True).start()
    return serve_http(cfg)


def write_demo_corpus(folder: Path) -> Path:
    """Write ATT&CK as a data set folder, with all objects and relations and with four sample questions.

    Args:
        folder: Folder to write.

    Returns:
        The folder.
    """
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
    """Return whether the machine has a display, so that a browser opens in a window and not in the terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def open_page(address: str, path: str = "/ready") -> None:
    """Open the page in the browser as soon as the service is ready. Give up after five minutes.

    Args:
        address: URL of the service.
        path: Path that responds when the service is ready.
    """
    opener: Any = build_opener(ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            with opener.open(f"{address}{path}", timeout=5):
                webbrowser.open(f"{address}/")
                return
        except OSError:
            time.sleep(LOOK_SECONDS)
