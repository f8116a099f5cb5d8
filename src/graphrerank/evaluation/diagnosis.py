"""Estimate whether the graph of a corpus improves reranking. Without judgements, export passages to judge."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.judgements import TRAIN, VAL
from graphrerank.evaluation.ablations import EDGE_ABLATIONS, SHUFFLED, WITHOUT_TYPE, EdgeAblation
from graphrerank.evaluation.baselines import rank_fusion_system, reranking_systems
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.decision import MIN_GAIN, Decision, decide
from graphrerank.evaluation.encoder_checks import check_encoder
from graphrerank.evaluation.measuring import EvaluationPlan, judged_queries
from graphrerank.evaluation.records import DatasetResult, to_plain
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.significance import ALPHA
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, System
from graphrerank.evaluation.tables import p_text, points_cell
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.files import write_json, write_text

MIN_TRAINING = 50  # smallest number of own questions that are worth dividing into training and test questions
WITH, WITHOUT = "with the graph", "without the graph"  # rows of the reranker
ALL = "all judged questions"  # name of the single split that is evaluated
DRAFTED = "drafted questions"  # generated questions, most of them along edges of the graph
MEASURES = ("PR@10", "R@10", "nDCG@10")
POOLED_QUERIES, DEPTH = 50, 10  # number of questions to judge, and number of passages from each ranking
HEADER = ("query-id", "corpus-id", "score", "query", "text")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets evaluate a cell that begins with one of these as a formula


@dataclass(frozen=True)
class TypeDensity:
    """Number and density of the edges of one type in a corpus.

    Attributes:
        edges: Name of the edge type, one of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`.
        pairs: Number of undirected edges. Passages that share several entities have one edge per entity.
        mean_neighbours: Mean number of neighbours of a passage by edges of this type.
        share_joined: Fraction of passages with at least one edge of this type.
    """

    edges: str
    pairs: int
    mean_neighbours: float
    share_joined: float


@dataclass(frozen=True)
class GraphShape:
    """Size and density of a corpus graph.

    Attributes:
        num_passages: Number of passages.
        types: Densities of the edge types that occur in the corpus.
        share_isolated: Fraction of passages without any edge.
    """

    num_passages: int
    types: tuple[TypeDensity, ...]
    share_isolated: float

    def lines(self) -> list[str]:
        """Return sentences that describe the density of the graph."""
        listed = [
            f"{entry.edges}: {entry.pairs:,} edges, {entry.mean_neighbours:.2f} neighbours of a passage, "
            f"{entry.share_joined:.1%} of the passages have one"
            for entry in self.types
        ]
        passages = f"{self.num_passages:,} passages, {self.share_isolated:.1%} without an edge"
        return [*(listed or ["no edges"]), passages]


def graph_shape(graph: CorpusGraph) -> GraphShape:
    """Measure the density of a corpus graph, including edges by shared entities.

    Args:
        graph: Corpus graph.

    Returns:
        Densities per edge type, and the fraction of isolated passages.

    Example:
        >>> shape = graph_shape(CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 1], [1, 2]])))
        >>> shape.types, shape.share_isolated
        ((TypeDensity(edges='other', pairs=2, mean_neighbours=1.0, share_joined=0.75),), 0.25)
    """
    graph, types = graph.to("cpu"), []
    for number in graph.edge_types():
        count = graph.with_types([number]).num_neighbours.double()
        share = float((count > 0).double().mean())
        types.append(TypeDensity(EDGE_TYPES[number], int(count.sum()) // 2, float(count.mean()), share))
    return GraphShape(graph.num_nodes, tuple(types), float((graph.num_neighbours == 0).double().mean()))


@dataclass(frozen=True)
class GraphVerdict:
    """Answer to the question whether the graph improves the ranking.

    Attributes:
        kind: One of ``helps``, ``helps, as other edges do``, ``hurts``, ``no help``, ``unclear`` and ``drafted``.
        sentence: Answer with numbers.
        next_step: Recommended next step.
    """

    kind: str
    sentence: str
    next_step: str


def verdict(result: DatasetResult, questions: str) -> GraphVerdict:
    """Decide whether the graph improves the first tested measure.

    The decision is based on paired randomisation tests at the level 0.05. If the difference is not significant, the
    confidence interval decides between ``no help`` and ``unclear``.

    Args:
        result: Scores with the graph, without the graph, and with edge ablations.
        questions: Description of the evaluated questions. ``DRAFTED`` marks generated questions.

    Returns:
        Verdict with a recommended next step.
    """
    measure = result.tested[0]
    test = next(test for test in result.tests if (test.baseline, test.measure) == (WITHOUT, measure))
    amount = f"{measure} {points_cell(test.difference, test.interval)}, {p_text(test.p_randomization)}"
    if questions == DRAFTED:
        return GraphVerdict(
            "drafted",
            f"On drafted questions the graph changes {amount}. Most of them were drafted along its edges, so that it "
            "is bound to help: this says that the edges can be used, not that your users need them.",
            "Judge about 15 questions of your own (graphrerank judge DATA), and run this again.",
        )
    if test.p_randomization < ALPHA:
        return _hurts(result, amount) if test.difference < 0 else _helps(result, measure, amount)
    if test.interval[1] < MIN_GAIN:
        sentence = f"The graph does not help noticeably: {amount}, with {test.num_queries:,} questions."
        return GraphVerdict("no help", sentence, _other_edges(result))
    return GraphVerdict(
        "unclear",
        f"{test.num_queries:,} questions do not tell whether the graph helps: {amount}.",
        f"Judge more questions (graphrerank judge DATA), or take other edges. {_other_edges(result)}",
    )


def _training(result: DatasetResult) -> str:
    """Return the advice to train, on own questions if there are enough of them, and on drafted ones otherwise."""
    if len(result.query_ids) >= MIN_TRAINING:
        return "train on your own questions (graphrerank train ... data.splits=auto)"
    return "train on drafted questions (graphrerank train experiment=fine_tune ... data.drafted=1500)"


def _harmful_types(result: DatasetResult) -> list[str]:
    """Return the edge types whose removal improves the ranking significantly, the most harmful first."""
    harmful = sorted(
        (change.difference, change.edges.removeprefix(WITHOUT_TYPE))
        for change in result.counterfactuals
        if change.edges.startswith(WITHOUT_TYPE) and change.difference < 0 and change.p_randomization < ALPHA
    )
    return [name for _, name in harmful]


def _hurts(result: DatasetResult, amount: str) -> GraphVerdict:
    step = "Search without it (retriever=hybrid), or train on your questions, so that the model learns its edges."
    if harmful := _harmful_types(result):
        step = f"Leave out the edges of type {harmful[0]} first, which cost most."
    return GraphVerdict("hurts", f"The graph hurts: {amount}.", step)


def _helps(result: DatasetResult, measure: str, amount: str) -> GraphVerdict:
    shuffled = next((change for change in result.counterfactuals if change.edges == SHUFFLED), None)
    if shuffled is not None and not (shuffled.difference > 0 and shuffled.p_randomization < ALPHA):
        return GraphVerdict(
            "helps, as other edges do",
            f"The graph helps ({amount}), but not by which passages it joins: with shuffled edges among the same "
            f"candidates {measure} is {points_cell(shuffled.difference)} lower, "
            f"{p_text(shuffled.p_randomization)}.",
            f"Expansion brings the gain; {_training(result)} to use the edges.",
        )
    step = f"Keep the graph, and {_training(result)}, if that pays on your questions."
    if harmful := _harmful_types(result):
        step = f"Leave out the edges of type {', '.join(harmful)}, without which the ranking is better."
    return GraphVerdict("helps", f"The graph helps: {amount}.", step)


def _other_edges(result: DatasetResult) -> str:
    before, after = result.base_ceiling or 0.0, result.ceiling or 0.0
    if after >= before + MIN_GAIN:
        return (
            f"Expansion finds more (all that is relevant among the candidates for {after:.1%} of the questions, "
            f"{before:.1%} before), and the ranking does not use it: {_training(result)}."
        )
    return (
        "The edges do not lead to relevant passages that the search misses: try others (data.edges=auto, "
        "data.mentions, data.entities; docs/your_data.md), or search without any."
    )


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Evaluation of a reranker with and without the graph.

    Attributes:
        questions: Description of the evaluated questions: a split, all judged questions, or drafted questions.
        result: Scores, significance tests and edge ablations.
        verdict: Answer to the question whether the graph improves the ranking.
        decision: Answer to the question which system to deploy.
    """

    questions: str
    result: DatasetResult
    verdict: GraphVerdict
    decision: Decision

    def save(self, run_dir: Path, *, command: str, graph: CorpusGraph, resamples: int) -> None:
        """Write ``diagnosis.json`` and the files of an evaluation.

        Args:
            run_dir: Folder for the files.
            command: Command line, for the report.
            graph: Corpus graph, whose density is reported.
            resamples: Number of random sign flips and of bootstrap samples, for the report.
        """
        name = self.result.name
        EvaluationResult(command, {name: self.result}, settings={"resamples": resamples}).save(run_dir)
        content = {"dataset": name, "questions": self.questions, "num_queries": len(self.result.query_ids)}
        content |= {"shape": graph_shape(graph), "verdict": self.verdict, "decision": self.decision}
        write_json(run_dir / "diagnosis.json", to_plain(content))


@dataclass(frozen=True)
class JudgingSheet:
    """Sheet of passages to judge, written for data sets without judgements.

    Attributes:
        path: CSV file with an empty column ``score``.
        num_queries: Number of questions in the file.
        share_changed: Fraction of questions whose top ``DEPTH`` passages change if the graph is removed.
    """

    path: Path
    num_queries: int
    share_changed: float


def diagnose(
    prepared: PreparedDataset,
    bare: PreparedDataset,
    checkpoint: Checkpoint,
    plan: EvaluationPlan,
    *,
    split: str,
    num_queries: int | None,
    device: torch.device,
    run_dir: Path,
    command: str,
    name: str = "base",
) -> Diagnosis | JudgingSheet:
    """Measure whether the edges of a corpus improve a reranker, and write the results to a folder.

    Args:
        prepared: Data set with candidates.
        bare: The same data set without edges (:func:`without_edges`), with candidates found without edges.
        checkpoint: Checkpoint of the reranker.
        plan: Measures and significance tests. The verdict is based on the first tested measure.
        split: Split whose judgements are used. If the data set does not have it, all judgements are used.
        num_queries: Number of questions. If None, all judged questions are evaluated, or 50 questions are selected for
            the sheet.
        device: Device of the model.
        run_dir: Folder for the files.
        command: Command line, for the report.
        name: Name of the reranker in the decision.

    Returns:
        Diagnosis, or a sheet of passages to judge if the data set has no judgements.

    Raises:
        UserError: If the data set was encoded with another encoder than the checkpoint requires.
    """
    prepared, questions = _one_split(prepared, split)
    dataset = prepared.dataset
    names = checkpoint.reranker.retriever.feature_names
    whole, bare = prepared.with_features(names), bare.with_features(names)
    check_encoder(checkpoint, whole)
    systems = diagnosed_systems(checkpoint, whole, prepared.feature_names, device=device)
    if not dataset.splits:
        queries = chosen_queries(dataset, num_queries)
        return write_judging_sheet(dataset, queries, rank_both_ways(whole, bare, queries, systems), run_dir)
    queries = judged_queries(dataset, ALL, num_queries)
    ranked = [
        RankedSystem(name, "operator", name, ranking)
        for name, ranking in rank_both_ways(whole, bare, queries, systems).items()
    ]
    variants = EdgeAblation(whole, EDGE_ABLATIONS, seed=plan.seed).systems(systems[WITH])
    ablated = {kind: rerank(whole, queries, variant) for kind, variant in variants.items()}
    ranked[-1] = replace(ranked[-1], on_other_edges=ablated)
    result = measure_systems(RankedDataset(dataset, ALL, queries, ranked, prepared.ranking.select(queries)), plan)
    result = replace(result, drafted=questions == DRAFTED)
    decision = decide(result, names=system_names(name), resamples=plan.resamples, seed=plan.seed)
    diagnosis = Diagnosis(questions, result, verdict(result, questions), decision)
    diagnosis.save(run_dir, command=command, graph=dataset.graph, resamples=plan.resamples)
    return diagnosis


def diagnosed_systems(
    checkpoint: Checkpoint, prepared: PreparedDataset, retriever_features: Sequence[str], *, device: torch.device
) -> dict[str, System]:
    """Build the systems of a diagnosis.

    Args:
        checkpoint: Checkpoint of the reranker.
        prepared: Data set with the features of the checkpoint.
        retriever_features: Names of the features that the retriever returns.
        device: Device of the model.

    Returns:
        The retriever, PPR, GCS, a fusion of ranks if the retriever returns scores of BM25 and of dense search, and the
        reranker under the key ``WITH``.
    """
    operators = checkpoint.reranker.operators
    fusion = rank_fusion_system(operators, prepared.feature_names, retriever_features)
    scorers = [] if fusion is None else [fusion]
    rows = reranking_systems({WITH: checkpoint.model}, operators, device=device, scorers=scorers)
    return {row.name: row for row in rows}


def system_names(name: str) -> dict[str, str]:
    """Return the names of the reranker's rows in sentences.

    Args:
        name: Name of the reranker.

    Returns:
        Names by row, with and without edges.
    """
    return {WITH: f"`{name}`", WITHOUT: f"`{name}` without edges"}


def rank_both_ways(
    whole: PreparedDataset, bare: PreparedDataset, queries: Tensor, systems: Mapping[str, System]
) -> dict[str, Ranking]:
    """Rank questions with and without the graph.

    Args:
        whole: Data set with its edges.
        bare: The same data set without edges.
        queries: Indices of the questions, ``[Q]`` int64.
        systems: Untrained systems, and the reranker under the key ``WITH``.

    Returns:
        Rankings ``[Q, K]`` of the untrained systems, and of the reranker without and with the graph.
    """
    untrained = {name: rerank(whole, queries, system) for name, system in systems.items() if name != WITH}
    return {
        **untrained,
        WITHOUT: rerank(bare, queries, systems[WITH]),
        WITH: rerank(whole, queries, systems[WITH]),
    }


def write_judging_sheet(
    dataset: Dataset, queries: Tensor, rankings: Mapping[str, Ranking], run_dir: Path
) -> JudgingSheet:
    """Write the passages to judge to the file ``to_judge.csv``.

    Args:
        dataset: Data set without judgements.
        queries: Indices of the questions, ``[Q]`` int64.
        rankings: Rankings ``[Q, K]`` (:func:`rank_both_ways`).
        run_dir: Folder for the file.

    Returns:
        Path of the sheet, with statistics.
    """
    top, top_without = (rankings[name].nodes[:, :DEPTH].sort(dim=1).values for name in (WITH, WITHOUT))
    path = run_dir / "to_judge.csv"
    write_text(path, pool_csv(dataset, queries, list(rankings.values())))
    return JudgingSheet(path, len(queries), float((top != top_without).any(dim=1).double().mean()))


def _one_split(prepared: PreparedDataset, split: str) -> tuple[PreparedDataset, str]:
    """Return the data set with a single split, and a description of this split.

    The split contains the judgements of the requested split, or all judgements if there is no such split.
    """
    dataset = prepared.dataset
    if not dataset.splits:
        return prepared, ALL
    others = {name: qrels for name, qrels in dataset.splits.items() if not (dataset.drafted and name in (TRAIN, VAL))}
    if split in dataset.splits:
        questions = f"split {split}"
        judged = dataset.splits[split]
    else:
        questions = ALL if others else DRAFTED
        judged = replace(dataset, splits=others or dataset.splits).merged()
    single = replace(dataset, splits={ALL: judged}, known_fingerprint=dataset.fingerprint)
    return replace(prepared, dataset=single), questions


def without_edges(prepared: PreparedDataset) -> Dataset:
    """Return a data set without edges. Its vectors are kept.

    Args:
        prepared: Data set with encoded texts.
    """
    return replace(
        prepared.dataset,
        graph=prepared.dataset.graph.without_edges().with_rows_in_order(),
        knn=0,
        knn_below=None,
        edge_counts={},
        encoded_by=prepared.encoder_fingerprint,
    )


def pool_csv(dataset: Dataset, queries: Tensor, rankings: Sequence[Ranking], *, depth: int = DEPTH) -> str:
    """Pool the top passages of several rankings into a CSV file with an empty score column to fill in.

    The passages of a query are sorted by a hash, so that their order does not reveal the rankings.

    Source: the pooling of Spärck Jones and van Rijsbergen, "Report on the Need for and Provision of an 'Ideal'
    Information Retrieval Test Collection", 1975.

    Args:
        dataset: Data set with the texts.
        queries: Indices of the queries, ``[Q]`` int64.
        rankings: Rankings ``[Q, K]`` of these queries.
        depth: Number of top passages to take from each ranking.

    Returns:
        Content of the CSV file.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    pooled = torch.cat([ranking.nodes[:, :depth].cpu() for ranking in rankings], dim=1)
    for query, row in zip(queries.tolist(), pooled.tolist(), strict=True):
        query_id = dataset.query_ids[query]
        query_text = dataset.query_texts[query]
        ids = {node: dataset.graph.node_ids[node] for node in row if node >= 0}
        for node in sorted(ids, key=lambda node: hash_texts([query_id, ids[node]])):
            texts = [_without_formula(text) for text in (query_text, dataset.graph.texts[node])]
            writer.writerow([query_id, ids[node], "", *texts])
    return text.getvalue()


def _without_formula(text: str) -> str:
    """Return a text that spreadsheets do not evaluate as a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def chosen_queries(dataset: Dataset, count: int | None = None) -> Tensor:
    """Select queries by the hash of their ids, so that the selection is random but reproducible.

    Args:
        dataset: Data set with the queries.
        count: Number of queries. If None, ``POOLED_QUERIES``.

    Returns:
        Indices of the queries, ``[Q]`` int64, ascending.
    """
    by_hash = sorted(range(len(dataset.query_ids)), key=lambda query: hash_texts([dataset.query_ids[query]]))
    return torch.tensor(sorted(by_hash[: count or POOLED_QUERIES]), dtype=torch.int64)
