"""python benchmarks/serve_overload.py  # goodput at ten times the capacity of the service.

First 16 clients ask one after the other, which gives the peak. Then requests arrive at ten times that rate, whatever
becomes of those before; answers count while requests arrive. Each has a separate connection and 100 texts, a word of
each new; with --encoder the service encodes them. The clients are another process of the same machine.
"""

import argparse
import asyncio
import collections
import random
import sys
import time
from pathlib import Path

from running_service import ROOT, running_service
from serve_load import HEADERS, LENGTH, NEW_WORD, request_bodies


async def ask(port: int, body: bytes, patience: float) -> tuple[int | str, float]:
    """Send a request over a new connection; return the status, or an error without an answer, and the seconds."""
    start = time.perf_counter()
    status: int | str = "no answer"
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEADERS % len(body) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            found = LENGTH.search(head)
            await reader.readexactly(int(found[1]) if found else 0)
            status = int(head.split(b" ", 2)[1])
            if status == 429 and b"retry-after" not in head:
                status = "429 without Retry-After"
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        status = type(error).__name__
    finally:
        if "writer" in locals():
            writer.close()
    return status, time.perf_counter() - start


def new_words(bodies: list[bytes]) -> bytes:
    """Draw a body, and put a new word in each of its texts."""
    return random.choice(bodies).replace(NEW_WORD.encode(), b"z%09d" % random.randrange(10**9))


async def closed_loop(port: int, bodies: list[bytes], clients: int, seconds: float, patience: float) -> float:
    """Return the answers a second of clients that ask one after the other."""
    answered, end = 0, time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal answered
        while time.perf_counter() < end:
            status, _ = await ask(port, new_words(bodies), patience)
            answered += status == 200

    await asyncio.gather(*map(client, range(clients)))
    return answered / seconds


async def open_loop(
    port: int, bodies: list[bytes], rate: float, seconds: float, patience: float
) -> tuple[collections.Counter[int | str], list[float], float]:
    """Send requests at a rate; return the statuses, the seconds of the answers, and the answers a second meanwhile."""
    tasks, start, num_good = [], time.perf_counter(), 0

    async def one() -> tuple[int | str, float]:
        nonlocal num_good
        status, took = await ask(port, new_words(bodies), patience)
        num_good += status == 200 and time.perf_counter() < start + seconds
        return status, took

    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(one()))
    while time.perf_counter() < start + seconds:
        await asyncio.sleep(0.01)
    ended = await asyncio.gather(*tasks)
    statuses = collections.Counter(status for status, _ in ended)
    return statuses, sorted(took for status, took in ended if status == 200), num_good / seconds


def main() -> None:
    """Start a service, measure, and print two lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", default="base")
    parser.add_argument("--encoder", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--factor", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--patience", type=float, default=60, help="seconds that a client waits")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="of another version, to compare")
    parser.add_argument("settings", nargs="*", help="further settings of the service")
    arguments = parser.parse_args()
    settings = [f"artifact={arguments.artifact}", f"workers={arguments.workers}", *arguments.settings]
    settings.append("encoder=minilm" if arguments.encoder else "encoder=none")
    bodies = request_bodies(num_words=12, last_word=NEW_WORD)
    command = [sys.executable, str(arguments.checkout / "serve.py"), *settings]
    with running_service(lambda port: [*command, f"port={port}"], arguments.checkout / "src") as (port, _):
        asyncio.run(closed_loop(port, bodies, 4, 3, arguments.patience))
        peak = asyncio.run(closed_loop(port, bodies, 16, arguments.seconds, arguments.patience))
        print(f"peak: {peak:.1f} answers a second")
        rate = arguments.factor * peak
        statuses, seconds, good = asyncio.run(open_loop(port, bodies, rate, arguments.seconds, arguments.patience))
        p50, p99 = (seconds[int(share * (len(seconds) - 1))] for share in (0.5, 0.99)) if seconds else (0.0, 0.0)
        print(
            f"at {rate:.0f} arrivals a second: {good:.1f} answers a second ({100 * good / peak:.0f}% of the peak), ",
            end="",
        )
        print(f"p50 {p50:.2f} s, p99 {p99:.2f} s, statuses {dict(statuses)}")
        after = asyncio.run(closed_loop(port, bodies, 4, 5, arguments.patience))
        print(f"afterwards: {after:.1f} answers a second of 4 clients")


if __name__ == "__main__":
    main()
