"""``graphrerank doctor DATA``: measure whether the graph of a corpus improves reranking."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig

from graphrerank.cli.command import CommandContext
from graphrerank.core import Queries
from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.data.folder import AUTO
from graphrerank.data.folder_layout import ACCOUNT
from graphrerank.evaluation.baselines import RANK_FUSION
from graphrerank.evaluation.datasets import with_trained_splits
from graphrerank.evaluation.decision import DEPLOY, KEEP, Decision
from graphrerank.evaluation.diagnosis import (
    DEPTH,
    MEASURES,
    WITHOUT,
    Diagnosis,
    JudgingSheet,
    graph_shape,
    without_edges,
)
from graphrerank.evaluation.diagnosis import diagnose as diagnose_graph
from graphrerank.evaluation.loading import resolve_component
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.permission_leakage import crossing_edges, measure_leakage
from graphrerank.evaluation.plan import short_names
from graphrerank.evaluation.records import RETRIEVER, Counterfactual
from graphrerank.evaluation.report import print_result
from graphrerank.evaluation.tables import print_table, records_table
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.safe_loading import printable, read_json

#: Settings of a data set without edges.
NO_EDGES = ("data.edges=[]", "data.entities=null")
#: Settings of ``graphrerank serve`` that serve a row other than the reranker with the graph.
PIPELINES = {
    RETRIEVER: " pipeline=vector_search retriever=hybrid",
    "ppr": " pipeline=rerank_ppr",
    "gcs": " pipeline=rerank_gcs",
    RANK_FUSION: " pipeline=rerank_fusion",
}


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
    retriever, encoder = search_components(command, manifest)
    dataset = read_dataset_with_edges(command, manifest)
    show_dataset(dataset, Path(str(cfg.dataset)))
    if not len(dataset.query_ids):
        show_no_questions(str(cfg.dataset))
        return command.run_dir
    torch.set_num_threads(parts.num_threads)
    dataset, text_encoder, build_retriever = parts.load(
        dataset, encoder=encoder, retriever=retriever, reads_vectors=manifest.inputs.reads_vectors
    )
    cache = parts.cache / "candidates"
    search = partial(prepare, encoder=text_encoder, build_retriever=build_retriever, cache=cache)
    prepared = search(dataset)
    if dataset.graph.is_guarded:
        queries = Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors)
        leakage = measure_leakage(prepared.dataset, queries, prepared.ranking, build_retriever)
        print(f"principals: {leakage}", flush=True)
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
        name=short_names([source])[0],
    )
    if isinstance(outcome, JudgingSheet):
        show_sheet(outcome, str(cfg.dataset))
    else:
        settings = data_settings(prepared.dataset)
        show_diagnosis(outcome, next_command(outcome.decision, str(cfg.dataset), source, settings))
    return command.run_dir


def show_dataset(dataset: Dataset, folder: Path) -> None:
    """Print the number of questions, the account of an indexed folder, and the shape of the graph.

    Args:
        dataset: Data set that was loaded.
        folder: Folder of the data set, which need not exist.
    """
    print(f"{dataset.name}: {len(dataset.query_ids):,} questions")
    account = folder / ACCOUNT
    if account.is_file():
        print(printable(str(read_json(account)["account"])))
    print("\n".join(graph_shape(dataset.graph).lines()), flush=True)
    if dataset.graph.is_guarded:
        pairs, crossing = crossing_edges(dataset.graph)
        print(f"principals: {crossing:,} of {pairs:,} edges connect passages with different principals")


def show_no_questions(dataset: str) -> None:
    """Print the next steps for a data set without questions.

    Args:
        dataset: Name or path of the data set.
    """
    print("The data set has no questions, so it is unknown which system ranks its passages best.")
    print(f"next: graphrerank judge {dataset}    # about 15 questions of your own, in the browser")
    print(
        f"or: graphrerank doctor {dataset} data.drafted=200    # drafted questions, which show whether edges can be "
        "used, not what users need"
    )


def show_diagnosis(diagnosis: Diagnosis, next_step: str) -> None:
    """Print the scores, the edge ablations, the verdict on the graph, and the decision.

    Args:
        diagnosis: Result of the measurement.
        next_step: Command that follows from the decision (:func:`next_command`).
    """
    result = diagnosis.result
    print_result(result, ties="own")
    if result.counterfactuals:
        print_table(records_table(Counterfactual, result.counterfactuals), title=Counterfactual.TITLE)
    print(diagnosis.verdict.sentence, f"  {diagnosis.verdict.next_step}", sep="\n")
    print("", diagnosis.decision.sentence, f"next: {next_step}", sep="\n")


def data_settings(dataset: Dataset) -> list[str]:
    """Return the settings of the data set on the command line, and ``data.edges=auto`` if edges were extracted anyway.

    Args:
        dataset: Data set that was loaded.
    """
    overrides = [str(override) for override in HydraConfig.get().overrides.task]
    settings = [
        override for override in overrides if override.startswith("data.") and not override.startswith("data.path=")
    ]
    has_edges = any(setting.startswith("data.edges=") for setting in settings)
    if dataset.knn and not has_edges:
        settings.append("data.edges=auto")
    return settings


def next_command(decision: Decision, dataset: str, checkpoint: str, data_settings: Sequence[str] = ()) -> str:
    """Return the command that follows from a decision: serving a system, or judging more questions.

    Args:
        decision: Decision on the system to deploy.
        dataset: Name or path of the data set.
        checkpoint: Checkpoint that was evaluated.
        data_settings: Settings of the data set on the command line, such as ``data.edges=auto``. The served corpus must
            be prepared with them.

    Returns:
        Command line, with a command that prepares the corpus if the folder itself cannot be served.

    Example:
        >>> next_command(Decision("deploy", "ppr", "Deploy PPR."), "my_data", "base")
        'graphrerank serve checkpoint=base index=my_data pipeline=rerank_ppr'
    """
    if decision.kind not in (DEPLOY, KEEP):
        return f"graphrerank judge {dataset}    # {decision.num_more:,} more questions"
    settings: Sequence[str] = () if decision.system == RETRIEVER else data_settings
    if decision.system == WITHOUT:
        settings = NO_EDGES
    index, prepare = dataset, ""
    if settings:
        index = "my_corpus"
        prepare = f"graphrerank prepare {index} data=folder data.path={dataset} {' '.join(settings)} && "
    return f"{prepare}graphrerank serve checkpoint={checkpoint} index={index}{PIPELINES.get(decision.system, '')}"


def show_sheet(sheet: JudgingSheet, dataset: str) -> None:
    """Print instructions for judging the passages of a sheet.

    Args:
        sheet: Sheet of passages to judge.
        dataset: Name or path of the data set.
    """
    print("The questions have no judgements, so it is unknown which system ranks best.")
    print(f"The graph changes the top {DEPTH} passages of {sheet.share_changed:.0%} of the questions.")
    print(f"next: graphrerank judge {dataset}    # click the relevant passages in the browser")
    print(
        f"or: fill in the column score of {sheet.path} (1 relevant, 0 not; {sheet.num_queries:,} questions), "
        "save it as qrels/test.csv in the data set folder, and repeat the command"
    )


def search_components(command: CommandContext, manifest: RerankerManifest) -> tuple[Any, Any]:
    """Choose the retriever and the text encoder: those of the settings, otherwise those of the checkpoint.

    Args:
        command: Running command, with the settings ``checkpoint``, ``retriever`` and ``encoder``.
        manifest: Manifest of the checkpoint.

    Returns:
        Descriptions of the retriever and of the encoder. The encoder is None if there is none.
    """
    manifests = {str(command.cfg.checkpoint): manifest}
    retriever = resolve_component(command.parts, "retriever", command.chosen("retriever"), manifests, None)
    encoder = resolve_component(command.parts, "encoder", command.chosen_encoder(), manifests, None)
    return retriever.component, encoder.component


def read_dataset_with_edges(command: CommandContext, manifest: RerankerManifest) -> Dataset:
    """Load the data set of a command. Extract edges from the texts if a data set folder has no edges.

    Args:
        command: Running command, with the settings ``dataset`` and ``data``.
        manifest: Manifest of the checkpoint, whose splits are used.

    Returns:
        The data set.
    """
    parts = command.parts
    name = str(command.cfg.dataset)
    component = command.chosen("data")
    if component is not None and component.settings is not None:
        data = component.settings
    else:
        # the slash at the end distinguishes a folder from a file of `conf/data`
        data = parts.settings("data", f"{name.rstrip('/')}/" if Path(name).is_dir() else name)
    data = with_trained_splits(data, [manifest])
    dataset = parts.dataset(data)
    has_edges = dataset.graph.edge_types() or dataset.knn
    if not has_edges and "edges" in data and data.edges is None:
        print("the data set has no edges, so edges are extracted from the texts (data.edges=auto)")
        data.edges = AUTO
        dataset = parts.dataset(data)
    return dataset
