"""``graphrerank doctor DATA``, ``graphrerank doctor DATA``: does the graph of a corpus help?"""

from dataclasses import replace
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from graphrerank.cli.compose import with_trained_splits
from graphrerank.cli.session import Session
from graphrerank.data.candidates import PreparedDataset, prepare
from graphrerank.data.dataset import RetrievalDataset
from graphrerank.data.readers.auto_splits import TRAIN, VAL
from graphrerank.data.readers.folder import AUTO
from graphrerank.evaluation.build_study import build_study
from graphrerank.evaluation.counterfactual import EDGES, OtherEdges
from graphrerank.evaluation.diagnosis import (
    DRAFTED,
    WITH,
    WITHOUT,
    Diagnosis,
    ceiling_line,
    diagnosis_tables,
    effect_line,
    shape_lines,
    verdict,
)
from graphrerank.evaluation.graph_shape import graph_shape
from graphrerank.evaluation.measuring import judged_queries
from graphrerank.evaluation.minimum_effect import minimum_effect
from graphrerank.evaluation.pooling import DEPTH, chosen_queries, pool_csv
from graphrerank.evaluation.ranked_system import RankedDataset, RankedSystem
from graphrerank.evaluation.rerankers import check_encoder
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.run_json import RETRIEVER
from graphrerank.evaluation.study_plan import StudyPlan
from graphrerank.evaluation.system import System
from graphrerank.evaluation.tables import Table, markdown_table
from graphrerank.evaluation.terminal import print_table
from graphrerank.files import write_json, write_text
from graphrerank.graphs import Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import RerankerManifest

MEASURES = ("nDCG@10", "R@10", "PR@10")
ALL = "all judged questions"
TO_JUDGE, POOLED_QUERIES = "to_judge.csv", 50
REPORT, NUMBERS = "diagnosis.md", "diagnosis.json"


def diagnose(session: Session) -> Path:
    """Say whether the edges of a corpus help a reranker, by its judged questions; without any, write a set to judge.

    Raises:
        ValueError: If the data set cannot be read, or the checkpoint is no graph reranker or reads a cross-encoder.
    """
    cfg = session.cfg
    source = str(cfg.checkpoint)
    checkpoint = load_primary(source)
    session.tracking.reads_checkpoint(source)
    manifest = checkpoint.graph_reranker
    manifests = {source: manifest}
    retriever, _ = session.choose("retriever", manifests, None)
    encoder, _ = session.choose("encoder", manifests, None)
    data, dataset = _read(session, manifest)
    print(f"{dataset.name}: {len(dataset.query_ids):,} questions")
    print("\n".join(shape_lines(graph_shape(dataset.graph))), flush=True)
    if not len(dataset.query_ids):
        print("No questions: write queries.jsonl, and run this again for a set to judge.")
        print("Or judge by drafted questions, which were made along the edges: data.drafted=200.")
        return session.run_dir
    prepared = session.prepare(data, encoder, retriever, reads_vectors=manifest.inputs.reads_vectors)
    torch.set_num_threads(session.num_threads)
    prepared, questions = _one_split(prepared, session.split)
    parts = _Parts(session, manifest, retriever, encoder)
    whole, bare = parts.features(prepared), parts.features(parts.with_graph(prepared, None))
    check_encoder(checkpoint, whole)
    rows = session.systems({WITH: checkpoint.model}, manifest.operators)
    systems = {row.name: row for row in rows}
    if not prepared.dataset.splits:
        return _write_pool(session, whole, bare, systems)
    queries = judged_queries(prepared.dataset, ALL, cfg.num_queries)
    found = _measure(session, parts, (prepared, whole, bare), systems, queries, questions)
    _show(session, found)
    return session.run_dir


def _read(session: Session, manifest: RerankerManifest) -> tuple[DictConfig, RetrievalDataset]:
    """Read the data set; of a folder in which no edges lie, with those that its texts give."""
    cfg, named = session.cfg, str(session.cfg.dataset)
    folder = f"{named.rstrip('/')}/" if Path(named).is_dir() else named
    data = session.group("data", folder) if cfg.data is None else session.chosen("data")
    assert data is not None
    data = with_trained_splits(data, [manifest])
    dataset: RetrievalDataset = instantiate(data)
    has_edges = dataset.graph.edge_types() or dataset.knn
    if not has_edges and "edges" in data and data.edges is None:
        print("no edges are given: those that the texts give are judged (data.edges=auto)")
        data.edges = AUTO
        dataset = instantiate(data)
    return data, dataset


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


class _Parts:
    """The data set with other edges, each with its own candidates."""

    def __init__(
        self, session: Session, manifest: RerankerManifest, retriever: DictConfig, encoder: DictConfig | None
    ) -> None:
        self._manifest, self._cache = manifest, session.cache / "candidates"
        self._build = instantiate(retriever)
        self._encoder = None if encoder is None else session.text_encoder(encoder)

    def features(self, prepared: PreparedDataset) -> PreparedDataset:
        """Return the data with what the model reads."""
        return prepared.with_features(self._manifest.retriever.feature_names)

    def with_graph(self, prepared: PreparedDataset, edge_type: int | None) -> PreparedDataset:
        """Search with the edges of one type alone, or with none."""
        graph = prepared.dataset.graph
        other = graph.without_edges() if edge_type is None else graph.with_types([edge_type])
        dataset = replace(
            prepared.dataset,
            graph=other.with_rows_in_order(),
            knn=0,
            knn_below=None,
            edge_counts={},
            encoded_by=prepared.encoder_fingerprint,
        )
        encoder = None if prepared.encoder_fingerprint is None else self._encoder
        return prepare(dataset, encoder=encoder, build_retriever=self._build, cache=self._cache)


def _measure(
    session: Session,
    parts: _Parts,
    prepared: tuple[PreparedDataset, PreparedDataset, PreparedDataset],
    systems: dict[str, System],
    queries: Tensor,
    questions: str,
) -> Diagnosis:
    """Measure all systems on the judged questions: the data as read, with the model's features, and without edges."""
    plain, whole, bare = prepared
    model, graph = systems[WITH], plain.dataset.graph
    others = OtherEdges(whole, EDGES, seed=session.seed).systems(model)
    rankings = {
        RETRIEVER: rerank(whole, queries, systems[RETRIEVER]),
        "ppr": rerank(whole, queries, systems["ppr"]),
        WITHOUT: rerank(bare, queries, model),
        WITH: rerank(whole, queries, model),
    }
    on_other_edges = {kind: rerank(whole, queries, changed) for kind, changed in others.items()}
    rows = [RankedSystem(name, "operator", name, ranking) for name, ranking in rankings.items()]
    rows[-1] = replace(rows[-1], on_other_edges=on_other_edges)
    plan = StudyPlan(
        session.cfg.measures or MEASURES, session.cfg.tested, resamples=session.cfg.resamples, seed=session.seed
    )
    candidates = plain.ranking.select(queries)
    study = build_study(RankedDataset(plain.dataset, ALL, queries, rows, candidates), plan)
    measure = study.tested[0]
    qrels = plain.dataset.split(ALL)
    types = graph.edge_types()

    def ceiling(ranking: Ranking) -> float:
        return qrels.share_complete(queries, ranking.nodes[queries], num_nodes=graph.num_nodes)

    assert study.ceiling is not None
    assert study.base_ceiling is not None
    values = {name: system.values[measure] for name, system in study.systems.items()}
    return Diagnosis(
        dataset=plain.dataset.name,
        questions=questions,
        measure=measure,
        shape=graph_shape(graph),
        base_ceiling=study.base_ceiling,
        ceiling=study.ceiling,
        ceilings={EDGE_TYPES[number]: ceiling(parts.with_graph(plain, number).ranking) for number in types}
        if len(types) > 1
        else {},
        means={name: study.systems[name].means[measure] for name in study.systems},
        tests=[test for test in study.tests if test.measure == measure],
        counterfactuals=study.counterfactuals,
        edges_of_type=study.edges_of_type,
        minimum=minimum_effect(values[WITH], values[WITHOUT]),
    )


def _show(session: Session, found: Diagnosis) -> None:
    """Print tables and verdict, and write them into the run folder."""
    judged, tables = verdict(found), diagnosis_tables(found)
    for table in tables:
        if table.rows:
            print_table(table, title=table.title)
    lines = [ceiling_line(found), effect_line(found)]
    print("\n".join(lines))
    print(judged.sentence)
    print(f"next: {judged.next_step}")
    sections = [f"# Does the graph of {found.dataset} help?", f"`{session.command}`", judged.sentence]
    listed = [*shape_lines(found.shape), *lines]
    sections += [f"Next: {judged.next_step}", "\n".join(f"- {line}" for line in listed)]
    sections += [_markdown(table) for table in tables if table.rows]
    write_text(session.run_dir / REPORT, "\n\n".join(sections) + "\n")
    write_json(session.run_dir / NUMBERS, found.to_json())


def _markdown(table: Table) -> str:
    rows = [[str(cell) for cell in row] for row in table.rows]
    return f"## {table.title.capitalize()}\n\n{table.caption}\n\n{markdown_table(table.header, rows)}"


def _write_pool(session: Session, whole: PreparedDataset, bare: PreparedDataset, systems: dict[str, System]) -> Path:
    """Without judgements: say how far the graph changes the rankings, and write what to judge."""
    dataset = whole.dataset
    queries = chosen_queries(dataset, session.num_queries or POOLED_QUERIES)
    found = [
        rerank(whole, queries, systems[WITH]),
        rerank(bare, queries, systems[WITH]),
        rerank(whole, queries, systems[RETRIEVER]),
        rerank(whole, queries, systems["ppr"]),
    ]
    tops = [ranking.nodes[:, :DEPTH] for ranking in found[:2]]
    changed = float((tops[0].sort(dim=1).values != tops[1].sort(dim=1).values).any(dim=1).double().mean())
    file = session.run_dir / TO_JUDGE
    text = pool_csv(dataset, queries, found)
    write_text(file, text)
    print("No question is judged, so that ceilings and gains are unknown.")
    print(f"The first {DEPTH} passages are others without the graph for {100 * changed:.0f}% of the questions.")
    print(
        f"next: fill in the column score of {file} (1 relevant, 0 not; {len(queries):,} questions), save it as "
        "qrels/test.csv of the folder, and run this again."
    )
    return session.run_dir
