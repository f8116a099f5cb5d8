"""How long each format of an artifact takes, beside the eager model, on the same batches in turn."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.tables import markdown_table
from graphrerank.models import load_checkpoint
from graphrerank.serving.artifact import artifact_formats, load_artifact, read_artifact_manifest
from graphrerank.serving.parity_batches import Batch, example_batch

EAGER = "eager"
WARM_UP = 3  # calls before the clock runs: TorchScript optimises in them
Model = Callable[..., Tensor]


@dataclass(frozen=True)
class FormatTime:
    """What one format takes.

    Attributes:
        name: The format's, or ``eager``.
        ms_alone: Median milliseconds of a call with one query.
        ms_batched: Median milliseconds per query of a call with a batch.
        speedup_alone: Times as fast as eager, one query at a time: the median of the rounds' ratios.
        speedup_batched: The same with a batch.
    """

    name: str
    ms_alone: float
    ms_batched: float
    speedup_alone: float
    speedup_batched: float

    def to_json(self) -> dict[str, Any]:
        """Return what ``bench.json`` holds, with queries per second."""
        return {**asdict(self), "qps_alone": 1000 / self.ms_alone, "qps_batched": 1000 / self.ms_batched}


def bench_artifact(
    folder: Path, *, candidates: int = 100, edges: int = 300, batch_queries: int = 32, rounds: int = 50
) -> list[FormatTime]:
    """Time all formats of an artifact; each round runs every one of them once, so that a busy machine slows all alike.

    Args:
        folder: The artifact's.
        candidates: Of a query; of no meaning for a complexity adapter.
        edges: Among the candidates of a query.
        batch_queries: Queries of a batch.
        rounds: How often each is timed.

    Returns:
        The eager model's time first.

    Raises:
        ValueError: If a number is not positive, or the artifact cannot be loaded.
    """
    if min(candidates, batch_queries, rounds) < 1 or edges < 0:
        raise ValueError(
            "`candidates`, `batch_queries` and `rounds` must be positive and `edges` not negative, got "
            f"{candidates}, {batch_queries}, {rounds} and {edges}"
        )
    manifest = read_artifact_manifest(folder)
    models: dict[str, Model] = {EAGER: load_checkpoint(folder).model}
    models |= {name: load_artifact(folder, name).module for name in artifact_formats(manifest)}
    alone = _rounds(models, example_batch(manifest, [candidates], edges), rounds)
    batched = _rounds(models, example_batch(manifest, [candidates] * batch_queries, edges * batch_queries), rounds)
    return [
        FormatTime(
            name,
            1000 * median(alone[name]),
            1000 * median(batched[name]) / batch_queries,
            _speedup(alone, name),
            _speedup(batched, name),
        )
        for name in models
    ]


def bench_table(times: Sequence[FormatTime]) -> str:
    """Write times as a Markdown table."""
    header = ["format", "ms/query alone", "queries/s", "x eager", "ms/query batched", "queries/s", "x eager"]
    rows = []
    for entry in times:
        row = [entry.name]
        for ms, speedup in ((entry.ms_alone, entry.speedup_alone), (entry.ms_batched, entry.speedup_batched)):
            row += [f"{ms:.3f}", f"{1000 / ms:.0f}", f"{speedup:.2f}"]
        rows.append(row)
    return markdown_table(header, rows)


@torch.inference_mode()
def _rounds(models: Mapping[str, Model], batch: Batch, rounds: int) -> dict[str, list[float]]:
    """Time each model in turn; seconds by name."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(WARM_UP + rounds):
        for name, model in models.items():
            start = time.perf_counter()
            model(*batch.inputs)
            if number >= WARM_UP:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def _speedup(seconds: Mapping[str, Sequence[float]], name: str) -> float:
    return median(eager / own for eager, own in zip(seconds[EAGER], seconds[name], strict=True))
