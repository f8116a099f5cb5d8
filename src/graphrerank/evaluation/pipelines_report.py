"""What judging pipelines leaves behind: the table, the same as Markdown, and TREC run files."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from graphrerank.evaluation.judge_pipelines import READING, PipelinesResult
from graphrerank.evaluation.report import trec_run
from graphrerank.evaluation.tables import markdown_table, p_text
from graphrerank.files import write_text
from graphrerank.graphs import CorpusGraph

COLUMNS = ("CR@10", "nDCG@10", "TR")  # few enough for a terminal; `metrics.json` holds all


HEADER = ("pipeline", *COLUMNS, "read", "encode", "rest", "ms")


def pipelines_table(result: PipelinesResult) -> Table:
    """Lay out one data set's results: a row per pipeline, measures in percent, encodings and milliseconds per query."""
    table = Table(title=_title(result), caption="\n".join(_notes(result)))
    for column in HEADER:
        table.add_column(column, justify="left" if column == "pipeline" else "right", no_wrap=True)
    for row in _rows(result):
        table.add_row(*row)
    return table


def render_pipelines(results: Sequence[PipelinesResult]) -> str:
    """Write the tables of all data sets as Markdown, with 95% bootstrap intervals of the measures."""
    parts = ["# Pipelines side by side"]
    for result in results:
        parts += [f"## {_title(result)}", markdown_table(HEADER, _rows(result))]
        ends = [
            [name, *("{:.1f} to {:.1f}".format(*(100 * end for end in one.intervals[column])) for column in COLUMNS)]
            for name, one in result.pipelines.items()
        ]
        parts += ["95% intervals over queries:", markdown_table(["pipeline", *COLUMNS], ends)]
        parts.append("\n".join(f"- {note}" for note in _notes(result)))
    return "\n\n".join(parts) + "\n"


def _title(result: PipelinesResult) -> str:
    return f"{result.dataset} {result.split}: {len(result.query_ids):,} queries"


def _rows(result: PipelinesResult) -> list[list[str]]:
    rows = []
    for name, pipeline in result.pipelines.items():
        quality = [f"{100 * pipeline.measures[measure]:.2f}" for measure in COLUMNS]
        reading = pipeline.ms.get(READING, 0.0)
        numbers = [pipeline.encodings, reading, pipeline.total_ms - reading, pipeline.total_ms]
        rows.append([name, *quality, *(f"{number:.1f}" for number in numbers)])
    return rows


def _notes(result: PipelinesResult) -> list[str]:
    past = "" if result.pair_ms is None else f" ({result.pair_ms:.1f} a pair, measured past the cache)"
    last = list(result.pipelines)[-1]
    notes = [
        "read: pairs that the cross-encoder read per query, now or before (then they come from the cache)",
        f"milliseconds per query, many at once: encode, the cross-encoder's reading{past}; rest, all else",
    ]
    notes += [
        f"{last} against {entry.baseline}: {entry.measure} {100 * entry.difference:+.1f} ({p_text(entry.p_value)})"
        for entry in result.comparisons
    ]
    for name, pipeline in result.pipelines.items():
        if pipeline.routes:
            shares = ", ".join(f"{route} {100 * share:.0f}%" for route, share in pipeline.routes.items())
            notes.append(f"{name}: {shares} of the queries")
    return notes


def write_pipeline_runs(folder: Path, result: PipelinesResult, graph: CorpusGraph) -> None:
    """Write one TREC run file per pipeline, ``<dataset>.<pipeline>.trec``."""
    for name, pipeline in result.pipelines.items():
        text = trec_run(result.query_ids, graph.node_ids, pipeline.ranking, tag=name)
        write_text(folder / f"{result.dataset}.{name}.trec", text)
