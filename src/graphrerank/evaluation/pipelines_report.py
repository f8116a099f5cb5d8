"""What judging pipelines leaves behind: the table and TREC run files."""

from pathlib import Path

from rich.table import Table

from graphrerank.evaluation.judge_pipelines import READING, PipelinesResult
from graphrerank.evaluation.report import p_text, trec_run
from graphrerank.files import write_text
from graphrerank.graphs import CorpusGraph

COLUMNS = ("CR@10", "nDCG@10", "TR")  # few enough for a terminal; `metrics.json` holds all


def pipelines_table(result: PipelinesResult) -> Table:
    """Lay out one data set's results: a row per pipeline, measures in percent, encodings and milliseconds per query."""
    names = list(result.pipelines)
    lines = [
        f"{names[-1]} against {entry.baseline}: {entry.measure} {100 * entry.difference:+.1f} ({p_text(entry.p_value)})"
        for entry in result.comparisons
    ]
    for name, pipeline in result.pipelines.items():
        if pipeline.routes:
            shares = ", ".join(f"{route} {100 * share:.0f}%" for route, share in pipeline.routes.items())
            lines.append(f"{name}: {shares} of the queries")
    past = "" if result.pair_ms is None else f" ({result.pair_ms:.1f} a pair, measured past the cache)"
    table = Table(
        title=f"{result.dataset} {result.split}: {len(result.query_ids):,} queries",
        caption="\n".join(
            [
                "read: pairs that the cross-encoder read per query, now or before (then they come from the cache)",
                f"milliseconds per query, many at once: encode, the cross-encoder's reading{past}; rest, all else",
                *lines,
            ]
        ),
    )
    table.add_column("pipeline", no_wrap=True)
    for column in (*COLUMNS, "read", "encode", "rest", "ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, pipeline in result.pipelines.items():
        quality = [f"{100 * pipeline.measures[measure]:.2f}" for measure in COLUMNS]
        reading = pipeline.ms.get(READING, 0.0)
        times = [reading, pipeline.total_ms - reading, pipeline.total_ms]
        table.add_row(name, *quality, f"{pipeline.encodings:.1f}", *(f"{number:.1f}" for number in times))
    return table


def write_pipeline_runs(folder: Path, result: PipelinesResult, graph: CorpusGraph) -> None:
    """Write one TREC run file per pipeline, ``<dataset>.<pipeline>.trec``."""
    for name, pipeline in result.pipelines.items():
        text = trec_run(result.query_ids, graph.node_ids, pipeline.ranking, tag=name)
        write_text(folder / f"{result.dataset}.{name}.trec", text)
