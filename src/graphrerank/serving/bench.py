"""Timing of an artifact's formats and of the eager model, alternately on the same batches."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from graphrerank.checks import check_counts, check_not_negative
from graphrerank.evaluation.tables import markdown_table
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank.serving.artifact import artifact_formats, load_artifact, read_artifact_manifest
from graphrerank.serving.parity import Batch, example_batch

EAGER = "eager"
WARM_UP = 3  # calls before the clock runs: TorchScript optimises in them


@dataclass(frozen=True)
class FormatTime:
    """Median milliseconds per query of one format, or ``eager``; speedups are medians of the rounds' ratios."""

    name: str
    ms_alone: float  # of a call with one query
    ms_batched: float  # of a call with a batch
    speedup_alone: float  # over eager
    speedup_batched: float

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``bench.json``, with queries per second."""
        return {**asdict(self), "qps_alone": 1000 / self.ms_alone, "qps_batched": 1000 / self.ms_batched}


def bench_artifact(
    folder: Path, *, candidates: int = 100, edges: int = 300, batch_queries: int = 32, rounds: int = 50
) -> list[FormatTime]:
    """Time all formats of an artifact; each round runs each of them once, so a busy machine slows all of them equally.

    Args:
        folder: Folder of the artifact.
        candidates: Candidates per query; ignored for a complexity adapter.
        edges: Edges among the candidates of a query.
        batch_queries: Queries per batch.
        rounds: Number of rounds.

    Returns:
        The times, the eager model's first.

    Raises:
        ValueError: If a number is not positive, or the artifact cannot be loaded.
    """
    check_counts(candidates=candidates, batch_queries=batch_queries, rounds=rounds)
    check_not_negative(edges=edges)
    manifest = read_artifact_manifest(folder)
    models: dict[str, Callable[..., Tensor]] = {EAGER: load_checkpoint(folder).model}
    models |= {name: load_artifact(folder, name).module for name in artifact_formats(manifest)}
    alone = _rounds(models, example_batch(manifest, [candidates], edges), rounds)
    batched = _rounds(models, example_batch(manifest, [candidates] * batch_queries, edges * batch_queries), rounds)
    return [
        FormatTime(
            name,
            *(1000 * median(alone[name]), 1000 * median(batched[name]) / batch_queries),
            *(median(map(truediv, times[EAGER], times[name])) for times in (alone, batched)),
        )
        for name in models
    ]


def bench_table(times: Sequence[FormatTime]) -> str:
    """Return times as a Markdown table."""
    header = ["format", "ms/query alone", "queries/s", "x eager", "ms/query batched", "queries/s", "x eager"]
    rows = []
    for entry in times:
        row = [entry.name]
        for ms, speedup in ((entry.ms_alone, entry.speedup_alone), (entry.ms_batched, entry.speedup_batched)):
            row += [f"{ms:.3f}", f"{1000 / ms:.0f}", f"{speedup:.2f}"]
        rows.append(row)
    return markdown_table(header, rows)


@torch.inference_mode()
def _rounds(models: Mapping[str, Callable[..., Tensor]], batch: Batch, rounds: int) -> dict[str, list[float]]:
    """Time each model, alternately; return seconds by name."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(WARM_UP + rounds):
        for name, model in models.items():
            start = time.perf_counter()
            model(*batch.inputs)
            seconds[name].append(time.perf_counter() - start)
    return {name: taken[WARM_UP:] for name, taken in seconds.items()}
