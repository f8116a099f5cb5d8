"""Calibration of scores to probabilities of relevance, on validation splits or on the judged questions of a corpus."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.calibration.fitting import fit_list_confidence, fit_logistic, teach_confidence
from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.encoder_checks import check_encoder
from graphrerank.evaluation.reliability import CONFIDENCE_RANKS, LabelledLists, label_ranking, labelled_lists
from graphrerank.evaluation.reranking import rerank, trained_system
from graphrerank.evaluation.systems import System
from graphrerank.metrics import brier_score, expected_calibration_error
from graphrerank.models.checkpoint import Checkpoint, save_weights
from graphrerank.models.manifest import GroupEntry, write_manifest
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import UserError

LOGGER = logging.getLogger(__name__)
FEWEST = 10  # minimum number of questions to calibrate on
FOLDS = 5
ENOUGH_LISTS = 40  # minimum number of ranked lists to fit a list confidence
SHOWN = 10  # number of top passages per query in the error `ece_top`
JUDGED = "all judged questions"

#: Calibration of the scores and, if it could be fitted, list confidence.
Fitted = tuple[Calibration, ListConfidence | None]
#: Probabilities ``[Q, K]`` that candidates are relevant, and that the first 1 to K candidates are complete.
Probabilities = tuple[Tensor, Tensor | None]


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
    return _entries(lists, split, calibration, confidence)


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
    for name, given in (_trained_on(parts, checkpoint) if data is None else {"": data}).items():
        part = parts.prepare(given, retriever=retriever, encoder=encoder, reads_vectors=manifest.inputs.reads_vectors)
        check_encoder(checkpoint, part)
        prepared[name] = part.with_features(manifest.retriever.feature_names)
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


def fit_probabilities(lists: Mapping[str, LabelledLists], *, name: str = "", with_confidence: bool = True) -> Fitted:
    """Fit a calibration of the scores and, optionally, a list confidence.

    Args:
        lists: Ranked lists with judgements, by name of the data set.
        name: Name of the system, for a log message if the list confidence cannot be fitted. Empty for no message.
        with_confidence: Whether to fit a list confidence.

    Returns:
        The calibration and the list confidence, which is None if it is disabled or cannot be fitted.
    """
    calibration = fit_logistic(*_pairs(lists))
    if not with_confidence:
        return calibration, None
    try:
        return calibration, fit_list_confidence(
            {dataset: (part.probabilities(calibration), part.complete) for dataset, part in lists.items()}
        )
    except ValueError as error:
        if name:
            LOGGER.info("%s: could not fit a list confidence: %s", name, error)
        return calibration, None


def _pairs(lists: Mapping[str, LabelledLists]) -> tuple[Tensor, ...]:
    return tuple(map(torch.cat, zip(*(part.pairs for part in lists.values()), strict=True)))


def _trained_on(parts: ComponentFactory, checkpoint: Checkpoint) -> dict[str, Dataset]:
    """Load the data sets of a checkpoint's last training that have human judgements, or all if none has."""
    datasets, entries = {}, checkpoint.reranker.last_trained_on
    for name, entry in ({n: e for n, e in entries.items() if not e.arguments.get("drafted")} or entries).items():
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


def _calibrate_corpus(
    part: PreparedDataset, system: System, val_split: str, num_queries: int | None, before: Fitted | None
) -> dict[str, Any]:
    """Fit on the judged questions of a corpus, log the errors before and after, and return the manifest entries."""
    dataset = part.dataset
    if not dataset.splits:
        raise UserError(f"data set {dataset.name!r} must have judged questions, but has no qrels")
    split, qrels = (val_split, dataset.splits[val_split]) if val_split in dataset.splits else (JUDGED, dataset.merged())
    queries = sorted(qrels.queries.tolist(), key=lambda query: hash_texts([dataset.query_ids[query]]))
    count = len(queries) if num_queries is None else num_queries
    if not FEWEST <= count <= len(queries):
        raise UserError(
            f"`num_queries` must be from {FEWEST} to the number of judged questions of {split!r} ({len(queries)}), "
            f"got {count}"
        )
    chosen = torch.tensor(queries)
    lists = label_ranking(rerank(part, chosen, system), qrels, chosen, num_nodes=dataset.graph.num_nodes)
    fitted = lists.select(slice(0, count))
    after = fit_probabilities({dataset.name: fitted}, name=system.name, with_confidence=count >= ENOUGH_LISTS)
    if count < len(queries):
        held_out, how = lists.select(slice(count, None)), f"{len(queries) - count:,} questions not used"
        errors = {"after": _errors(held_out, *_predict(held_out, *after))}
    else:
        held_out, how = fitted, f"cross-validated over {FOLDS} parts"
        errors = {"after": _errors(fitted, *_out_of_fold(fitted, with_confidence=after[1] is not None))}
    if before is not None:
        errors = {"before": _errors(held_out, *_predict(held_out, *before)), **errors}
    entries = _entries({dataset.name: fitted}, split, *after)
    entries["calibration"]["fitted"] |= {"queries": count, "held_out": {"how": how, **errors}}
    LOGGER.info(f"{dataset.name}: fitted on {count:,} questions ({split}), {len(fitted.pairs[0]):,} candidates")
    for when, found in errors.items():
        LOGGER.info(
            f"{when}: expected calibration error {found['ece']:.4f}, top {SHOWN} only {found['ece_top']:.4f}, "
            f"Brier score {found['brier']:.4f} ({how})"
        )
        if listed := [f"{name} {error:.4f}" for name, error in _of_lists(found).items()]:
            LOGGER.info(f"{when}: expected calibration error of lists {', '.join(listed)} ({how})")
    return entries


def _entries(
    lists: Mapping[str, LabelledLists], split: str, calibration: Calibration, confidence: ListConfidence | None
) -> dict[str, Any]:
    """Return the manifest entries: the fitted models, the data they were fitted on, and the errors on this data."""
    scores, labels = _pairs(lists)
    p = calibration.probabilities(scores)
    errors = {name: _errors(part, *_predict(part, calibration, confidence)) for name, part in lists.items()}
    fitted = {
        "datasets": list(lists),
        "split": split,
        "pairs": len(labels),
        "ece": expected_calibration_error(p, labels),
        "brier": brier_score(p, labels),
        "share_relevant": float(labels.mean()),
        "ece_by_dataset": {name: found["ece"] for name, found in errors.items()},
    }
    entries: dict[str, Any] = {"calibration": {**calibration.model_dump(mode="json"), "fitted": fitted}}
    if confidence is not None:
        taught_by = teach_confidence({name: part.complete for name, part in lists.items()})
        of_lists = {name: _of_lists(found) for name, found in errors.items()}
        queries = sum(len(lists[name].scores) for name in taught_by)
        fitted = {"datasets": taught_by, "split": split, "queries": queries, "ece_by_dataset": of_lists}
        entries["list_confidence"] = {**confidence.model_dump(mode="json"), "fitted": fitted}
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


def _predict(lists: LabelledLists, calibration: Calibration, confidence: ListConfidence | None) -> Probabilities:
    p = lists.probabilities(calibration)
    return p, None if confidence is None else confidence.perfect_recall(p)


def _out_of_fold(lists: LabelledLists, *, with_confidence: bool) -> Probabilities:
    """Predict probabilities by cross-validation: each fold with a fit on the other folds."""
    fold = torch.arange(len(lists.scores)) % FOLDS
    p, complete = torch.zeros_like(lists.scores), torch.zeros_like(lists.scores)
    for number in range(FOLDS):
        fitted = fit_probabilities({"": lists.select(fold != number)}, with_confidence=with_confidence)
        p[fold == number], of_tops = _predict(lists.select(fold == number), *fitted)
        with_confidence = of_tops is not None
        if of_tops is not None:
            complete[fold == number] = of_tops
    return p, complete if with_confidence else None


def _errors(lists: LabelledLists, probabilities: Tensor, complete: Tensor | None) -> dict[str, float]:
    """Return calibration errors over all candidates, over the top ten, and of the list confidence."""
    ranked, labels = lists.scores.isfinite(), lists.relevant.double()
    top = ranked & (torch.arange(ranked.shape[1]) < SHOWN)
    errors = {
        "ece": expected_calibration_error(probabilities[ranked], labels[ranked]),
        "ece_top": expected_calibration_error(probabilities[top], labels[top]),
        "brier": brier_score(probabilities[ranked], labels[ranked]),
    }
    for rank in CONFIDENCE_RANKS:
        if complete is not None and rank <= complete.shape[1]:
            at, is_complete = complete[:, rank - 1], lists.complete[:, rank - 1].double()
            errors[f"ece_PR@{rank}"] = expected_calibration_error(at, is_complete)
    return errors


def _of_lists(errors: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix("ece_"): error for name, error in errors.items() if name.startswith("ece_PR")}
