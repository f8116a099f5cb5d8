"""Start the HTTP service with a checkpoint, call it in Cohere's format, and stop it.

Usage: python examples/serve_and_call.py [--checkpoint base] [--port 8765]

Needs `pip install "graphrerank[serve]"`. In production, run `graphrerank serve` by itself; docs/serving.md.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.request

REQUEST = {
    "query": "Where is the director of Solaris buried?",
    "documents": [
        "Solaris. A 1972 film by Andrei Tarkovsky.",
        "Paris. The capital of France.",
        "Andrei Tarkovsky. Buried in France.",
    ],
    "scores": [0.7, 0.5, 0.3],
    "edges": [[0, 2]],
    "top_n": 2,
}


def wait_until_ready(url: str, service: subprocess.Popen[bytes], seconds: float = 120) -> None:
    """Wait until the service answers `GET /ready`.

    Args:
        url: Address of the service.
        service: Its process.
        seconds: Longest wait.

    Raises:
        RuntimeError: If the service ends or is not ready in time.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and service.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/ready", timeout=5).close()
            return
        except OSError:  # refused, or not answered in time
            time.sleep(0.5)
    raise RuntimeError("the service did not start; its messages are above")


def main() -> None:
    """Serve, send one request, and print the ranking."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="base", help="shipped checkpoint or artifact folder")
    parser.add_argument("--port", type=int, default=8765)
    arguments = parser.parse_args()

    settings = [f"artifact={arguments.checkpoint}", f"port={arguments.port}", "encoder=none", "workers=1"]
    service = subprocess.Popen([sys.executable, "-m", "graphrerank.cli.main", "serve", *settings])
    try:
        url = f"http://localhost:{arguments.port}"
        wait_until_ready(url, service)
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{url}/v2/rerank", json.dumps(REQUEST).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            for result in json.load(response)["results"]:
                print(f"{result['relevance_score']:.2f}  {REQUEST['documents'][result['index']]}")
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    main()
