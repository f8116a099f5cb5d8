"""Calibration of scores to probabilities of relevance, on validation splits or on the judged questions of a corpus."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.calibration.probabilities import (
    NUM_FOLDS,
    TOP_RANKS,
    FittedProbabilities,
    calibration_errors,
    cross_validated_probabilities,
    fit_probabilities,
    list_errors,
    manifest_entries,
    predict_probabilities,
)
from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.evaluation.encoder_checks import check_encoder
from graphrerank.evaluation.reranking import label_ranking, labelled_lists, rerank, trained_system
from graphrerank.evaluation.systems import System
from graphrerank.models.checkpoint import Checkpoint, save_weights
from graphrerank.models.manifest import GroupEntry, write_manifest
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

LOGGER = logging.getLogger(__name__)
FEWEST = 10  # minimum number of questions to calibrate on
ENOUGH_LISTS = 40  # minimum number of ranked lists to fit a list confidence
JUDGED = "all judged questions"


def calibrate_system(parts: Mapping[str, PreparedDataset], split: str, system: System) -> dict[str, Any]:
    """Calibrate the scores and ranked lists of a system on one split of all data sets jointly.

    Args:
        parts: Prepared data sets by name.
        split: Split to fit on.
        system: Trained system.

    Returns:
        Manifest entries ``calibration`` and, if it can be fitted, ``list_confidence``.
    """
    lists = {name: labelled_lists(part, split, system) for name, part in parts.items()}
    calibration, confidence = fit_probabilities(lists, name=system.name)
    return manifest_entries(lists, split, calibration, confidence)


def calibrate_checkpoint(
    parts: ComponentFactory,
    checkpoint: Checkpoint,
    folder: Path,
    *,
    data: Any = None,
    retriever: Any = None,
    encoder: Any = None,
    val_split: str = "val",
    num_queries: int | None = None,
) -> None:
    """Calibrate a checkpoint, log the calibration errors, and write the checkpoint to a folder.

    Only the calibration entries of the manifest change. The calibration errors on a corpus are those of questions that
    were not used for the fit: of the remaining questions if ``num_queries`` is set, otherwise of five-fold
    cross-validation.

    Args:
        parts: Factory that builds the components.
        checkpoint: Checkpoint to calibrate.
        folder: Folder to write to.
        data: Configured data set whose judged questions are used: those of its validation split, or all of them if it
            has no such split. If None, the validation splits of the training are used.
        retriever: Configured retriever. If None, the retriever of the training is used.
        encoder: Configured text encoder. If None, the encoder of the training is used.
        val_split: Name of the validation split of ``data``.
        num_queries: Number of questions of ``data`` to fit on, selected by a hash of their ids. If None, all are used.

    Raises:
        ValueError: If the data set does not match the checkpoint, or has too few judged questions.
    """
    manifest = checkpoint.graph_reranker
    if encoder is None and manifest.encoder is not None:
        encoder = parts.from_manifest("encoder", manifest.encoder)
    retriever = retriever or parts.from_manifest("retriever", manifest.retriever)
    prepared = {}
    datasets: Mapping[str, Any] = _trained_on(parts, checkpoint) if data is None else {"": data}
    for name, description in datasets.items():
        dataset = parts.prepare(
            description,
            retriever=retriever,
            encoder=encoder,
            reads_vectors=manifest.inputs.reads_vectors,
            select_queries=partial(_calibration_queries, split=manifest.val_split if data is None else val_split),
        )
        check_encoder(checkpoint, dataset)
        prepared[name] = dataset.with_features(manifest.retriever.feature_names)
    torch.set_num_threads(parts.num_threads)
    system = trained_system(manifest.name, checkpoint.model, parts.device)
    if data is None:
        entries = calibrate_system(prepared, manifest.val_split, system)
        _show(entries, manifest.val_split)
    else:
        before = None if manifest.calibration is None else (manifest.calibration, manifest.list_confidence)
        entries = _calibrate_corpus(prepared[""], system, val_split, num_queries, before)
    save_weights(folder, checkpoint.model.cpu())
    write_manifest(folder, {**checkpoint.reranker.without("artifact", "list_confidence").content, **entries})


def _trained_on(parts: ComponentFactory, checkpoint: Checkpoint) -> dict[str, Dataset]:
    """Load the data sets of a checkpoint's last training that have human judgements, or all if none has."""
    entries = checkpoint.reranker.last_trained_on
    judged_entries = {name: entry for name, entry in entries.items() if not entry.arguments.get("drafted")}
    datasets = {}
    for name, entry in (judged_entries or entries).items():
        arguments = dict(entry.arguments)
        datasets[name] = parts.dataset(
            parts.from_manifest("data", GroupEntry(choice=str(arguments.pop("data")), arguments=arguments))
        )
        if (fingerprint := datasets[name].fingerprint) != entry.fingerprint:  # checked before anything is encoded
            raise UserError(
                f"{checkpoint.path} was trained on data set {name!r} with fingerprint {entry.fingerprint[:12]}, got "
                f"fingerprint {fingerprint[:12]}. To calibrate on your own corpus, use data=folder data.path=DIR"
            )
    return {name: dataset for name, dataset in datasets.items() if not dataset.drafted} or datasets


def _calibration_queries(dataset: Dataset, split: str) -> Tensor:
    """Return the queries that a calibration reads, the only ones that are encoded and searched."""
    return _calibration_judgements(dataset, split)[1].queries


def _calibration_judgements(dataset: Dataset, split: str) -> tuple[str, Qrels]:
    """Return the judgements of a split or, if the data set has no such split, all of them, with their name."""
    if not dataset.splits:
        raise UserError(f"data set {dataset.name!r} must have judged questions, but has no qrels")
    return (split, dataset.splits[split]) if split in dataset.splits else (JUDGED, dataset.merged())


def _calibrate_corpus(
    prepared: PreparedDataset,
    system: System,
    val_split: str,
    num_queries: int | None,
    before: FittedProbabilities | None,
) -> dict[str, Any]:
    """Fit on the judged questions of a corpus, log the errors before and after, and return the manifest entries."""
    dataset = prepared.dataset
    split, qrels = _calibration_judgements(dataset, val_split)
    queries = sorted(qrels.queries.tolist(), key=lambda query: hash_texts([dataset.query_ids[query]]))
    count = len(queries) if num_queries is None else num_queries
    if not FEWEST <= count <= len(queries):
        raise UserError(
            f"`num_queries` must be from {FEWEST} to the number of judged questions of {split!r} ({len(queries)}), "
            f"got {count}"
        )
    chosen = torch.tensor(queries)
    lists = label_ranking(rerank(prepared, chosen, system), qrels, chosen, num_nodes=dataset.graph.num_nodes)
    fitted = lists.select(slice(0, count))
    after = fit_probabilities({dataset.name: fitted}, name=system.name, with_confidence=count >= ENOUGH_LISTS)
    if count < len(queries):
        held_out = lists.select(slice(count, None))
        method = f"{len(queries) - count:,} questions not used"
        probabilities = predict_probabilities(held_out, *after)
    else:
        held_out = fitted
        method = f"cross-validated over {NUM_FOLDS} parts"
        probabilities = cross_validated_probabilities(fitted, with_confidence=after[1] is not None)
    errors = {}
    if before is not None:
        errors["before"] = calibration_errors(held_out, *predict_probabilities(held_out, *before))
    errors["after"] = calibration_errors(held_out, *probabilities)
    entries = manifest_entries({dataset.name: fitted}, split, *after)
    entries["calibration"]["fitted"] |= {"queries": count, "held_out": {"how": method, **errors}}
    LOGGER.info(f"{dataset.name}: fitted on {count:,} questions ({split}), {len(fitted.pairs[0]):,} candidates")
    for when, error_of in errors.items():
        LOGGER.info(
            f"{when}: expected calibration error {error_of['ece']:.4f}, top {TOP_RANKS} only "
            f"{error_of['ece_top']:.4f}, Brier score {error_of['brier']:.4f} ({method})"
        )
        list_texts = [f"{name} {error:.4f}" for name, error in list_errors(error_of).items()]
        if list_texts:
            LOGGER.info(f"{when}: expected calibration error of lists {', '.join(list_texts)} ({method})")
    return entries


def _show(entries: Mapping[str, Any], split: str) -> None:
    fitted = entries["calibration"]["fitted"]
    for dataset, error in fitted["ece_by_dataset"].items():
        LOGGER.info(f"{dataset} {split}: expected calibration error {error:.4f}")
    for dataset, errors in entries.get("list_confidence", {}).get("fitted", {}).get("ece_by_dataset", {}).items():
        listed = ", ".join(f"{measure} {error:.4f}" for measure, error in errors.items())
        LOGGER.info(f"{dataset} {split}: expected calibration error of lists {listed}")
    LOGGER.info(
        f"all data sets: {fitted['ece']:.4f}, {fitted['pairs']:,} candidates, {fitted['share_relevant']:.1%} relevant"
    )
