"""Send hostile requests to a running service, and measure their effect on another client.

python benchmarks/serve_fuzz.py
python benchmarks/serve_fuzz.py --adapter DIR    # attack /route of a service of an exported adapter

Bodies are derived from valid ones: deep, wide, huge, not finite, with duplicate keys, lone surrogates, nulls, truncated
or with flipped bytes. Some are compressed, wrongly compressed, or expand to 100 MB. Four processes send them to all
routes that accept a body. Another process sends a small valid request twenty times per second. The script prints the
statuses, the latency of the valid requests, and the memory of the service at the beginning and the end.
"""

import argparse
import collections
import gzip
import http.client
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import Manager
from pathlib import Path
from typing import Any

import psutil

PATHS = ("/v1/rerank", "/v2/rerank", "/rerank", "/search", "/infinity/rerank", "/voyage/v1/rerank")
HEADERS = {"content-type": "application/json"}
COMPRESSED = 0.15  # share of the bodies that are sent with `content-encoding`
BOMB = gzip.compress(bytes(100_000_000), 9)  # 100 kB
MAX_BODY = 12_000_000  # approximate size in bytes, above the limit of the service
BLOCK = 1000  # number of requests that a client sends in one turn
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
    {"query": "Which drives did the worm of 2016 infect?"},
    {"query": "word1 word2", "top_n": 3, "return_documents": True},
)  # fmt: skip


def hostile_bodies(seed: int) -> Iterator[bytes]:
    """Yield bodies endlessly. Most are modified valid bodies, and some are valid."""
    draw = random.Random(seed)
    while True:
        body: Any = json.loads(json.dumps(draw.choice(VALID)))
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            body = _changed(body, draw)
        if _larger_than(body, MAX_BODY):
            continue
        try:
            content = json.dumps(body).encode()
        except (ValueError, RecursionError):
            continue
        if draw.random() < 0.1:
            content = _damaged(content, draw)
        if draw.random() < 0.05:  # duplicate name
            content = content.replace(b'{"query"', b'{"query": 3, "query": null, "query"', 1)
        yield content


def _larger_than(body: Any, bound: int) -> bool:
    """Return whether a JSON value exceeds a size. A list that was widened twice has a million values."""
    rest, size = [body], 0
    while rest and size <= bound:
        node = rest.pop()
        size += len(node) if isinstance(node, str) else 4 + (node.bit_length() // 3 if isinstance(node, int) else 0)
        rest.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return size > bound


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


def encoded_body(body: bytes, draw: random.Random) -> tuple[bytes, dict[str, str]]:
    """Return a body and its headers. Some bodies are compressed or pretend to be."""
    if draw.random() >= COMPRESSED:
        return body, HEADERS
    kind = draw.randrange(6)
    if kind == 0:
        return BOMB, HEADERS | {"content-encoding": "gzip"}
    if kind == 1:
        return body, HEADERS | {"content-encoding": draw.choice(("gzip", "br", "", "identity", "gzip, gzip"))}
    content = gzip.compress(body, 1)
    return content if kind > 2 else _damaged(content, draw), HEADERS | {"content-encoding": "gzip"}


def _memory(process: psutil.Process) -> int:
    return sum(one.memory_full_info().pss for one in [process, *process.children(recursive=True)])


def _send(port: int, paths: Sequence[str], seed: int, count: int) -> collections.Counter[Any]:
    """Send hostile bodies, and return the number of answers by status or error."""
    statuses: collections.Counter[Any] = collections.Counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    bodies, draw = hostile_bodies(seed), random.Random(-seed)
    for index in range(count):
        try:
            body, headers = encoded_body(next(bodies), draw)
            connection.request("POST", paths[index % len(paths)], body, headers)
            answer = connection.getresponse()
            answer.read()
            statuses[answer.status] += 1
        except (http.client.HTTPException, OSError) as error:
            statuses[type(error).__name__] += 1
            connection.close()
    return statuses


def _stand_by(port: int, path: str, ended: Any) -> list[tuple[float, int]]:
    """Send small valid requests until the end, and return the time and the status of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"query": "a worm on drives"} if path == "/route" else VALID[0]).encode()
    answers: list[tuple[float, int]] = []
    while not (answers and ended.wait(0.05)):
        start = time.perf_counter()
        connection.request("POST", path, body, HEADERS)
        answer = connection.getresponse()
        answer.read()
        answers.append((time.perf_counter() - start, answer.status))
    return answers


def main() -> None:
    """Start a service, send the requests, and print the table."""
    # This module is in the same folder. Tests import this file as part of a package.
    from command_line import add_numbers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_numbers(
        parser,
        requests=(50_000, "number of hostile requests"),
        clients=(4, "number of processes that send them"),
        workers=(2, "number of workers of the service"),
    )
    parser.add_argument("--adapter", type=Path, help="artifact of a complexity adapter")
    arguments = parser.parse_args()
    paths = PATHS if arguments.adapter is None else ("/route",)
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(arguments.clients + 1) as clients,
        Manager() as shared,
        _service(Path(folder), arguments.adapter, arguments.workers) as (port, service),
    ):
        _send(port, paths, 0, 2 * BLOCK)  # Warm-up, until the memory is stable.
        before, ended, start = _memory(service), shared.Event(), time.perf_counter()
        bystander = clients.submit(_stand_by, port, paths[0], ended)
        starts = range(0, arguments.requests, BLOCK)
        counts = [min(BLOCK, arguments.requests - first) for first in starts]
        sent = [clients.submit(_send, port, paths, seed, count) for seed, count in enumerate(counts, start=1)]
        statuses = sum((each.result() for each in sent), collections.Counter())
        took = time.perf_counter() - start
        ended.set()
        answers = bystander.result()
        after = _memory(service)
    seconds = sorted(one for one, _ in answers)
    print(f"{sum(statuses.values())} requests in {took:.0f} s: {dict(sorted(statuses.items(), key=str))}")
    print(
        f"bystander: {len(seconds)} requests, {dict(collections.Counter(status for _, status in answers))}, "
        f"p50 {1000 * seconds[len(seconds) // 2]:.0f} ms, p99 {1000 * seconds[int(0.99 * (len(seconds) - 1))]:.0f} ms, "
        f"longest {1000 * seconds[-1]:.0f} ms"
    )
    print(
        f"memory: {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after ({100 * (after / before - 1):+.1f}%)"
    )


@contextmanager
def _service(folder: Path, adapter: Path | None, workers: int) -> Iterator[tuple[int, psutil.Process]]:
    """Start a service of a small corpus or of an adapter, and yield its port and process when it is ready."""
    # This module is in the same folder. Tests import this file as part of a package.
    from running_service import running_service, serve_command
    from serve_chaos import write_corpus

    settings = [f"workers={workers}", f"artifact={adapter or 'base'}"]
    if adapter is None:
        settings += ["encoder=none", "pipeline=vector_search", "retriever=bm25"]
        settings += [f"index={write_corpus(folder / 'corpus', 0)}", f"paths.cache={folder / 'cache'}"]
    with running_service(serve_command(*settings)) as started:
        yield started


if __name__ == "__main__":
    main()
