"""Measure what logging and feedback under load cost POST /search.

python benchmarks/serve_feedback.py DATA

Two services search the data set folder DATA, one of them with a feedback log. Both are loaded in turn, in a random
order per round, by clients that send one query of the folder after the other. A separate client sends feedback on every
third answer of the service with the log, so that only the time of searches is measured. Each round gives a ratio of
medians. The script prints the median ratio with a 95% interval of the sign test, and CPU seconds.
"""

import argparse
import http.client
import json
import queue
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil
from command_line import add_numbers
from running_service import running_service, serve_command
from scipy.stats import binom
from serve_load import cpu_of


def ask(connection: http.client.HTTPConnection, path: str, body: dict[str, object]) -> dict[str, object]:
    """Send a request and return the answer."""
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    content: dict[str, object] = json.loads(response.read())
    assert response.status == 200, content
    return content


def load(port: int, queries: list[str], arguments: argparse.Namespace, *, feedback: bool) -> tuple[list[float], int]:
    """Search for a number of seconds, and return the time of each search and the number of answers with feedback."""
    end, shown, given = time.perf_counter() + arguments.seconds, queue.SimpleQueue[str | None](), 0
    seconds: list[float] = []

    def search(seed: int) -> None:
        draw, connection = random.Random(seed), http.client.HTTPConnection("127.0.0.1", port)
        while (begin := time.perf_counter()) < end:
            answer = ask(connection, "/search", {"query": draw.choice(queries), "user": f"u{draw.randrange(1000)}"})
            seconds.append(time.perf_counter() - begin)
            if feedback and not len(seconds) % arguments.every:
                shown.put(str(answer["id"]))

    def judge() -> None:
        nonlocal given
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while (request_id := shown.get()) is not None:
            ask(connection, "/feedback", {"request_id": request_id, "clicked": [1]})
            given += 1

    judging = threading.Thread(target=judge)
    judging.start()
    searching = [threading.Thread(target=search, args=[seed]) for seed in range(arguments.clients)]
    for thread in searching:
        thread.start()
    for thread in searching:
        thread.join()
    shown.put(None)
    judging.join()
    return seconds, given


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return a 95% confidence interval of the median."""
    ordered, low = sorted(ratios), int(binom.ppf(0.025, len(ratios), 0.5))
    return ordered[max(low - 1, 0)], ordered[min(len(ratios) - low, len(ratios) - 1)]


def main() -> None:
    """Load both services in turn and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="data set folder")
    add_numbers(
        parser,
        rounds=(60, "number of rounds"),
        seconds=(1.0, "duration of a turn in seconds"),
        clients=(1, "number of clients"),
        every=(3, "send feedback on every N-th answer"),
    )
    parser.add_argument("--settings", nargs="*", default=[], help="additional settings of both services")
    arguments = parser.parse_args()
    lines = (arguments.data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [json.loads(line)["text"] for line in lines[:500]]
    plan = ("artifact=base", f"index={arguments.data}", "workers=1", "page=false", *arguments.settings)
    measured: dict[bool, list[float]] = {False: [], True: []}
    cpu: dict[bool, list[float]] = {False: [], True: []}
    judged = searches = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        running_service(serve_command(*plan)) as without,
        running_service(serve_command(*plan, f"feedback.path={folder}/log", "feedback.explore=0.1")) as remembering,
    ):
        services: dict[bool, tuple[int, psutil.Process]] = {False: without, True: remembering}
        for number in range(arguments.rounds + 1):
            for on in random.sample((False, True), 2):
                port, process = services[on]
                before = cpu_of(process)
                seconds, given = load(port, queries, arguments, feedback=on)
                if number:  # The first round is a warm-up.
                    measured[on].append(statistics.median(seconds))
                    cpu[on].append((cpu_of(process) - before) / len(seconds))
                    judged, searches = judged + given, searches + len(seconds) * on
    for name, unit in (("p50 of a search", measured), ("CPU of the service per search", cpu)):
        ratios = [on / off for off, on in zip(unit[False], unit[True], strict=True)]
        low, high = interval(ratios)
        means = " and ".join(f"{1000 * statistics.median(unit[on]):.2f}" for on in (False, True))
        print(f"{name}: {means} ms without and with, ratio {statistics.median(ratios):.3f} ({low:.3f}-{high:.3f})")
    print(f"{judged} of {searches} answers got feedback")


if __name__ == "__main__":
    main()
