"""python benchmarks/serve_fuzz.py  # hostile requests to a running service, and what a bystander notices.

Bodies are made from valid ones by changing their structure: deep, wide, huge, not finite, duplicate, lone surrogates,
null, cut and flipped bytes. Four clients send them to all routes that take a body; a bystander sends a small valid
request twenty times a second. Prints statuses, the bystander's latency and the memory of the service at both ends.
"""

import argparse
import collections
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
PATHS = ("/v1/rerank", "/v2/rerank", "/rerank", "/search", "/route")
HEADERS = {"content-type": "application/json"}
ODD_NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e-320, 2**63, -(2**70), 10**400, -0.0, 0)
ODD_TEXTS = ("", " ", "\x00", "\ud800", "\udfff\ud800", "a" * 120_000, "é" * 1000, "\u202e", "word " * 5000, "[" * 300)
VALID: tuple[dict[str, Any], ...] = (
    {"query": "a worm on drives", "documents": ["a worm", "a cake", "drives"], "edges": [[0, 2], [1, 2, 0.5, "a"]]},
    {"query": "worm", "documents": [{"text": "a", "title": "t"}, "b"], "rank_fields": ["text"], "top_n": 1},
    {"query": "worm", "scores": [1.0, 0.5, 0.2], "edges": [[0, 1]], "top_n": 2, "explain": True},
    {"query": "worm", "documents": ["a", "b"], "entities": [["x"], ["x", "y"]], "return_documents": True},
    {"query": "worm", "documents": ["a", "b"], "doc_ids": ["d", "d"], "chunk_ids": [0, 1]},
    {"query": "worm", "documents": ["a", "b"], "query_vector": [1.0, 0.0], "vectors": [[1.0, 0.0], [0.0, 1.0]]},
    {"query": "worm", "texts": ["a", "b"], "raw_scores": True, "return_text": True},
)  # fmt: skip


def hostile_bodies(seed: int) -> Iterator[bytes]:
    """Draw bodies without end: most are changed valid ones, some valid."""
    draw = random.Random(seed)
    while True:
        body: Any = json.loads(json.dumps(draw.choice(VALID)))
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            body = _changed(body, draw)
        try:
            content = json.dumps(body).encode()
        except (ValueError, RecursionError):
            continue
        if draw.random() < 0.1:
            content = _damaged(content, draw)
        if draw.random() < 0.05:  # a name twice
            content = content.replace(b'{"query"', b'{"query": 3, "query": null, "query"', 1)
        yield content


def _changed(node: Any, draw: random.Random) -> Any:
    """Change one part of a JSON value."""
    if isinstance(node, dict) and node and draw.random() < 0.85:
        name = draw.choice(sorted(node))
        node[name] = _changed(node[name], draw) if draw.random() < 0.6 else _odd(draw)
        return node
    if isinstance(node, list) and node and draw.random() < 0.6:
        index = draw.randrange(len(node))
        node[index] = _changed(node[index], draw)
        return node
    if isinstance(node, list) and node and draw.random() < 0.5:
        return node * draw.choice((2, 30, 400, 1001))  # wide
    return _odd(draw)


def _odd(draw: random.Random) -> Any:
    kind = draw.randrange(9)
    if kind == 0:
        nested: Any = draw.choice(([], {}, 1, None))
        for _ in range(draw.choice((3, 50, 190, 300))):
            nested = [nested] if draw.random() < 0.5 else {"text": nested}
        return nested
    return (
        None, None, draw.choice(ODD_NUMBERS), draw.choice(ODD_TEXTS), [], {}, True,
        [draw.choice(ODD_NUMBERS)] * draw.choice((1, 3, 1000)), {f"k{i}": i for i in range(draw.choice((1, 2000)))},
    )[kind]  # fmt: skip


def _damaged(content: bytes, draw: random.Random) -> bytes:
    cut = draw.randrange(len(content)) if content else 0
    if draw.random() < 0.5:
        return content[:cut]
    return content[:cut] + bytes([draw.randrange(256)]) + content[cut + 1 :]


def _memory(process: psutil.Process) -> int:
    return sum(one.memory_full_info().pss for one in [process, *process.children(recursive=True)])


def _send(port: int, seeds: list[int], count: int, statuses: collections.Counter[Any]) -> None:
    for seed in seeds:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        bodies = hostile_bodies(seed)
        for index in range(count):
            try:
                connection.request("POST", PATHS[index % len(PATHS)], next(bodies), HEADERS)
                answer = connection.getresponse()
                answer.read()
                statuses[answer.status] += 1
            except (http.client.HTTPException, OSError) as error:
                statuses[type(error).__name__] += 1
                connection.close()


def _stand_by(port: int, ended: threading.Event, seconds: list[float], statuses: collections.Counter[Any]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps(VALID[0])
    while not ended.wait(0.05):
        start = time.perf_counter()
        connection.request("POST", "/v2/rerank", body, HEADERS)
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - start)
        statuses[answer.status] += 1


def main() -> None:
    """Start a service, send, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = [f"port={port}", "artifact=base", "encoder=none", f"workers={arguments.workers}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "serve.py"), *settings],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/ready")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.2)
        _send(port, [0], 2000, collections.Counter())  # until memory has its size
        service, statuses, others = psutil.Process(process.pid), collections.Counter(), collections.Counter()
        before, seconds, ended, start = _memory(service), [], threading.Event(), time.perf_counter()
        bystander = threading.Thread(target=_stand_by, args=(port, ended, seconds, others))
        bystander.start()
        blocks = arguments.requests // 1000
        seeds = [list(range(1 + first, 1 + blocks, arguments.clients)) for first in range(arguments.clients)]
        threads = [threading.Thread(target=_send, args=(port, own, 1000, statuses)) for own in seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - start
        ended.set()
        bystander.join()
        after = _memory(service)
    finally:
        process.terminate()
        process.wait(60)
    seconds.sort()
    print(f"{sum(statuses.values())} requests in {took:.0f} s: {dict(sorted(statuses.items(), key=str))}")
    print(
        f"bystander: {len(seconds)} requests, {dict(others)}, p50 {1000 * seconds[len(seconds) // 2]:.0f} ms, ", end=""
    )
    print(f"p99 {1000 * seconds[int(0.99 * (len(seconds) - 1))]:.0f} ms, longest {1000 * seconds[-1]:.0f} ms")
    print(
        f"memory: {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after ({100 * (after / before - 1):+.1f}%)"
    )


if __name__ == "__main__":
    main()
