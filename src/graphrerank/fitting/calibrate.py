"""Calibration: scores as probabilities of relevance, fitted on validation splits or on a corpus's judged questions."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.reliability import (
    CONFIDENCE_RANKS,
    LabelledLists,
    judge_confidence,
    judge_reliability,
    label_ranking,
    labelled_lists,
)
from graphrerank.evaluation.rerankers import check_encoder, trained_system
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.systems import System
from graphrerank.graphs.calibration import Calibration
from graphrerank.graphs.list_confidence import ListConfidence
from graphrerank.metrics import brier_score, expected_calibration_error
from graphrerank.models.checkpoint import Checkpoint, save_weights
from graphrerank.models.manifest import GroupEntry, RerankerManifest, write_manifest
from graphrerank.parts import Parts
from graphrerank.training.list_confidence import fit_list_confidence, teach_confidence
from graphrerank.training.score_calibration import calibration_method

FEWEST = 10  # questions
FOLDS = 5
ENOUGH_LISTS = 40  # for a list_confidence
SHOWN = 10  # passages that people see
JUDGED = "all judged questions"

Fit = Callable[[Tensor, Tensor], Calibration]


def calibrate_system(method: str, parts: Mapping[str, PreparedDataset], split: str, system: System) -> dict[str, Any]:
    """Fit the probabilities of relevance of a system's scores, on a split of all data sets together, and of its lists.

    ``method`` is ``logistic`` or ``isotonic``. Returns the manifest's ``calibration`` and ``list_confidence``, with
    what they were fitted on and how well they fit there, on all data sets and on each. The latter is left out, with a
    line that says so, where the lists do not allow it (``fit_list_confidence``).
    """
    lists = {name: labelled_lists(part, split, system) for name, part in parts.items()}
    pairs = {name: part.pairs for name, part in lists.items()}
    scores, labels = (torch.cat(column) for column in zip(*pairs.values(), strict=True))
    calibration = calibration_method(method)(scores, labels)
    overall = judge_reliability(system.name, calibration, scores, labels)
    fitted = {
        "datasets": list(parts),
        "split": split,
        "pairs": overall.num_pairs,
        "ece": overall.ece,
        "brier": overall.brier,
    }
    by_dataset = {name: judge_reliability(system.name, calibration, *pairs[name]).ece for name in parts}
    fitted |= {"share_relevant": overall.share_relevant, "ece_by_dataset": by_dataset}
    entries: dict[str, Any] = {"calibration": {**calibration.to_json(), "fitted": fitted}}
    try:
        return entries | {"list_confidence": _fit_confidence(calibration, lists, split, system)}
    except ValueError as error:
        print(f"{system.name}: no list_confidence: {error}")
        return entries


def _fit_confidence(
    calibration: Calibration, lists: Mapping[str, LabelledLists], split: str, system: System
) -> dict[str, Any]:
    confidence = fit_list_confidence(
        {name: (part.probabilities(calibration), part.complete) for name, part in lists.items()}
    )
    ece = {
        name: {found.measure: found.ece for found in judge_confidence(system.name, calibration, confidence, part)}
        for name, part in lists.items()
    }
    taught_by = teach_confidence({name: part.complete for name, part in lists.items()})
    fitted = {
        "datasets": taught_by,
        "split": split,
        "queries": sum(len(lists[name].scores) for name in taught_by),
        "ece_by_dataset": ece,
    }
    return {**confidence.to_json(), "fitted": fitted}


def calibrate_as_trained(
    parts: Parts, checkpoint: Checkpoint, folder: Path, *, method: str, retriever: Any = None, encoder: Any = None
) -> None:
    """Calibrate a checkpoint on the validation splits of its training, and write it to a folder.

    Only the manifest's entries of it change. Data sets, retriever and validation split are those of the manifest.

    Args:
        parts: Builds them.
        checkpoint: The checkpoint.
        folder: Folder to write.
        method: ``logistic`` or ``isotonic``.
        retriever: Source of the candidates; None: as in training.
        encoder: Of texts; None: as in training.

    Raises:
        ValueError: If a data set is not that of the training, before anything is encoded.
    """
    manifest = checkpoint.graph_reranker
    prepared = _trained_on(parts, checkpoint, *_searches(parts, manifest, retriever, encoder))
    for part in prepared.values():
        check_encoder(checkpoint, part)
    torch.set_num_threads(parts.num_threads)
    system, split = trained_system(manifest.name, checkpoint.model, parts.device), manifest.val_split
    entries = calibrate_system(method, prepared, split, system)
    _write(folder, checkpoint, entries)
    fitted = entries["calibration"]["fitted"]
    for dataset, error in fitted["ece_by_dataset"].items():
        print(f"{dataset} {split}: expected calibration error {error:.4f}")
    for dataset, errors in entries.get("list_confidence", {}).get("fitted", {}).get("ece_by_dataset", {}).items():
        listed = ", ".join(f"{measure} {error:.4f}" for measure, error in errors.items())
        print(f"{dataset} {split}: expected calibration error of lists {listed}")
    print(f"together: {fitted['ece']:.4f}, {fitted['pairs']:,} candidates, {fitted['share_relevant']:.1%} relevant")


def calibrate_for_corpus(
    parts: Parts,
    checkpoint: Checkpoint,
    data: Any,
    folder: Path,
    *,
    method: str,
    retriever: Any = None,
    encoder: Any = None,
    val_split: str = "val",
    num_queries: int | None = None,
) -> None:
    """Fit a checkpoint's probabilities on the judged questions of one corpus, and print their errors before and after.

    The questions are those of the validation split, or all judged ones if there is none. With ``num_queries`` so many,
    chosen by a hash of their ids, are fitted, and the others evaluate the fit. Else all are fitted, and each fifth is
    evaluated with the fit of the other four.

    Args:
        parts: Builds the parts.
        checkpoint: The checkpoint.
        data: The corpus.
        folder: Folder to write.
        method: ``logistic`` or ``isotonic``.
        retriever: Source of the candidates; None: as in training.
        encoder: Of texts; None: as in training.
        val_split: The validation split.
        num_queries: Judged questions to fit on; None for all.

    Raises:
        ValueError: If there are too few questions, or none of their candidates is relevant.
    """
    manifest = checkpoint.graph_reranker
    retriever, encoder = _searches(parts, manifest, retriever, encoder)
    prepared = parts.prepare(
        data,
        retriever=retriever,
        encoder=encoder,
        reads_vectors=manifest.inputs.reads_vectors,
    )
    dataset = prepared.dataset
    if not dataset.splits:
        raise ValueError(f"data set {dataset.name!r} must have judged questions, found no qrels")
    split = val_split if val_split in dataset.splits else None
    qrels = dataset.splits[split] if split else dataset.merged()
    queries = qrels.queries[_order(dataset, qrels.queries)]
    count = len(queries) if num_queries is None else num_queries
    if not FEWEST <= count <= len(queries):
        raise ValueError(
            f"`num_queries` must be at least {FEWEST} of the {len(queries)} judged questions of "
            f"{split or JUDGED!r}, got {count}"
        )
    check_encoder(checkpoint, prepared)
    part = prepared.with_features(manifest.retriever.feature_names)
    torch.set_num_threads(parts.num_threads)
    system = trained_system(manifest.name, checkpoint.model, parts.device)
    lists = label_ranking(rerank(part, queries, system), qrels, queries, num_nodes=dataset.graph.num_nodes)
    fitted, others = _rows(lists, slice(0, count)), _rows(lists, slice(count, None))
    fit, with_confidence = calibration_method(method), count >= ENOUGH_LISTS
    calibration, confidence = _fit(fitted, fit, with_confidence=with_confidence)
    if with_confidence and confidence is None:
        print(f"no list_confidence: of {count:,} lists all are complete, or none")
    if count < len(queries):
        held_out, how = others, f"{len(others.scores):,} questions not used"
        after = _predict(others, calibration, confidence)
    else:
        held_out, how = fitted, f"cross-validated over {FOLDS} parts"
        after = _out_of_fold(fitted, fit, with_confidence=confidence is not None)
    errors = {"after": _errors(held_out, *after)}
    if manifest.calibration is not None:
        before = _predict(held_out, manifest.calibration, manifest.list_confidence)
        errors = {"before": _errors(held_out, *before), **errors}
    scores, labels = fitted.pairs
    probabilities = calibration.probabilities(scores)
    ece = expected_calibration_error(probabilities, labels)
    fitted_on = {"datasets": [dataset.name], "split": split or JUDGED, "queries": count}
    entry = {
        **fitted_on,
        "pairs": len(labels),
        "ece": ece,
        "brier": brier_score(probabilities, labels),
        "share_relevant": float(labels.mean()),
        "ece_by_dataset": {dataset.name: ece},
        "held_out": {"how": how, **errors},
    }
    entries: dict[str, Any] = {"calibration": {**calibration.to_json(), "fitted": entry}}
    if confidence is not None:
        entries["list_confidence"] = {**confidence.to_json(), "fitted": fitted_on}
    _write(folder, checkpoint, entries)
    print(f"{dataset.name}: fitted on {count:,} questions ({split or JUDGED}), {len(labels):,} candidates")
    for when, found in errors.items():
        print(
            f"{when}: expected calibration error {found['ece']:.4f}, of the first {SHOWN} {found['ece_top']:.4f}, "
            f"Brier score {found['brier']:.4f} ({how})"
        )
        if listed := [f"{name[4:]} {error:.4f}" for name, error in found.items() if name.startswith("ece_PR")]:
            print(f"{when}: expected calibration error of lists {', '.join(listed)} ({how})")


def _write(folder: Path, checkpoint: Checkpoint, entries: Mapping[str, Any]) -> None:
    save_weights(folder, checkpoint.model.cpu())
    write_manifest(folder, {**checkpoint.reranker.without("artifact", "list_confidence").content, **entries})


def _searches(parts: Parts, manifest: RerankerManifest, retriever: Any, encoder: Any) -> tuple[Any, Any]:
    """Return the given retriever and encoder, else those of the training."""
    if encoder is None and manifest.encoder is not None:
        encoder = parts.from_manifest("encoder", manifest.encoder)
    return retriever or parts.from_manifest("retriever", manifest.retriever), encoder


def _trained_on(parts: Parts, checkpoint: Checkpoint, retriever: Any, encoder: Any) -> dict[str, PreparedDataset]:
    """Prepare the data sets that a manifest names, with candidates and features as in training, by name."""
    manifest = checkpoint.reranker
    datasets = {}
    for name, entry in manifest.trained_on.items():
        arguments = dict(entry.arguments)
        datasets[name] = parts.dataset(
            parts.from_manifest("data", GroupEntry(choice=str(arguments.pop("data")), arguments=arguments))
        )
        if (fingerprint := datasets[name].fingerprint) != entry.fingerprint:  # all before one is encoded
            raise ValueError(
                f"{checkpoint.path}: was trained on {name} with fingerprint {entry.fingerprint[:12]}, the data set is "
                f"now another one ({fingerprint[:12]}); for a corpus of yours: data=folder data.path=DIR"
            )
    judged = {name: dataset for name, dataset in datasets.items() if not dataset.drafted} or datasets
    return {
        name: parts.prepare(
            dataset, retriever=retriever, encoder=encoder, reads_vectors=manifest.inputs.reads_vectors
        ).with_features(manifest.retriever.feature_names)
        for name, dataset in judged.items()
    }


def _order(dataset: Dataset, queries: Tensor) -> Tensor:
    """Order queries by the hash of their ids."""
    keys = [hash_texts([dataset.query_ids[query]]) for query in queries.tolist()]
    return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__), dtype=torch.int64)


def _rows(lists: LabelledLists, rows: slice | Tensor) -> LabelledLists:
    return LabelledLists(lists.scores[rows], lists.relevant[rows], lists.num_relevant[rows])


def _fit(lists: LabelledLists, method: Fit, *, with_confidence: bool) -> tuple[Calibration, ListConfidence | None]:
    """Fit the probabilities of candidates and, if asked for and possible, of complete lists."""
    calibration: Calibration = method(*lists.pairs)
    if not with_confidence:
        return calibration, None
    try:
        return calibration, fit_list_confidence({"": (lists.probabilities(calibration), lists.complete)})
    except ValueError:  # all are complete, or none
        return calibration, None


def _predict(
    lists: LabelledLists, calibration: Calibration, confidence: ListConfidence | None
) -> tuple[Tensor, Tensor | None]:
    """Predict which candidates are relevant and, with a confidence, which tops complete; both ``[Q, K]``."""
    p = lists.probabilities(calibration)
    return p, None if confidence is None else confidence.perfect_recall(p)


def _out_of_fold(lists: LabelledLists, method: Fit, *, with_confidence: bool) -> tuple[Tensor, Tensor | None]:
    """Predict for each fifth of the lists by the other four, as :func:`_predict` does."""
    fold = torch.arange(len(lists.scores)) % FOLDS
    p, complete = torch.zeros_like(lists.scores), torch.zeros_like(lists.scores)
    for number in range(FOLDS):
        calibration, confidence = _fit(_rows(lists, fold != number), method, with_confidence=with_confidence)
        p[fold == number], of_tops = _predict(_rows(lists, fold == number), calibration, confidence)
        with_confidence = of_tops is not None
        if of_tops is not None:
            complete[fold == number] = of_tops
    return p, complete if with_confidence else None


def _errors(lists: LabelledLists, probabilities: Tensor, complete: Tensor | None) -> dict[str, float]:
    """Compare probabilities with what is so, over all candidates, over the first ten, and of complete tops."""
    ranked, labels = lists.scores.isfinite(), lists.relevant.double()
    top = ranked.clone()
    top[:, SHOWN:] = False
    errors = {
        "ece": expected_calibration_error(probabilities[ranked], labels[ranked]),
        "ece_top": expected_calibration_error(probabilities[top], labels[top]),
        "brier": brier_score(probabilities[ranked], labels[ranked]),
    }
    if complete is None:
        return errors
    return errors | {
        f"ece_PR@{rank}": expected_calibration_error(complete[:, rank - 1], lists.complete[:, rank - 1].double())
        for rank in CONFIDENCE_RANKS
        if rank <= complete.shape[1]
    }
