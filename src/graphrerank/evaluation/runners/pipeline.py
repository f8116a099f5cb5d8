"""Runner of pipelines, which retrieve their own candidates."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.core import Queries
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.latency import TOTAL, pair_milliseconds, spread_over, stage_quantiles, time_stages
from graphrerank.evaluation.memory import with_peak_memory
from graphrerank.evaluation.records import READING, Cost
from graphrerank.evaluation.runners.base import RankingTask, SystemRunner
from graphrerank.evaluation.systems import RankedSystem
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from graphrerank.pipelines.router import route_shares
from graphrerank.utils.checks import UserError
from graphrerank.utils.progress import advance, progress_bar

NUM_TIMED = 50  # number of queries that are run again one at a time, to measure the latency


class PipelineRunner(SystemRunner):
    """Build pipelines over the graph of a data set, and rank its queries with them.

    Args:
        pipelines: Settings of pipelines, or built pipelines, by label.
        components: Factory of the pipelines.
        retriever: Retriever of search steps that do not name one. If None, there is no such step.
        encoder: Text encoder of steps that encode texts. If None, there is no such step.
        pair_encoder: Cross-encoder of steps that score pairs. If None, the cross-encoder of the data set is used.
    """

    def __init__(
        self,
        pipelines: Mapping[str, ConfiguredComponent | Pipeline],
        components: ComponentFactory,
        *,
        retriever: Any = None,
        encoder: Any = None,
        pair_encoder: Any = None,
    ) -> None:
        self.pipelines = dict(pipelines)
        self.components = components
        self.retriever = retriever
        self.encoder = encoder
        self.pair_encoder = pair_encoder

    def run(self, task: RankingTask) -> dict[str, list[RankedSystem]]:
        """Rank the queries of a task with every pipeline.

        Args:
            task: Data set and queries.

        Returns:
            One row per pipeline, by label.

        Raises:
            UserError: If a pipeline cannot be built over the data set. The message begins with its label.
        """
        prepared = task.required_preparation
        if self.pair_encoder is not None:
            prepared = self.components.with_pair_encoder(prepared, self.pair_encoder)
        pipelines = self.build(prepared, is_filtered=task.is_filtered)
        rows = run_pipelines(prepared, task.queries, pipelines, num_timed=NUM_TIMED)
        return {row.name: [row] for row in rows}

    def build(self, prepared: PreparedDataset, *, is_filtered: bool = False) -> dict[str, Pipeline]:
        """Build the pipelines over a data set's graph.

        Args:
            prepared: Data set with encoded texts.
            is_filtered: Whether a metadata filter removed passages. If so, pipelines that the caller built are built
                again over the filtered graph.

        Returns:
            Pipelines by label.

        Raises:
            UserError: If a pipeline cannot be built. The message begins with its label.
        """
        factory = self.components.pipeline_factory(prepared, retriever=self.retriever, encoder=self.encoder)
        built = {}
        for label, pipeline in self.pipelines.items():
            try:
                if not isinstance(pipeline, Pipeline):
                    built[label] = factory(pipeline)
                elif is_filtered:
                    built[label] = pipeline.over(prepared.dataset.graph.to(self.components.device))
                else:
                    built[label] = pipeline
            except ValueError as error:
                raise UserError(f"{label}: {error}") from error
        return built


@dataclass(frozen=True, eq=False)
class TimedRetrieval:
    """Result of a pipeline for all queries at once, with its time and memory.

    Attributes:
        result: Rankings, seconds per stage and numbers of encoded pairs.
        elapsed: Total time in seconds.
        peak_memory_mib: Peak resident memory during the call, in MiB. None if unknown.
    """

    result: Retrieved
    elapsed: float
    peak_memory_mib: float | None


def run_pipelines(
    prepared: PreparedDataset, queries: Tensor, pipelines: Mapping[str, Pipeline], *, num_timed: int = 0
) -> list[RankedSystem]:
    """Run pipelines for many queries at once, and measure their cost.

    Args:
        prepared: Data set over whose graph the pipelines were built.
        queries: Indices of the queries, ``[Q]`` int64.
        pipelines: Pipelines by name.
        num_timed: Number of queries that are run again one at a time, to measure ``Cost.ms``. If 0, ``Cost.ms`` is
            empty.

    Returns:
        One row per pipeline.
    """
    dataset = prepared.dataset
    batch = Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors).select(queries)
    retrieved = {name: retrieve_all(name, pipeline, batch) for name, pipeline in pipelines.items()}
    results = [timed.result for timed in retrieved.values()]
    pair_ms = pair_milliseconds(prepared.pair_encoder, results, batch, dataset.graph)
    rows = []
    for name, timed in retrieved.items():
        ms = pipeline_latency(pipelines[name], batch, num_timed, pair_ms) if num_timed else {}
        rows.append(pipeline_row(name, timed, num_queries=len(batch), ms=ms, pair_ms=pair_ms))
    return rows


def retrieve_all(name: str, pipeline: Pipeline, queries: Queries) -> TimedRetrieval:
    """Run a pipeline for all queries at once.

    Args:
        name: Name of the pipeline, for the progress bar.
        pipeline: Pipeline to run.
        queries: Queries to run the pipeline for.

    Returns:
        Result with its time and memory.
    """
    begin = time.perf_counter()
    with progress_bar(name, len(queries)):
        result, peak = with_peak_memory(partial(pipeline.retrieve, queries, advance=advance))
    return TimedRetrieval(result, time.perf_counter() - begin, peak)


def pipeline_row(
    name: str,
    timed: TimedRetrieval,
    *,
    num_queries: int,
    ms: Mapping[str, Mapping[str, float]],
    pair_ms: float | None,
) -> RankedSystem:
    """Convert the result of a pipeline to a row of the result tables.

    Args:
        name: Name of the pipeline.
        timed: Result for all queries.
        num_queries: Number of queries.
        ms: Quantiles of each stage, one query at a time (:func:`pipeline_latency`).
        pair_ms: Milliseconds that the cross-encoder takes per pair. None if pairs do not come from a cache.

    Returns:
        Rankings with their cost.
    """
    result = timed.result
    encodings = float(result.num_encodings.double().mean())
    seconds = stage_seconds(result, timed.elapsed, pair_ms)
    batch_ms = {stage: 1000 * taken / num_queries for stage, taken in seconds.items()}
    cost = Cost(
        ms,
        encodings or None,
        timed.peak_memory_mib,
        ms.get(TOTAL, {}),
        batch_ms,
        pair_ms if encodings else None,
    )
    routes = {} if result.routes is None else route_shares(result.routes)
    return RankedSystem(name, "pipeline", f"pipeline={name}", result.ranking, cost, routes=routes)


def stage_seconds(result: Retrieved, elapsed: float, pair_ms: float | None) -> dict[str, float]:
    """Return the seconds of each stage of a pipeline.

    Args:
        result: Result of the pipeline.
        elapsed: Total time in seconds.
        pair_ms: Milliseconds that the cross-encoder takes per pair. If not None, the time of encoding is estimated from
            the number of pairs, because pairs may come from a cache.

    Returns:
        Seconds by stage. The time outside all stages is under ``other``.
    """
    seconds = {**result.seconds, "other": elapsed - sum(result.seconds.values())}
    if pair_ms is not None and READING in seconds:
        seconds[READING] = float(result.num_encodings.sum()) * pair_ms / 1000
    return seconds


def pipeline_latency(
    pipeline: Pipeline, queries: Queries, num_timed: int, pair_ms: float | None
) -> dict[str, dict[str, float]]:
    """Measure the latency of each stage of a pipeline, one query at a time.

    Args:
        pipeline: Pipeline to time.
        queries: Queries, of which ``num_timed`` evenly spread ones are timed.
        num_timed: Number of queries to time.
        pair_ms: Milliseconds per pair (:func:`stage_seconds`).

    Returns:
        Quantiles of each stage in milliseconds (:func:`~graphrerank.evaluation.latency.stage_quantiles`).
    """

    def run(row: int) -> dict[str, float]:
        begin = time.perf_counter()
        result = pipeline.retrieve(queries.block(row, row + 1))
        return stage_seconds(result, time.perf_counter() - begin, pair_ms)

    return stage_quantiles(time_stages(spread_over(len(queries), num_timed).tolist(), run))
