"""Measure prices at startup: engines answer requests of known sizes, and prices are fitted to the measured times."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.serving.engine import Engine, Refusal, answer_all, encode
from graphrerank.serving.json_log import log
from graphrerank.serving.prices import ENCODING, Prices, fit_prices
from graphrerank.serving.work_estimates import num_encoded_chars
from graphrerank.utils.files import write_json
from graphrerank.utils.safe_loading import read_json

CALIBRATION_SECONDS = 2.0  # CPU time of one engine after which no further probe is started
PROBE_TEXTS = ((8, 20), (8, 100), (4, 400), (2, 1200))  # (number of texts, characters of each) to encode
Measured = tuple[Mapping[str, float], float]  # (counts of a job, measured seconds)


def load_prices(
    path: Path, engines: Mapping[str, Engine[Any]], clock: Callable[[], float] = time.process_time
) -> dict[str, Prices]:
    """Return the prices that another process of the service has measured, or measure and save them.

    Args:
        path: File of the prices.
        engines: Warm engines by kind.
        clock: Clock of CPU time in seconds.

    Returns:
        Prices by kind of engine, and those of the encoder under ``encoding``.
    """
    if not path.is_file():
        begin = clock()
        prices = measure_prices(engines, clock)
        log("prices measured", seconds=round(clock() - begin, 3), engines=sorted(prices))
        if not path.is_file():  # otherwise another process was faster
            write_json(path, {kind: dict(fitted.seconds) for kind, fitted in prices.items()})
    return {kind: Prices(seconds) for kind, seconds in read_json(path).items()}


def measure_prices(engines: Mapping[str, Engine[Any]], clock: Callable[[], float]) -> dict[str, Prices]:
    """Measure the prices of all engines that have probes, and of their encoder.

    Args:
        engines: Warm engines by kind.
        clock: Clock of CPU time in seconds.

    Returns:
        Prices by kind of engine, and those of the encoder under ``encoding``.
    """
    prices = {}
    for kind, engine in engines.items():
        if engine.encoder is not None and ENCODING not in prices:
            prices[ENCODING] = fit_prices(list(_measure_encoder(engine.encoder, clock)))
        if measured := list(_measure(kind, engine, clock)):
            prices[kind] = fit_prices(measured)
    return prices


def _measure(kind: str, engine: Engine[Any], clock: Callable[[], float]) -> Iterator[Measured]:
    """Yield the counts and the measured seconds of each probe of an engine."""
    encoder, begin = engine.encoder, clock()
    for number, job in enumerate(engine.probes()):
        if clock() - begin > CALIBRATION_SECONDS:
            return
        if encoder is not None:  # cache the vectors, because encoding has separate prices
            for texts in job.texts_to_encode():
                encode(encoder, list(texts))
        start = clock()
        (result,) = answer_all(engine, {f"probe {number}": job}).values()
        seconds = clock() - start
        if isinstance(result, Refusal):
            log("probe refused", level=logging.WARNING, engine=kind, probe=number, status=result.status_code)
        else:
            yield job.work().counts, seconds


def _measure_encoder(encoder: MemoryVectorCache, clock: Callable[[], float]) -> Iterator[Measured]:
    """Yield the counts of texts and the measured seconds to encode them."""
    begin = clock()
    for number, length in PROBE_TEXTS:
        if clock() - begin > CALIBRATION_SECONDS:
            return
        texts = [f"{index} {'probe of the encoder ' * length}"[:length] for index in range(number)]
        start = clock()
        encode(encoder, texts)
        yield {"encoded_texts": number, "encoded_characters": num_encoded_chars(texts)}, clock() - start
