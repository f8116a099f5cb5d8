"""``graphrerank doctor DATA``: measure whether the graph of a corpus improves reranking."""

from functools import partial
from pathlib import Path

import torch

from graphrerank.cli.command import NONE, CommandContext
from graphrerank.core import Queries
from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.data.folder import AUTO
from graphrerank.data.folder_layout import ACCOUNT
from graphrerank.evaluation.datasets import with_trained_splits
from graphrerank.evaluation.diagnosis import DEPTH, MEASURES, Diagnosis, JudgingSheet, graph_shape, without_edges
from graphrerank.evaluation.diagnosis import diagnose as diagnose_graph
from graphrerank.evaluation.loading import resolve_component
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.permission_leakage import crossing_edges, measure_leakage
from graphrerank.evaluation.records import Counterfactual
from graphrerank.evaluation.report import print_result
from graphrerank.evaluation.tables import print_table, records_table
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.safe_loading import printable, read_json


def diagnose(command: CommandContext) -> Path:
    """Measure on judged questions whether edges improve reranking. Without judgements, write a sheet to judge.

    Args:
        command: Running command.

    Returns:
        Run folder.
    """
    cfg = command.cfg
    source = str(cfg.checkpoint)
    checkpoint = load_primary(source)
    command.tracking.reads_checkpoint(source)
    manifest = checkpoint.graph_reranker
    parts = command.parts
    manifests = {source: manifest}
    retriever = resolve_component(parts, "retriever", command.chosen("retriever"), manifests, None).component
    chosen = NONE if command.choice("encoder") == NONE else command.chosen("encoder")
    encoder = resolve_component(parts, "encoder", chosen, manifests, None).component
    dataset = _read(command, manifest)
    print(f"{dataset.name}: {len(dataset.query_ids):,} questions")
    if (account := Path(str(command.cfg.dataset)) / ACCOUNT).is_file():
        print(printable(str(read_json(account)["account"])))
    print("\n".join(graph_shape(dataset.graph).lines()), flush=True)
    if dataset.graph.is_guarded:
        pairs, crossing = crossing_edges(dataset.graph)
        print(f"principals: {crossing:,} of {pairs:,} edges connect passages with different principals")
    if not len(dataset.query_ids):
        print("The data set has no questions. Write queries.jsonl and repeat the command to get passages to judge.")
        print("Or evaluate on questions that are drafted along the edges: data.drafted=200")
        return command.run_dir
    torch.set_num_threads(parts.num_threads)
    dataset, encodes, build_retriever = parts.load(
        dataset, encoder=encoder, retriever=retriever, reads_vectors=manifest.inputs.reads_vectors
    )
    cache = parts.cache / "candidates"
    search = partial(prepare, encoder=encodes, build_retriever=build_retriever, cache=cache)
    prepared = search(dataset)
    if dataset.graph.is_guarded:
        whole, queries = prepared.dataset, Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors)
        print(f"principals: {measure_leakage(whole, queries, prepared.ranking, build_retriever)}", flush=True)
    outcome = diagnose_graph(
        prepared,
        search(without_edges(prepared)),
        checkpoint,
        EvaluationPlan(list(cfg.measures) or MEASURES, resamples=cfg.resamples, seed=cfg.seed),
        split=cfg.split,
        num_queries=cfg.num_queries,
        device=parts.device,
        run_dir=command.run_dir,
        command=command.line,
    )
    if isinstance(outcome, JudgingSheet):
        show_sheet(outcome)
    else:
        show_diagnosis(outcome)
    return command.run_dir


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """Print the scores, the edge ablations and the verdict.

    Args:
        diagnosis: Result of the measurement.
    """
    result = diagnosis.result
    print_result(result, ties="own")
    if result.counterfactuals:
        print_table(records_table(Counterfactual, result.counterfactuals), title=Counterfactual.TITLE)
    print(diagnosis.verdict.sentence, f"next: {diagnosis.verdict.next_step}", sep="\n")


def show_sheet(sheet: JudgingSheet) -> None:
    """Print instructions for judging the passages of a sheet.

    Args:
        sheet: Sheet of passages to judge.
    """
    print("The questions have no judgements, so the gain from the graph is unknown.")
    print(f"The graph changes the top {DEPTH} passages of {sheet.share_changed:.0%} of the questions.")
    print(
        f"next: fill in the column score of {sheet.path} (1 relevant, 0 not; {sheet.num_queries:,} questions), "
        "save it as qrels/test.csv in the data set folder, and repeat the command."
    )


def _read(command: CommandContext, manifest: RerankerManifest) -> Dataset:
    """Load the data set. Extract edges from the texts if a data set folder has no edges."""
    parts, named = command.parts, str(command.cfg.dataset)
    folder = f"{named.rstrip('/')}/" if Path(named).is_dir() else named
    given = command.chosen("data")
    data = parts.settings("data", folder) if given is None or given.settings is None else given.settings
    data = with_trained_splits(data, [manifest])
    dataset = parts.dataset(data)
    has_edges = dataset.graph.edge_types() or dataset.knn
    if not has_edges and "edges" in data and data.edges is None:
        print("the data set has no edges, so edges are extracted from the texts (data.edges=auto)")
        data.edges = AUTO
        dataset = parts.dataset(data)
    return dataset
