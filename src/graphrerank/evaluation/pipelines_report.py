"""What judging pipelines leaves behind: the table and TREC run files."""

from pathlib import Path

from rich.table import Table

from graphrerank.evaluation.judge_pipelines import PipelinesResult
from graphrerank.evaluation.report import p_text, trec_run
from graphrerank.files import write_text
from graphrerank.graphs import CorpusGraph

COLUMNS = ("CR@10", "nDCG@10", "TR")  # few enough for a terminal; `metrics.json` holds all
STAGES = ("retrieve", "encode", "graph", "rerank")  # what is between them counts in `total`


def pipelines_table(result: PipelinesResult) -> Table:
    """Lay out one data set's results: a row per pipeline, measures in percent, encodings and milliseconds per query."""
    names = list(result.pipelines)
    lines = [
        f"{names[-1]} against {entry.baseline}: {entry.measure} {100 * entry.difference:+.1f} ({p_text(entry.p_value)})"
        for entry in result.comparisons
    ]
    reading = "" if result.pair_ms is None else f"; encode: pairs x {result.pair_ms:.1f} ms, measured past the cache"
    table = Table(
        title=f"{result.dataset} {result.split}: {len(result.query_ids):,} queries",
        caption="\n".join(
            [
                "read: pairs that the cross-encoder read per query, now or before (then they come from the cache)",
                f"retrieve to total: milliseconds per query, many at once{reading}",
                *lines,
            ]
        ),
    )
    for column in ("pipeline", *COLUMNS, "read", *STAGES, "total"):
        table.add_column(column, justify="left" if column == "pipeline" else "right")
    for name, pipeline in result.pipelines.items():
        quality = [f"{100 * pipeline.measures[measure]:.2f}" for measure in COLUMNS]
        times = [f"{pipeline.ms[stage]:.1f}" if stage in pipeline.ms else "" for stage in STAGES]
        table.add_row(name, *quality, f"{pipeline.encodings:.1f}", *times, f"{pipeline.total_ms:.1f}")
    return table


def write_pipeline_runs(folder: Path, result: PipelinesResult, graph: CorpusGraph) -> None:
    """Write one TREC run file per pipeline, ``<dataset>.<pipeline>.trec``."""
    for name, pipeline in result.pipelines.items():
        text = trec_run(result.query_ids, graph.node_ids, pipeline.ranking, tag=name)
        write_text(folder / f"{result.dataset}.{name}.trec", text)
