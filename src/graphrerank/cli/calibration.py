"""Calibrate a trained reranker on the validation splits of the data sets that it was trained on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from graphrerank.cli.session import Session
from graphrerank.cli.systems import check_encoder
from graphrerank.data import PreparedDataset
from graphrerank.evaluation import System
from graphrerank.evaluation.reliability import judge_reliability, labelled_scores
from graphrerank.models import RerankerManifest, load_primary
from graphrerank.models.checkpoint import save_weights
from graphrerank.models.entries import GroupEntry
from graphrerank.models.manifest import write_manifest
from graphrerank.training import calibration_method


def calibrate_system(method: str, parts: Mapping[str, PreparedDataset], split: str, system: System) -> dict[str, Any]:
    """Fit the probabilities of relevance of a system's scores, on a split of all data sets together.

    ``method`` is ``logistic`` or ``isotonic``. Returns the manifest's ``calibration``, with what it was fitted on and
    how well it fits there, on all data sets and on each.
    """
    pairs = {name: labelled_scores(part, split, system) for name, part in parts.items()}
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
    return {**calibration.to_json(), "fitted": fitted}


def calibrate_checkpoint(session: Session) -> Path:
    """Calibrate a finished checkpoint as its training would have: only the manifest's ``calibration`` changes.

    Data sets, retriever and validation split are those of the manifest, and must be unchanged.
    """
    cfg = session.cfg
    if cfg.calibration is None:
        raise ValueError("`calibrate` needs a method: calibration=logistic or isotonic, got null")
    checkpoint = load_primary(cfg.calibrate)
    manifest = checkpoint.graph_reranker
    parts = _trained_on(session, manifest)
    for part in parts.values():
        check_encoder(checkpoint, part)
    torch.set_num_threads(session.num_threads)
    row, split = session.systems({manifest.name: checkpoint.model}, manifest.operators)[-1], manifest.val_split
    calibration = calibrate_system(cfg.calibration, parts, split, row)
    folder = session.run_dir
    save_weights(folder, checkpoint.model.cpu())
    write_manifest(folder, {**manifest.without("artifact").content, "calibration": calibration})
    fitted = calibration["fitted"]
    for dataset, error in fitted["ece_by_dataset"].items():
        print(f"{dataset} {split}: expected calibration error {error:.4f}")
    print(f"together: {fitted['ece']:.4f}, {fitted['pairs']:,} candidates, {fitted['share_relevant']:.1%} relevant")
    return folder


def _trained_on(session: Session, manifest: RerankerManifest) -> dict[str, PreparedDataset]:
    """Prepare the data sets that a manifest names, with candidates and features as in training, by name."""
    trained_with = manifest.encoder  # None where nothing was encoded
    encoder = session.group_from_manifest("encoder", trained_with) if trained_with else None
    retriever = session.group_from_manifest("retriever", manifest.retriever)
    parts = {}
    for name, entry in {str(manifest.data.choice): manifest.data, **manifest.mix}.items():
        arguments = dict(entry.arguments)
        choice = str(arguments.pop("data", name))
        data = session.group_from_manifest("data", GroupEntry(choice, arguments))
        part = session.prepare(data, encoder, retriever, reads_vectors=manifest.inputs.reads_vectors)
        if (fingerprint := part.dataset.fingerprint) != entry.fingerprint:
            raise ValueError(
                f"{session.cfg.calibrate}: was trained on {name} with fingerprint {entry.fingerprint[:12]}, the data "
                f"set is now another one ({fingerprint[:12]})"
            )
        parts[name] = part.with_features(manifest.retriever.feature_names)
    return parts
