"""Measure the goodput of the service at ten times its capacity.

python benchmarks/serve_overload.py

First, 16 clients send one request after the other, which measures the peak. Then requests arrive at ten times that
rate, whether or not earlier ones are answered. Answers are counted from the moment at which the queue is full
(``--filling`` seconds). Both phases alternate. Each request has a separate connection and 100 texts with one new word
each. ``--checkout`` also measures another version in the same run.

The clients are one process on the same machine, with one thread and bytes that are prepared beforehand. The script
prints the clients' share of a CPU, the service's CPU milliseconds per answer (including the refusals), and the cost of
a refusal: the seconds of CPU that the answers at the peak do not explain.
"""

import argparse
import collections
import os
import random
import select
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from command_line import add_numbers
from running_service import ROOT, running_service
from serve_load import HEADERS, LENGTH, NEW_WORD, cpu_of, request_bodies

PREPARED, CLIENTS, ALWAYS = 3000, 16, float("inf")


@dataclass
class Outcome:
    """Outcomes and costs of requests."""

    statuses: collections.Counter[int | str] = field(default_factory=collections.Counter)
    waits: list[float] = field(default_factory=list)  # seconds of counted answers
    refusals: int = 0  # number of counted refusals
    seconds: float = 0.0  # duration of the counting
    own_cpu: float = 0.0  # CPU seconds of the clients
    service_cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Number of answers per second."""
        return len(self.waits) / self.seconds


@dataclass
class Exchange:
    """Request that is being sent or answered."""

    connection: socket.socket
    begin: float
    unsent: bytes
    received: bytes = b""

    def proceed(self, events: int) -> int | str | None:
        """Send and receive without blocking, and return the status of a complete answer, or an error."""
        try:
            if self.unsent and events & select.EPOLLOUT:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
            if not events & ~select.EPOLLOUT:
                return None
            if not (piece := self.connection.recv(1 << 16)):
                return "closed"
        except OSError as error:
            return type(error).__name__
        self.received += piece
        head, end, body = self.received.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not end or (length and len(body) < int(length[1])):
            return None
        status = int(head[9:12])
        return "429 without Retry-After" if status == 429 and b"retry-after" not in head else status


def drive(
    port: int,
    requests: Sequence[bytes],
    service: psutil.Process,
    seconds: float,
    *,
    rate: float = ALWAYS,
    clients: float = ALWAYS,
    filling: float = 0.0,
    patience: float,
) -> Outcome:
    """Send requests at a rate with a maximum number of clients. Count for ``seconds`` after ``filling`` seconds."""
    outcome, poll, number = Outcome(seconds=seconds), select.epoll(), 0
    under_way: dict[int, Exchange] = {}
    start = time.perf_counter()
    first, end, marks = start + filling, start + filling + seconds, list[tuple[float, float]]()
    while (now := time.perf_counter()) < end or (under_way and now < end + patience):
        if now >= (first, end, ALWAYS)[len(marks)]:
            marks.append((time.process_time(), cpu_of(service)))
        while now < end and len(under_way) < clients and number <= (now - start) * rate:
            number += 1
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            under_way[connection.fileno()] = Exchange(connection, now, requests[number % len(requests)])
            poll.register(connection, select.EPOLLIN | select.EPOLLOUT)
            now = time.perf_counter()
        due = start + number / rate if now < end and rate < ALWAYS else now + 0.01
        for descriptor, events in poll.poll(min(max(due - now, 0.0), 0.01)):
            exchange = under_way[descriptor]
            status = exchange.proceed(events)
            if status is None and not exchange.unsent:
                poll.modify(descriptor, select.EPOLLIN)
            if status is not None:
                del under_way[descriptor]
                exchange.connection.close()
                outcome.statuses[status] += 1
                if first <= (now := time.perf_counter()) < end:
                    outcome.refusals += status == 429
                    outcome.waits += [now - exchange.begin] if status == 200 else []
    outcome.statuses |= {"no answer": len(under_way)} if under_way else {}
    (own, served), (own_end, served_end) = marks
    outcome.own_cpu, outcome.service_cpu = own_end - own, served_end - served
    return outcome


def main() -> None:
    """Start the services, measure in turn, and print one line per measurement and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", default="base", help="artifact to serve (default: %(default)s)")
    parser.add_argument("--encoder", action="store_true", help="let the service encode the texts")
    add_numbers(
        parser,
        workers=(1, "number of workers of the service"),
        factor=(10.0, "arrival rate as a multiple of the peak"),
        seconds=(15.0, "duration of each measurement in seconds"),
        filling=(12.0, "seconds until the queue is full"),
        rounds=(3, "number of rounds"),
        patience=(60.0, "seconds that a client waits for an answer"),
    )
    parser.add_argument("--checkout", type=Path, help="checkout of another version to compare with")
    parser.add_argument("settings", nargs="*", help="additional settings of the service")
    arguments = parser.parse_args()
    settings = [f"artifact={arguments.artifact}", f"workers={arguments.workers}", *arguments.settings]
    settings.append("encoder=minilm" if arguments.encoder else "encoder=none")
    bodies = request_bodies(num_words=12, last_word=NEW_WORD)
    requests = []
    for _ in range(PREPARED):
        body = random.choice(bodies).replace(NEW_WORD.encode(), b"z%09d" % random.randrange(10**9))
        requests.append(HEADERS % len(body) + body)
    checkouts = {"this": ROOT} | ({"other": arguments.checkout} if arguments.checkout else {})
    shares: dict[str, list[tuple[float, float, float]]] = {name: [] for name in checkouts}
    with ExitStack() as stack:
        running = {}
        for name, checkout in checkouts.items():
            command = [sys.executable, str(checkout / "serve.py"), *settings]
            make = lambda port, command=command: [*command, f"port={port}"]  # noqa: E731
            running[name] = stack.enter_context(running_service(make, checkout / "src"))
            drive(running[name][0], requests, running[name][1], 3, clients=4, patience=60)
        for _ in range(arguments.rounds):
            for name, (port, service) in running.items():
                peak = drive(port, requests, service, arguments.seconds, clients=CLIENTS, filling=1, patience=60)
                over = drive(
                    port, requests, service, arguments.seconds,
                    rate=arguments.factor * peak.rate, filling=arguments.filling, patience=arguments.patience,
                )  # fmt: skip
                cost, over_cost = (1000 * one.service_cpu / len(one.waits) for one in (peak, over))
                refusal = (over_cost - cost) * len(over.waits) / max(over.refusals, 1)
                shares[name].append((over.rate / peak.rate, cost / over_cost, refusal))
                over.waits.sort()
                p50, p99 = (over.waits[int(share * (len(over.waits) - 1))] for share in (0.5, 0.99))
                print(
                    f"{name}: peak {peak.rate:.1f} answers a second, {cost:.2f} ms of CPU each; at {arguments.factor:g}"
                    f" times {over.rate:.1f} ({over.rate / peak.rate:.0%}), {over_cost:.2f} ms each with refusals of"
                    f" {refusal:.3f} ms; p50 {p50:.2f} s, p99 {p99:.2f} s; clients {over.own_cpu / over.seconds:.2f} of"
                    f" a CPU ({peak.own_cpu / peak.seconds:.2f} at the peak); {dict(over.statuses)}",
                    flush=True,
                )
    for name, measured in shares.items():
        share, by_cpu, refusal = (statistics.median(column) for column in zip(*measured, strict=True))
        print(
            f"{name}: median goodput {share:.0%} of the peak, per second of the service's CPU {by_cpu:.0%};"
            f" a refusal {refusal:.3f} ms of CPU; load of the machine {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
