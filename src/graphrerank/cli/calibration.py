"""Calibrate a trained reranker on the validation splits of the data sets that it was trained on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate

from graphrerank.cli.corpus_calibration import calibrate_for_corpus
from graphrerank.cli.session import Session
from graphrerank.cli.systems import check_encoder
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.reliability import LabelledLists, judge_confidence, judge_reliability, labelled_lists
from graphrerank.evaluation.system import System
from graphrerank.graphs.calibration import Calibration
from graphrerank.models.checkpoint import load_primary, save_weights
from graphrerank.models.entries import GroupEntry
from graphrerank.models.manifest import RerankerManifest, write_manifest
from graphrerank.training.list_confidence import fit_list_confidence, teach_confidence
from graphrerank.training.score_calibration import calibration_method


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


def calibrate_checkpoint(session: Session) -> Path:
    """Calibrate a finished checkpoint: only the manifest's entries of it change.

    Where the command names ``data``, for that corpus (:func:`calibrate_for_corpus`). Else as its training would have:
    data sets, retriever and validation split are those of the manifest, and must be unchanged.

    Raises:
        ValueError: If a data set is not that of the training, before anything is encoded.
    """
    cfg = session.cfg
    if cfg.calibration is None:
        raise ValueError("`calibrate` needs a method: calibration=logistic or isotonic, got null")
    calibration_method(cfg.calibration)
    checkpoint = load_primary(cfg.calibrate)
    session.tracking.reads_checkpoint(cfg.calibrate)
    manifest = checkpoint.graph_reranker
    if manifest.reads_cross_encoder:
        print("calibrated without a cross-encoder's scores, as lists are that give none")
    if session.overrides_key("data"):
        return calibrate_for_corpus(session, checkpoint)
    if cfg.calibrate_queries is not None:
        raise ValueError(
            "`calibrate_queries` needs the judged questions of a corpus of yours: data=folder data.path=DIR"
        )
    parts = _trained_on(session, manifest)
    for part in parts.values():
        check_encoder(checkpoint, part)
    torch.set_num_threads(session.num_threads)
    row, split = session.systems({manifest.name: checkpoint.model}, manifest.operators)[-1], manifest.val_split
    entries = calibrate_system(cfg.calibration, parts, split, row)
    folder = session.run_dir
    save_weights(folder, checkpoint.model.cpu())
    write_manifest(folder, {**manifest.without("artifact", "list_confidence").content, **entries})
    fitted = entries["calibration"]["fitted"]
    for dataset, error in fitted["ece_by_dataset"].items():
        print(f"{dataset} {split}: expected calibration error {error:.4f}")
    for dataset, errors in entries.get("list_confidence", {}).get("fitted", {}).get("ece_by_dataset", {}).items():
        listed = ", ".join(f"{measure} {error:.4f}" for measure, error in errors.items())
        print(f"{dataset} {split}: expected calibration error of lists {listed}")
    print(f"together: {fitted['ece']:.4f}, {fitted['pairs']:,} candidates, {fitted['share_relevant']:.1%} relevant")
    return folder


def _trained_on(session: Session, manifest: RerankerManifest) -> dict[str, PreparedDataset]:
    """Prepare the data sets that a manifest names, with candidates and features as in training, by name."""
    trained_with = manifest.encoder  # None where nothing was encoded
    encoder = session.group_from_manifest("encoder", trained_with) if trained_with else None
    retriever = session.group_from_manifest("retriever", manifest.retriever)
    groups, drafted = {}, {}
    for name, entry in manifest.trained_on.items():
        arguments = dict(entry.arguments)
        choice = str(arguments.pop("data"))
        group = session.group_from_manifest("data", GroupEntry(choice, arguments))
        dataset = instantiate(group)
        if (fingerprint := dataset.fingerprint) != entry.fingerprint:  # all before one is encoded
            raise ValueError(
                f"{session.cfg.calibrate}: was trained on {name} with fingerprint {entry.fingerprint[:12]}, the data "
                f"set is now another one ({fingerprint[:12]}); for a corpus of yours: data=folder data.path=DIR"
            )
        groups[name], drafted[name] = group, dataset.drafted
    parts = {}
    for name, group in groups.items():
        if drafted[name] and not all(drafted.values()):
            continue  # as in training (`judged_parts`)
        part = session.prepare(group, encoder, retriever, reads_vectors=manifest.inputs.reads_vectors)
        parts[name] = part.with_features(manifest.retriever.feature_names)
    return parts
