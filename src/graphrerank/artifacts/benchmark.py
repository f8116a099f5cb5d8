"""Time the formats of an artifact and the eager model on the same batches."""

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
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.checks import check_counts, check_not_negative
from graphrerank.utils.markdown import markdown_table

EAGER = "eager"
NUM_WARM_UP_CALLS = 3  # untimed calls of each model, during which TorchScript optimises its graph


def bench_artifact(
    folder: Path, *, candidates: int = 100, edges: int = 300, batch_queries: int = 32, rounds: int = 50
) -> list[dict[str, Any]]:
    """Time all formats of an artifact and the eager model.

    Each round runs every model once, so that other load on the machine slows down all of them equally.

    Args:
        folder: Folder of the artifact.
        candidates: Number of candidates per query. Ignored for a complexity adapter.
        edges: Number of edges per query.
        batch_queries: Number of queries in the batched calls.
        rounds: Number of timed rounds.

    Returns:
        One dictionary for the eager model and for each format, with the keys ``name`` and, for calls with one query
        (``alone``) and with a batch (``batched``), ``ms_*`` (median milliseconds per query), ``qps_*`` (queries per
        second) and ``speedup_*`` (median over the rounds of the eager model's time divided by this model's time).

    Raises:
        ValueError: If a number is not positive (``edges`` may be 0), or if the folder is not an artifact.
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
    """Return the timings as a Markdown table.

    Args:
        times: Result of :func:`bench_artifact`.
    """
    header = ["format", "ms/query alone", "queries/s", "x eager", "ms/query batched", "queries/s", "x eager"]
    rows = [[name, *(f"{x:,.4g}" for x in numbers)] for name, *numbers in map(dict.values, times)]
    return markdown_table(header, rows)


@torch.inference_mode()
def _rounds(models: Mapping[str, Callable[..., Tensor]], batch: ParityBatch, rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(NUM_WARM_UP_CALLS + rounds):
        for name, model in models.items():
            start = perf_counter()
            model(*batch.inputs)
            seconds[name].append(perf_counter() - start)
    return {name: taken[NUM_WARM_UP_CALLS:] for name, taken in seconds.items()}
