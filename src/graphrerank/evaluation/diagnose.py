"""Whether the graph of a corpus helps a reranker: measured on judged questions; without any, what to judge."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.auto_splits import TRAIN, VAL
from graphrerank.evaluation.counterfactual import EDGES, OtherEdges
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.diagnosis import (
    DRAFTED,
    WITH,
    WITHOUT,
    Diagnosis,
    ceiling_line,
    diagnosis_tables,
    effect_line,
    graph_shape,
    minimum_effect,
    shape_lines,
    verdict,
)
from graphrerank.evaluation.measuring import EvaluationPlan, judged_queries
from graphrerank.evaluation.records import RETRIEVER
from graphrerank.evaluation.rerankers import check_encoder, reranking_systems
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, System
from graphrerank.evaluation.tables import Table, markdown_table, print_table
from graphrerank.files import write_json, write_text
from graphrerank.graphs import Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.models.checkpoint import Checkpoint

MEASURES = ("nDCG@10", "R@10", "PR@10")
ALL = "all judged questions"
TO_JUDGE, POOLED_QUERIES = "to_judge.csv", 50
REPORT, NUMBERS = "diagnosis.md", "diagnosis.json"
DEPTH = 10  # of each ranking that is pooled
HEADER = ("query-id", "corpus-id", "score", "query", "text")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute a cell that begins so

Search = Callable[[Dataset], PreparedDataset]  # prepares a data set with the same encoder and retriever


def diagnose(
    prepared: PreparedDataset,
    checkpoint: Checkpoint,
    search: Search,
    *,
    split: str = "test",
    num_queries: int | None = None,
    measures: Sequence[str] = MEASURES,
    tested: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
    device: torch.device | None = None,
    run_dir: Path,
    command: str = "",
) -> Diagnosis | None:
    """Measure whether the edges of a corpus help a reranker, print the verdict, and write both into a folder.

    Args:
        prepared: The data set, with candidates found along its edges.
        checkpoint: The reranker.
        search: Prepares the same data set with other edges.
        split: The split whose judgements count; if there is none of that name, all judgements do.
        num_queries: Questions, the first ones by id; None: all.
        measures: Names of measures.
        tested: Those that are tested; the verdict is on the first.
        resamples: Sign flips of a test, and samples of a bootstrap.
        seed: Of resampling and of shuffled edges.
        device: Where the model runs; None: the CPU.
        run_dir: The folder.
        command: The command, for the report.

    Returns:
        What was measured; None where nothing is judged: then the folder has a file with passages to judge.

    Raises:
        ValueError: If the reranker was trained on vectors of another encoder.
    """
    prepared, questions = _one_split(prepared, split)
    names = checkpoint.reranker.retriever.feature_names
    whole = prepared.with_features(names)
    bare = search(with_edges(prepared, None)).with_features(names)
    check_encoder(checkpoint, whole)
    rows = reranking_systems(
        {WITH: checkpoint.model}, checkpoint.reranker.operators, device=device or torch.device("cpu")
    )
    systems = {row.name: row for row in rows}
    if not prepared.dataset.splits:
        _write_pool(run_dir, whole, bare, systems, num_queries)
        return None
    queries = judged_queries(prepared.dataset, ALL, num_queries)
    plan = EvaluationPlan(measures, tested, resamples=resamples, seed=seed)
    found = _measure(prepared, whole, bare, search, systems, queries, questions, plan)
    _show(found, run_dir, command)
    return found


def _one_split(prepared: PreparedDataset, split: str) -> tuple[PreparedDataset, str]:
    """Keep the judgements of a split, else all of them, as one; say which."""
    dataset = prepared.dataset
    if not dataset.splits:
        return prepared, ALL
    others = {name: qrels for name, qrels in dataset.splits.items() if not (dataset.drafted and name in (TRAIN, VAL))}
    if split in dataset.splits:
        questions, judged = f"split {split}", dataset.splits[split]
    else:
        questions, judged = (ALL if others else DRAFTED), replace(dataset, splits=others or dataset.splits).merged()
    single = replace(dataset, splits={ALL: judged}, known_fingerprint=dataset.fingerprint)
    return replace(prepared, dataset=single), questions


def with_edges(prepared: PreparedDataset, edge_type: int | None) -> Dataset:
    """Return a data set with the edges of one type alone, or with none; its vectors stay."""
    graph = prepared.dataset.graph
    other = graph.without_edges() if edge_type is None else graph.with_types([edge_type])
    return replace(
        prepared.dataset,
        graph=other.with_rows_in_order(),
        knn=0,
        knn_below=None,
        edge_counts={},
        encoded_by=prepared.encoder_fingerprint,
    )


def _measure(
    prepared: PreparedDataset,
    whole: PreparedDataset,
    bare: PreparedDataset,
    search: Search,
    systems: Mapping[str, System],
    queries: Tensor,
    questions: str,
    plan: EvaluationPlan,
) -> Diagnosis:
    """Measure all systems: on the data as read, with the model's features (``whole``), and without edges (``bare``)."""
    model, graph = systems[WITH], prepared.dataset.graph
    others = OtherEdges(whole, EDGES, seed=plan.seed).systems(model)
    rankings = {
        RETRIEVER: rerank(whole, queries, systems[RETRIEVER]),
        "ppr": rerank(whole, queries, systems["ppr"]),
        WITHOUT: rerank(bare, queries, model),
        WITH: rerank(whole, queries, model),
    }
    on_other_edges = {kind: rerank(whole, queries, changed) for kind, changed in others.items()}
    rows = [RankedSystem(name, "operator", name, ranking) for name, ranking in rankings.items()]
    rows[-1] = replace(rows[-1], on_other_edges=on_other_edges)
    candidates = prepared.ranking.select(queries)
    result = measure_systems(RankedDataset(prepared.dataset, ALL, queries, rows, candidates), plan)
    measure = result.tested[0]
    qrels = prepared.dataset.split(ALL)
    types = graph.edge_types()

    def ceiling(ranking: Ranking) -> float:
        return qrels.share_complete(queries, ranking.nodes[queries], num_nodes=graph.num_nodes)

    assert result.ceiling is not None
    assert result.base_ceiling is not None
    values = {name: system.values[measure] for name, system in result.systems.items()}
    return Diagnosis(
        dataset=prepared.dataset.name,
        questions=questions,
        measure=measure,
        shape=graph_shape(graph),
        base_ceiling=result.base_ceiling,
        ceiling=result.ceiling,
        ceilings={EDGE_TYPES[number]: ceiling(search(with_edges(prepared, number)).ranking) for number in types}
        if len(types) > 1
        else {},
        means={name: result.systems[name].means[measure] for name in result.systems},
        tests=[test for test in result.tests if test.measure == measure],
        counterfactuals=result.counterfactuals,
        edges_of_type=result.edges_of_type,
        minimum=minimum_effect(values[WITH], values[WITHOUT]),
    )


def _show(found: Diagnosis, run_dir: Path, command: str) -> None:
    """Print tables and verdict, and write them into the run folder."""
    judged, tables = verdict(found), diagnosis_tables(found)
    for table in tables:
        if table.rows:
            print_table(table, title=table.title)
    lines = [ceiling_line(found), effect_line(found)]
    print("\n".join(lines))
    print(judged.sentence)
    print(f"next: {judged.next_step}")
    sections = [f"# Does the graph of {found.dataset} help?", f"`{command}`", judged.sentence]
    listed = [*shape_lines(found.shape), *lines]
    sections += [f"Next: {judged.next_step}", "\n".join(f"- {line}" for line in listed)]
    sections += [_markdown(table) for table in tables if table.rows]
    write_text(run_dir / REPORT, "\n\n".join(sections) + "\n")
    write_json(run_dir / NUMBERS, found.to_json())


def _markdown(table: Table) -> str:
    rows = [[str(cell) for cell in row] for row in table.rows]
    return f"## {table.title.capitalize()}\n\n{table.caption}\n\n{markdown_table(table.header, rows)}"


def _write_pool(
    run_dir: Path,
    whole: PreparedDataset,
    bare: PreparedDataset,
    systems: Mapping[str, System],
    num_queries: int | None,
) -> None:
    """Without judgements: print how far the graph changes the rankings, and write passages to judge."""
    dataset = whole.dataset
    queries = chosen_queries(dataset, num_queries or POOLED_QUERIES)
    found = [
        rerank(whole, queries, systems[WITH]),
        rerank(bare, queries, systems[WITH]),
        rerank(whole, queries, systems[RETRIEVER]),
        rerank(whole, queries, systems["ppr"]),
    ]
    tops = [ranking.nodes[:, :DEPTH] for ranking in found[:2]]
    changed = float((tops[0].sort(dim=1).values != tops[1].sort(dim=1).values).any(dim=1).double().mean())
    file = run_dir / TO_JUDGE
    text = pool_csv(dataset, queries, found)
    write_text(file, text)
    print("No question is judged, so that ceilings and gains are unknown.")
    print(f"The first {DEPTH} passages are others without the graph for {100 * changed:.0f}% of the questions.")
    print(
        f"next: fill in the column score of {file} (1 relevant, 0 not; {len(queries):,} questions), save it as "
        "qrels/test.csv of the folder, and run this again."
    )


def pool_csv(dataset: Dataset, queries: Tensor, rankings: Sequence[Ranking], *, depth: int = DEPTH) -> str:
    """Write the passages that any ranking has among its first as CSV, with an empty score to fill in.

    Source: the pooling of Spärck Jones and van Rijsbergen, "Report on the Need for and Provision of an 'Ideal'
    Information Retrieval Test Collection", 1975. A query's passages come in the order of a hash.

    Args:
        dataset: Corpus and queries.
        queries: ``[Q]`` int64, the rows of the rankings.
        rankings: ``[Q, K]`` each.
        depth: Passages of each ranking.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    pooled = torch.cat([ranking.nodes[:, :depth].cpu() for ranking in rankings], dim=1)
    for query, row in zip(queries.tolist(), pooled.tolist(), strict=True):
        query_id, query_text = dataset.query_ids[query], dataset.query_texts[query]
        ids = {node: dataset.graph.node_ids[node] for node in row if node >= 0}
        for node in sorted(ids, key=lambda node: hash_texts([query_id, ids[node]])):
            shown = (_shown(query_text), _shown(dataset.graph.texts[node]))
            writer.writerow([query_id, ids[node], "", *shown])
    return text.getvalue()


def chosen_queries(dataset: Dataset, count: int) -> Tensor:
    """Choose queries by the hash of their ids: ``[Q]`` int64, ascending; all if there are fewer."""
    by_hash = sorted(range(len(dataset.query_ids)), key=lambda query: hash_texts([dataset.query_ids[query]]))
    return torch.tensor(sorted(by_hash[:count]), dtype=torch.int64)


def _shown(text: str) -> str:
    """Keep a spreadsheet from reading a text as a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
