"""Measure whether clients with expensive requests cause refusals for other clients.

python benchmarks/serve_shares.py

Eight clients send small rerank requests, one after the other. Meanwhile, some connections request explanations of 1,000
short documents and 300 edges (12 KB). The script counts the answers of both groups by status. ``--checkout`` also
measures another version in the same run. ``--address`` gives the expensive clients another address of this machine,
so that the service takes them for other clients.
"""

import argparse
import collections
import http.client
import json
import statistics
import sys
import threading
import time
from pathlib import Path

from running_service import ROOT, running_service

HEADERS = {"content-type": "application/json"}


def explanation(num_edges: int) -> bytes:
    """Return the body of a request for explanations of 1,000 documents."""
    edges = [[i, i + 1] for i in range(num_edges)]
    return json.dumps({"query": "q", "documents": ["a b"] * 1000, "edges": edges, "explain": True}).encode()


def ask(port: int, body: bytes, address: str) -> tuple[int, float]:
    """Send one request over a new connection, and return its status (0 without an answer) and seconds."""
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(address, 0))
    try:
        connection.request("POST", "/v2/rerank", body, HEADERS)
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.monotonic() - begin
    except OSError:
        return 0, time.monotonic() - begin
    finally:
        connection.close()


def measure(port: int, heavy: bytes, connections: int, address: str, seconds: float) -> str:
    """Load the service and describe the outcomes of both kinds of requests."""
    end = time.monotonic() + seconds
    statuses = {name: collections.Counter[int]() for name in ("plain", "explain")}
    waits = list[float]()
    lock = threading.Lock()

    def client(name: str, body: bytes, source: str) -> None:
        while time.monotonic() < end:
            status, wait = ask(port, body, source)
            with lock:
                statuses[name][status] += 1
                waits.extend([wait] if name == "plain" and status == 200 else [])
            time.sleep(0.05)  # The pause also follows a refusal.

    plain = json.dumps({"query": "q", "scores": [1, 0.5, 0], "edges": [[0, 2]]}).encode()
    threads = [threading.Thread(target=client, args=("plain", plain, "127.0.0.1")) for _ in range(8)]
    threads += [threading.Thread(target=client, args=("explain", heavy, address)) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    median = statistics.median(waits) if waits else float("nan")
    counts = {name: dict(sorted(counted.items())) for name, counted in statuses.items()}
    return f"plain {counts['plain']} (median {median:.2f} s), explain {counts['explain']}"


def main() -> None:
    """Start the services, measure in turn, and print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", default="base", help="artifact to serve (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=30, help="duration of each measurement in seconds (default: %(default)s)"
    )
    parser.add_argument(
        "--connections",
        type=int,
        nargs="+",
        default=[0, 1, 4],
        help="numbers of expensive connections (default: %(default)s)",
    )
    parser.add_argument(
        "--edges", type=int, default=300, help="number of edges to explain per request (default: %(default)s)"
    )
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        help="address of the expensive clients, such as 127.0.0.2 (default: %(default)s)",
    )
    parser.add_argument("--checkout", type=Path, help="checkout of another version to compare with")
    parser.add_argument("settings", nargs="*", help="additional settings of the service")
    arguments = parser.parse_args()
    checkouts = {"this": ROOT} | ({"other": arguments.checkout} if arguments.checkout else {})
    settings = [f"artifact={arguments.artifact}", "encoder=none", *arguments.settings]
    for name, checkout in checkouts.items():
        command = [sys.executable, str(checkout / "serve.py"), *settings]
        with running_service(lambda port, command=command: [*command, f"port={port}"], checkout / "src") as (port, _):
            for connections in arguments.connections:
                line = measure(port, explanation(arguments.edges), connections, arguments.address, arguments.seconds)
                print(f"{name}, {connections} connections with explanations: {line}", flush=True)


if __name__ == "__main__":
    main()
