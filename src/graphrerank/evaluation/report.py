"""What a run leaves behind: the table, ``metrics.json`` and TREC run files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from graphrerank.evaluation.judge import DatasetResult
from graphrerank.evaluation.judge_pipelines import PipelinesResult
from graphrerank.evaluation.tables import ROW_NAMES, p_text
from graphrerank.files import write_json, write_text
from graphrerank.graphs import CorpusGraph, Ranking

COLUMNS = ("PR@5", "PR@10", "R@2", "R@5", "R@10", "nDCG@10")
HEADER = ("system", *COLUMNS, "p50 ms", "p95 ms")


def results_table(result: DatasetResult) -> Table:
    """Lay out one data set's results: a row per system, measures in percent, latency in milliseconds."""
    queries = f"{len(result.query_ids):,} queries"
    before = "" if result.base_ceiling == result.ceiling else f" ({100 * result.base_ceiling:.2f} before expansion)"
    ceiling = f"ceiling of PR {100 * result.ceiling:.2f}{before}: all relevant are candidates"
    table = Table(
        title=f"{result.dataset} {result.split}: {queries}, {result.top_k} candidates",
        caption="\n".join([ceiling, *comparison_lines(result)]),
    )
    for column in HEADER:
        table.add_column(column, justify="left" if column == "system" else "right")
    for row in table_rows(result):
        table.add_row(*row)
    return table


def table_rows(result: DatasetResult) -> list[list[str]]:
    """Return the table's rows as text."""
    rows = []
    for name, system in result.systems.items():
        measures = [f"{100 * system.measures[column]:.2f}" for column in COLUMNS]
        latency = [f"{system.latency_ms[key]:.2f}" for key in ("p50", "p95")]
        rows.append([ROW_NAMES.get(name, name), *measures, *latency])
    return rows


def comparison_lines(result: DatasetResult) -> list[str]:
    """Say in one line per baseline how much the last system is ahead, in points, and how likely by chance."""
    lines: dict[str, list[str]] = {}
    for entry in result.comparisons:
        text = f"{entry.measure} {100 * entry.difference:+.1f} ({p_text(entry.p_value)})"
        lines.setdefault(entry.baseline, []).append(text)
    names = list(result.systems)
    return [
        f"{ROW_NAMES.get(names[-1], names[-1])} against {ROW_NAMES[name]}: {', '.join(texts)}"
        for name, texts in lines.items()
    ]


def write_metrics(path: Path, results: Sequence[DatasetResult | PipelinesResult], **extra: Any) -> None:
    """Write ``metrics.json``: ``datasets`` by name, and whatever else the run measured."""
    content = {"datasets": {result.dataset: result.to_json() for result in results}, **extra}
    write_json(path, content)


def write_trec_runs(folder: Path, result: DatasetResult, graph: CorpusGraph) -> None:
    """Write one TREC run file per system, ``<dataset>.<system>.trec``."""
    for name, system in result.systems.items():
        text = trec_run(result.query_ids, graph.node_ids, system.ranking, tag=name)
        write_text(folder / f"{result.dataset}.{name}.trec", text)


def trec_run(query_ids: Sequence[str], node_ids: Sequence[str], ranking: Ranking, *, tag: str) -> str:
    r"""Write a ranking in TREC's run format: query id, ``Q0``, document id, rank from 1, score, tag.

    Example:
        >>> import torch
        >>> ranking = Ranking(torch.tensor([[1, -1]]), torch.tensor([[0.5, -torch.inf]]))
        >>> trec_run(["q"], ["a", "b"], ranking, tag="base")
        'q Q0 b 1 0.5 base\n'
    """
    lines = []
    for query_id, nodes, scores in zip(query_ids, ranking.nodes.tolist(), ranking.scores.tolist(), strict=True):
        ranked = [(node, score) for node, score in zip(nodes, scores, strict=True) if node >= 0]
        lines += [
            f"{query_id} Q0 {node_ids[node]} {rank} {score:.9g} {tag}\n" for rank, (node, score) in enumerate(ranked, 1)
        ]
    return "".join(lines)
