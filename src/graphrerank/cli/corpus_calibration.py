"""``python train.py calibrate=CHECKPOINT data=...``: probabilities for one corpus from a few dozen judged questions."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.cli.session import Session
from graphrerank.cli.systems import check_encoder
from graphrerank.data.dataset import RetrievalDataset
from graphrerank.evaluation.reliability import CONFIDENCE_RANKS, LabelledLists, label_ranking
from graphrerank.evaluation.reranking import rerank
from graphrerank.graphs.calibration import Calibration
from graphrerank.graphs.list_confidence import ListConfidence
from graphrerank.metrics import brier_score, expected_calibration_error
from graphrerank.models.checkpoint import Checkpoint, save_weights
from graphrerank.models.manifest import write_manifest
from graphrerank.training.list_confidence import fit_list_confidence
from graphrerank.training.score_calibration import calibration_method

FEWEST = 10  # questions
FOLDS = 5
ENOUGH_LISTS = 40  # for a list_confidence
SHOWN = 10  # passages that people see
JUDGED = "all judged questions"


def calibrate_for_corpus(session: Session, checkpoint: Checkpoint) -> Path:
    """Fit a checkpoint's probabilities on the judged questions of one corpus, and say how near they were and are.

    The questions are those of the validation split, or all judged ones if there is none. With ``calibrate_queries`` so
    many, chosen by a hash, are fitted, and the others are judged. Else all are fitted, and what is judged of each fifth
    was fitted on the other four.

    Raises:
        ValueError: If there are too few questions, or none of their candidates is relevant.
    """
    cfg, manifest = session.cfg, checkpoint.graph_reranker
    retriever = group(session, "retriever", manifest.retriever)
    encoder = group(session, "encoder", manifest.encoder)
    prepared = session.prepare(cfg.data, encoder, retriever, reads_vectors=manifest.inputs.reads_vectors)
    dataset = prepared.dataset
    if not dataset.splits:
        raise ValueError(f"data set {dataset.name!r} must have judged questions, found no qrels")
    split = cfg.batches.val_split if cfg.batches.val_split in dataset.splits else None
    qrels = dataset.splits[split] if split else dataset.merged()
    queries = qrels.queries[_order(dataset, qrels.queries)]
    count = len(queries) if cfg.calibrate_queries is None else int(cfg.calibrate_queries)
    if not FEWEST <= count <= len(queries):
        raise ValueError(
            f"`calibrate_queries` must be at least {FEWEST} of the {len(queries)} judged questions of "
            f"{split or JUDGED!r}, got {count}"
        )
    check_encoder(checkpoint, prepared)
    part = prepared.with_features(manifest.retriever.feature_names)
    torch.set_num_threads(session.num_threads)
    system = session.systems({manifest.name: checkpoint.model}, manifest.operators)[-1]
    lists = label_ranking(rerank(part, queries, system), qrels, queries, num_nodes=dataset.graph.num_nodes)
    fitted, others = _rows(lists, slice(0, count)), _rows(lists, slice(count, None))
    method = calibration_method(cfg.calibration)
    with_confidence = count >= ENOUGH_LISTS
    calibration, confidence = _fit(fitted, method, with_confidence=with_confidence)
    if with_confidence and confidence is None:
        print(f"no list_confidence: of {count:,} lists all are complete, or none")
    if count < len(queries):
        judged, how = others, f"{len(others.scores):,} questions not used"
        after = _predict(others, calibration, confidence)
    else:
        judged, how = fitted, f"cross-validated over {FOLDS} parts"
        after = _out_of_fold(fitted, method, with_confidence=confidence is not None)
    errors = {"after": _errors(judged, *after)}
    if manifest.calibration is not None:
        before = _predict(judged, manifest.calibration, manifest.list_confidence)
        errors = {"before": _errors(judged, *before), **errors}
    scores, labels = fitted.pairs
    own = calibration.probabilities(scores)
    ece = expected_calibration_error(own, labels)
    entry = {
        "datasets": [dataset.name],
        "split": split or JUDGED,
        "queries": count,
        "pairs": len(labels),
        "ece": ece,
        "brier": brier_score(own, labels),
        "share_relevant": float(labels.mean()),
        "ece_by_dataset": {dataset.name: ece},
        "held_out": {"how": how, **errors},
    }
    entries: dict[str, Any] = {"calibration": {**calibration.to_json(), "fitted": entry}}
    if confidence is not None:
        of_lists = {"datasets": [dataset.name], "split": split or JUDGED, "queries": count}
        entries["list_confidence"] = {**confidence.to_json(), "fitted": of_lists}
    folder = session.run_dir
    save_weights(folder, checkpoint.model.cpu())
    write_manifest(folder, {**manifest.without("artifact", "list_confidence").content, **entries})
    print(f"{dataset.name}: fitted on {count:,} questions ({split or JUDGED}), {len(labels):,} candidates")
    for when, found in errors.items():
        print(
            f"{when}: expected calibration error {found['ece']:.4f}, of the first {SHOWN} {found['ece_top']:.4f}, "
            f"Brier score {found['brier']:.4f} ({how})"
        )
        if listed := [f"{name[4:]} {error:.4f}" for name, error in found.items() if name.startswith("ece_PR")]:
            print(f"{when}: expected calibration error of lists {', '.join(listed)} ({how})")
    return folder


def group(session: Session, name: str, trained: Any) -> Any:
    """Return the group that the command chose by name, else the one of the training; None for none."""
    if session.overrides_key(name):
        return session.chosen(name)
    return None if trained is None else session.group_from_manifest(name, trained)


def _order(dataset: RetrievalDataset, queries: Tensor) -> Tensor:
    """Order queries by the hash of their ids."""
    keys = [hash_texts([dataset.query_ids[query]]) for query in queries.tolist()]
    return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__), dtype=torch.int64)


def _rows(lists: LabelledLists, rows: slice | Tensor) -> LabelledLists:
    return LabelledLists(lists.scores[rows], lists.relevant[rows], lists.num_relevant[rows])


def _fit(lists: LabelledLists, method: Any, *, with_confidence: bool) -> tuple[Calibration, ListConfidence | None]:
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


def _out_of_fold(lists: LabelledLists, method: Any, *, with_confidence: bool) -> tuple[Tensor, Tensor | None]:
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
