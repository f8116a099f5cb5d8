"""TREC run files: those written by an evaluation, and those of others that it reads."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from graphrerank.data.dataset import Dataset
from graphrerank.data.run_retriever import read_run
from graphrerank.evaluation.records import DatasetResult
from graphrerank.files import write_text
from graphrerank.graphs import Ranking

RUN_DEPTH = 1_000  # nodes that are read of a run file, per query


def read_run_file(path: str | Path, dataset: Dataset, split: str, queries: Tensor) -> Ranking:
    """Read the rankings of a run file for some queries, ``[Q]`` int64.

    Returns:
        ``[Q, depth]``; a query that the file does not name is all padding.

    Raises:
        ValueError: As :func:`read_run`, or if the file ranks nothing for any of the queries.
    """
    run = read_run(path, query_ids=dataset.query_ids, node_ids=dataset.graph.node_ids, top_k=RUN_DEPTH)
    ranking = Ranking(run.ranking.nodes[queries], run.ranking.scores[queries])
    if not bool((ranking.nodes >= 0).any()):
        raise ValueError(
            f"{path}: needed a candidate for at least one of the {len(queries)} queries judged of split {split!r} of "
            f"{dataset.name!r}, found none"
        )
    return ranking


def write_runs(folder: Path, result: DatasetResult) -> None:
    """Write one TREC run file per system whose ranking is known, ``<dataset>.<system>.trec``."""
    for name, system in result.systems.items():
        if system.ranking is not None:
            text = trec_run(result.query_ids, result.node_ids, system.ranking, tag=name)
            write_text(folder / f"{result.name}.{name}.trec", text)


def trec_run(query_ids: Sequence[str], node_ids: Sequence[str], ranking: Ranking, *, tag: str) -> str:
    """Write a ranking in TREC's run format: query id, ``Q0``, document id, rank from 1, score, tag."""
    lines = []
    for query_id, nodes, scores in zip(query_ids, ranking.nodes.tolist(), ranking.scores.tolist(), strict=True):
        ranked = [(node, score) for node, score in zip(nodes, scores, strict=True) if node >= 0]
        lines += [
            f"{query_id} Q0 {node_ids[node]} {rank} {score:.9g} {tag}\n" for rank, (node, score) in enumerate(ranked, 1)
        ]
    return "".join(lines)
