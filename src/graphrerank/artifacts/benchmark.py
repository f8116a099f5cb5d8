"""Timing of an artifact's formats and of the eager model, alternately on the same batches."""

from collections.abc import Callable, Mapping, Sequence
from operator import truediv
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from graphrerank.artifacts.artifact import artifact_formats, load_artifact, read_artifact_manifest
from graphrerank.artifacts.parity import ParityBatch, example_batch
from graphrerank.evaluation.tables import markdown_table
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.checks import check_counts, check_not_negative

EAGER = "eager"
NUM_WARM_UP_CALLS = 3  # calls before the clock runs: TorchScript optimises in them


def bench_artifact(
    folder: Path, *, candidates: int = 100, edges: int = 300, batch_queries: int = 32, rounds: int = 50
) -> list[dict[str, Any]]:
    """Time all formats of an artifact; each round runs each of them once, so a busy machine slows all of them equally.

    Return for the eager model and each format its ``name`` and, for a call with one query (``alone``) and with a batch
    (``batched``), the median milliseconds per query (``ms_alone``), queries per second (``qps_alone``) and the median
    of the rounds' ratios to eager (``speedup_alone``). ``candidates`` are ignored for a complexity adapter.
    """
    check_counts(candidates=candidates, batch_queries=batch_queries, rounds=rounds)
    check_not_negative(edges=edges)
    manifest = read_artifact_manifest(folder)
    models: dict[str, Callable[..., Tensor]] = {EAGER: load_checkpoint(folder).model}
    models |= {name: load_artifact(folder, name).module for name in artifact_formats(manifest)}
    nodes = candidates if isinstance(manifest, RerankerManifest) else 1
    times: list[dict[str, Any]] = [{"name": name} for name in models]
    for kind, queries in (("alone", 1), ("batched", batch_queries)):
        seconds = _rounds(models, example_batch(manifest, [nodes] * queries, edges * queries), rounds)
        for entry in times:
            ms = 1000 * median(seconds[entry["name"]]) / queries
            speedup = median(map(truediv, seconds[EAGER], seconds[entry["name"]]))
            entry |= {f"ms_{kind}": ms, f"qps_{kind}": 1000 / ms, f"speedup_{kind}": speedup}
    return times


def bench_table(times: Sequence[dict[str, Any]]) -> str:
    """Return times as a Markdown table."""
    header = ["format", "ms/query alone", "queries/s", "x eager", "ms/query batched", "queries/s", "x eager"]
    return markdown_table(header, [[name, *(f"{x:,.4g}" for x in found)] for name, *found in map(dict.values, times)])


@torch.inference_mode()
def _rounds(models: Mapping[str, Callable[..., Tensor]], batch: ParityBatch, rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(NUM_WARM_UP_CALLS + rounds):
        for name, model in models.items():
            start = perf_counter()
            model(*batch.inputs)
            seconds[name].append(perf_counter() - start)
    return {name: taken[NUM_WARM_UP_CALLS:] for name, taken in seconds.items()}
