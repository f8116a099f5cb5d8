"""Inject faults into a service under load, and measure failed requests and the time to recover.

``python benchmarks/serve_chaos.py`` runs for five minutes. Four clients rerank and search over persistent connections
and record how each request ended. Every ten seconds there is one fault: one or both workers are killed or stopped, the
supervisor is stopped, the corpus is replaced, or the disk of the log is filled. `down` is the time until a new
connection is answered again, and `whole` the time until all processes are back. The script needs root on Linux, for the
small disk.
"""

import argparse
import collections
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
HEADERS = {"content-type": "application/json"}
PAUSE_S, LONGEST_S = 10.0, 60.0


class Service:
    """Running service with its corpora and its small disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(self.disk)], check=True)
        self.corpora = [write_corpus(folder / name, seed) for seed, name in enumerate(("one", "two"))]
        self.index = folder / "now"
        self.index.symlink_to(self.corpora[0])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings = [f"port={self.port}", "artifact=base", "workers=2"]
        settings += [f"index={self.index}", f"paths.cache={folder / 'cache'}"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
        with (self.disk / "log.jsonl").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "serve.py"), *settings],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        while not self.is_ready():
            time.sleep(0.1)
            if self.process.poll() is not None:
                raise SystemExit((self.disk / "log.jsonl").read_text()[-2000:])

    def is_ready(self) -> bool:
        """Return whether the service reports that all workers are ready."""
        return self.ask("GET", "/ready") == 200

    def is_whole(self) -> bool:
        """Return whether both workers exist, run and answer."""
        running = [worker for worker in self.workers() if worker.info["status"] not in ("stopped", "zombie")]
        return len(running) == 2 and all(self.is_ready() for _ in range(8))

    def workers(self) -> list[psutil.Process]:
        """Return the processes that answer requests."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # The process may end meanwhile.
                if process.name() == "rerank serving":
                    process.info = process.as_dict(["status"])
                    found.append(process)
        return found

    def ask(self, method: str, path: str, body: str | None = None) -> int:
        """Return the status of one request over a new connection, or 0 without an answer.

        Raises:
            RuntimeError: If the service has ended.
        """
        if (status := self.process.poll()) is not None:
            raise RuntimeError(f"the service ended with exit status {status}")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path, body, HEADERS)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def strike(self, signum: int) -> None:
        """Send a signal to a random worker until it has an effect."""
        victim = random.choice(self.workers())
        victim.send_signal(signum)
        if signum == signal.SIGKILL:
            with contextlib.suppress(psutil.NoSuchProcess):  # The process has ended and its parent has noticed.
                while victim.status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.001)

    def faults(self) -> dict[str, Callable[[], None]]:
        """Return the functions of all faults by name."""
        return {
            "kill -9 a worker": lambda: self.strike(signal.SIGKILL),
            "SIGSTOP a worker": lambda: self.strike(signal.SIGSTOP),
            "kill -9 one worker and SIGSTOP the other": self.strike_both,
            "SIGSTOP the supervisor for 5 s": self.stop_supervisor,
            "the corpus is replaced": self.replace_corpus,
            "the disk is full": self.fill_disk,
        }

    def strike_both(self) -> None:
        """Kill one worker and stop the other."""
        for worker, signum in zip(self.workers(), (signal.SIGKILL, signal.SIGSTOP), strict=False):
            worker.send_signal(signum)

    def stop_supervisor(self) -> None:
        """Stop the main process for some seconds."""
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(5)
        os.kill(self.process.pid, signal.SIGCONT)

    def replace_corpus(self) -> None:
        """Replace the corpus of the index with the other one."""
        self.corpora.reverse()
        link = self.folder / "next"
        link.symlink_to(self.corpora[0])
        link.replace(self.index)

    def fill_disk(self) -> None:
        """Fill the disk of the log, or empty it if it is full."""
        ballast = self.disk / "ballast"
        if ballast.exists():
            ballast.unlink()
            return
        try:
            with ballast.open("wb") as file:
                while True:
                    file.write(b"x" * 65_536)
        except OSError:
            pass

    def end(self) -> int:
        """Stop the service and return its exit status."""
        self.process.terminate()
        status = self.process.wait(90)
        subprocess.run(["umount", str(self.disk)], check=True)
        return status


def write_corpus(folder: Path, seed: int) -> Path:
    """Write a small data set folder."""
    draw = random.Random(seed)
    words = [f"word{index}" for index in range(500)]
    (folder / "qrels").mkdir(parents=True)
    texts = [{"_id": f"d{index}", "text": " ".join(draw.choices(words, k=40))} for index in range(300)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, texts)))
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "any"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
    (folder / "edges.tsv").write_text("\n".join(f"d{index}\td{index + 1}\tnext" for index in range(299)) + "\n")
    return folder


class Clients:
    """Clients that send requests continuously and record how each one ended."""

    def __init__(self, port: int, count: int) -> None:
        self.ends: collections.Counter[str] = collections.Counter()
        self._port = port
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(count)]
        for thread in self._threads:
            thread.start()

    def since(self) -> collections.Counter[str]:
        """Return how requests ended since the last call."""
        with self._lock:
            ends, self.ends = self.ends, collections.Counter()
        return ends

    def end(self) -> None:
        """Wait until all clients have finished."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        scores = [draw.random() for _ in range(100)]
        rerank = json.dumps({"query": "word1 word2", "scores": scores, "edges": [[0, 1], [2, 5]]})
        search = json.dumps({"query": "word1 word2 word3"})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LONGEST_S)
        while not self._ended.is_set():
            path, body = ("/v2/rerank", rerank) if draw.random() < 0.7 else ("/search", search)
            try:
                connection.request("POST", path, body, HEADERS)
                answer = connection.getresponse()
                answer.read()
                end = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                end = "refused" if isinstance(error, ConnectionRefusedError) else "connection lost"
                connection.close()
            with self._lock:
                self.ends[end] += 1


def main() -> None:
    """Run the faults and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="duration in seconds (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=4, help="number of clients (default: %(default)s)")
    arguments = parser.parse_args()
    rows: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    ends: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder))
        clients, begin = Clients(service.port, arguments.clients), time.monotonic()
        try:
            time.sleep(PAUSE_S)
            ends["none"] = clients.since()
            names = list(service.faults())
            for count in range(int(arguments.seconds // PAUSE_S)):
                name = names[count % len(names)]
                start = time.monotonic()
                service.faults()[name]()
                down = whole = 0.0
                body = json.dumps({"query": "a", "scores": [1, 0]})
                while service.ask("POST", "/v2/rerank", body) != 200:
                    down = time.monotonic() - start
                while not service.is_whole():
                    time.sleep(0.02)
                    whole = time.monotonic() - start
                rows[name].append((down, whole))
                print(
                    f"{time.monotonic() - begin:.0f} s: {name}, down {down:.1f} s, whole {whole:.1f} s", file=sys.stderr
                )
                time.sleep(max(0.0, PAUSE_S - (time.monotonic() - start)))
                ends[name] += clients.since()
        finally:
            clients.end()
            status = service.end()
    print(f"{time.monotonic() - begin:.0f} seconds, exit status {status}")
    columns = ("200", "429", "503", "504", "500", "connection lost", "refused")
    print(f"| fault | times | down s | whole s | {' | '.join(columns)} |")
    print(f"| --- | --: | --: | --: |{' --: |' * len(columns)}")
    for name, counted in ends.items():
        times = rows.get(name, [])
        down, whole = (max((pair[part] for pair in times), default=0.0) for part in (0, 1))
        print(f"| {name} | {len(times)} | {down:.1f} | {whole:.1f} | {' | '.join(str(counted[c]) for c in columns)} |")


if __name__ == "__main__":
    main()
