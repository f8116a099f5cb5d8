"""Distillation: scores of a teacher for the questions of a training, with or without judgements."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset, TeacherScores
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.data.teachers import CrossEncoderTeacher, Teacher
from graphrerank.metrics import parse_measure
from graphrerank.training.weighted_loss import reads_teacher
from graphrerank.utils.checks import UserError

LOGGER = logging.getLogger(__name__)
HELD_OUT = 10  # One of this many questions without judgements validates the training if there is no validation split.
MEASURE = "nDCG@10"  # Measure that compares teacher and retriever.


def build_teacher(parts: ComponentFactory, teacher: Any, pair_encoder: Any = None) -> Teacher | None:
    """Build a teacher. A cross-encoder gets a cache of its pairs on disk.

    Args:
        parts: Factory that builds components by name and knows the folder of the cache.
        teacher: A name of ``conf/teacher``, its settings, a teacher, a cross-encoder, or None.
        pair_encoder: Cross-encoder of ``teacher="cross_encoder"``, in any form that the factory accepts. None if no
            cross-encoder is configured.

    Returns:
        The teacher. None if ``teacher`` is None or ``"none"``.

    Raises:
        ValueError: If the teacher is unknown, or a cross-encoder is required and not configured.
    """
    if teacher is None or teacher == "none":
        return None
    built = parts.build("teacher", teacher)
    if isinstance(built, partial):
        if pair_encoder is None:
            raise UserError("`pair_encoder` must be the cross-encoder for teacher=cross_encoder, got None")
        built = built(pair_encoder=parts.pair_encoder(pair_encoder))
    if not isinstance(built, Teacher):
        try:
            built = CrossEncoderTeacher(pair_encoder=built)
            _ = built.fingerprint
        except AttributeError as error:
            needed = "a name of conf/teacher, a cross-encoder or a graphrerank.data.teachers.Teacher"
            raise UserError(f"`teacher` must be {needed}, got {type(teacher).__name__}") from error
    if isinstance(built, CrossEncoderTeacher):
        return replace(built, pair_encoder=parts.pair_encoder(built.pair_encoder))
    return built


def check_loss_and_teacher(loss: Callable[..., Tensor], *, has_teacher: bool) -> None:
    """Require a teacher for distillation losses, and a distillation loss for a teacher.

    Args:
        loss: Loss of the training.
        has_teacher: Whether the training has a teacher.

    Raises:
        ValueError: If only one of the two is set.

    Example:
        >>> from graphrerank.losses import kl_divergence
        >>> check_loss_and_teacher(kl_divergence, has_teacher=True)
    """
    if reads_teacher(loss) and not has_teacher:
        raise UserError(
            "`teacher` must be set for a distillation loss, got None. One of: cross_encoder, run, soft_labels"
        )
    if has_teacher and not reads_teacher(loss):
        raise UserError(
            "`loss` must use the scores of the teacher (kl, margin_mse, or weighted with one of them), got a loss "
            "without the argument `teacher_scores`"
        )


def unjudged_queries(dataset: Dataset) -> Tensor:
    """Return the queries that are in no split.

    Args:
        dataset: Data set.

    Returns:
        Sorted query numbers ``[U]`` int64.
    """
    is_judged = torch.zeros(len(dataset.query_ids), dtype=torch.bool)
    for qrels in dataset.splits.values():
        is_judged[qrels.queries] = True
    return (~is_judged).nonzero().flatten()


def with_teacher(
    prepared: PreparedDataset, teacher: Teacher, *, train_split: str, val_split: str, unjudged: Tensor
) -> PreparedDataset:
    """Add the scores of a teacher for the training and validation questions.

    The model is trained on the questions of ``train_split``, if it exists, and on those without judgements. If there is
    no ``val_split``, one of ten questions without judgements is held out for validation, where the best candidate of
    the teacher counts as relevant.

    Args:
        prepared: Data set with candidates.
        teacher: Teacher.
        train_split: Name of the training split.
        val_split: Name of the validation split.
        unjudged: Queries without judgements to train on, ``[U]``.

    Returns:
        Data set with teacher scores and a validation split. The training split may still be missing.

    Raises:
        ValueError: If there is no question to train or validate on, or the teacher has no scores for one.
    """
    splits = dict(prepared.dataset.splits)
    unjudged = unjudged[_num_candidates(prepared, unjudged) > 1]
    labels_validation = val_split not in splits
    if labels_validation:
        held_out = unjudged[HELD_OUT - 1 :: HELD_OUT]
        validation = held_out
        if not len(held_out):
            prepared.dataset.check_splits(val_split)
    else:
        held_out = unjudged[:0]
        validation = splits[val_split].queries
    train = torch.cat([unjudged[~torch.isin(unjudged, held_out)], *_queries_of(splits, train_split)])
    if not len(train):
        prepared.dataset.check_splits(train_split)
    queries = torch.cat([train, validation])
    num_required = len(queries) if labels_validation else len(train)
    all_scores = torch.full(prepared.ranking.nodes.shape, torch.nan)
    all_scores[queries] = _scores(prepared, teacher, queries, num_required=num_required)
    if labels_validation:
        splits[val_split] = best_candidates(prepared, held_out, all_scores[held_out])
        LOGGER.warning(
            "%s: there is no split %r, so %d questions without judgements are held out. Their measures tell the "
            "agreement with the teacher, and the scores are not calibrated",
            prepared.dataset.name,
            val_split,
            len(held_out),
        )
    dataset = replace(prepared.dataset, splits=splits, known_fingerprint=prepared.dataset.fingerprint)
    teacher_scores = TeacherScores(all_scores, train[_num_scores(all_scores[train]) > 1], labels_validation)
    LOGGER.info("%s: %s teaches %d training questions", dataset.name, teacher.name, len(teacher_scores.queries))
    result = replace(prepared, dataset=dataset, teacher=teacher_scores)
    if not labels_validation:
        _compare_with_retriever(result, teacher, val_split)
    return result


def best_candidates(prepared: PreparedDataset, queries: Tensor, scores: Tensor) -> Qrels:
    """Return judgements in which the candidate with the highest score is the only relevant one.

    Args:
        prepared: Data set with candidates.
        queries: Query numbers ``[B]``.
        scores: Scores ``[B, K]``, NaN for candidates without one. Ties go to the retriever's order.

    Returns:
        Judgements of the queries with a score.
    """
    is_scored = _num_scores(scores) > 0
    best = scores.nan_to_num(nan=-torch.inf).argmax(1)
    nodes = prepared.ranking.nodes[queries].gather(1, best.unsqueeze(1)).squeeze(1)[is_scored]
    return Qrels(queries[is_scored], nodes, torch.ones(len(nodes)))


def _queries_of(splits: dict[str, Qrels], name: str) -> list[Tensor]:
    return [splits[name].queries] if name in splits else []


def _num_candidates(prepared: PreparedDataset, queries: Tensor) -> Tensor:
    return (prepared.ranking.nodes[queries] >= 0).sum(1)


def _num_scores(scores: Tensor) -> Tensor:
    return (~scores.isnan()).sum(1)


def _scores(prepared: PreparedDataset, teacher: Teacher, queries: Tensor, *, num_required: int) -> Tensor:
    """Return the scores of a teacher, ``[B, K]``, after checking and completing them.

    The first ``num_required`` queries must have scores, unless the teacher allows missing ones.
    """
    nodes = prepared.ranking.nodes[queries]
    scores = teacher.score(prepared, queries).float()
    if scores.shape != nodes.shape or scores.isinf().any():
        needed = f"finite scores of shape {list(nodes.shape)}, with NaN for candidates without one"
        raise UserError(f"the teacher {teacher.name} must return {needed}, got shape {list(scores.shape)}")
    scores = scores.masked_fill(nodes < 0, torch.nan)
    is_missing = ((_num_scores(scores) < 2) & ((nodes >= 0).sum(1) > 1))[:num_required]
    if not teacher.allow_missing and is_missing.any():
        first = prepared.dataset.query_ids[int(queries[:num_required][is_missing][0])]
        raise UserError(
            f"the teacher {teacher.name} must score at least two candidates of each of the {num_required} training "
            f"questions of {prepared.dataset.name!r}, got fewer for {int(is_missing.sum())} of them, such as "
            f"{first!r}. Score them, or set teacher.allow_missing=true"
        )
    if teacher.unscored == "lowest":
        lowest = scores.nan_to_num(nan=torch.inf).amin(1, keepdim=True)
        fill = scores.isnan() & (nodes >= 0) & (_num_scores(scores) > 1).unsqueeze(1)
        scores = torch.where(fill, lowest, scores)
    return scores


def _compare_with_retriever(prepared: PreparedDataset, teacher: Teacher, split: str) -> None:
    """Log whether the teacher ranks the candidates of the validation split better than the retriever."""
    assert prepared.teacher is not None
    qrels = prepared.dataset.split(split)
    scored = qrels.queries[_num_scores(prepared.teacher.scores[qrels.queries]) > 1]
    if not len(scored):
        return
    measure = parse_measure(MEASURE)
    gains = qrels.gains(scored)
    nodes = prepared.ranking.nodes[scored]
    relevance = qrels.relevance(scored, nodes, num_nodes=prepared.dataset.graph.num_nodes)
    order = prepared.teacher.scores[scored].nan_to_num(nan=-torch.inf).argsort(dim=1, descending=True, stable=True)
    retriever_mean = float(measure(relevance, gains).mean())
    teacher_mean = float(measure(relevance.gather(1, order), gains).mean())
    LOGGER.info(
        "%s: %s of the teacher %.3f, of the retriever %.3f, on %d questions of split %r",
        prepared.dataset.name,
        MEASURE,
        teacher_mean,
        retriever_mean,
        len(scored),
        split,
    )
    if teacher_mean < retriever_mean:
        LOGGER.warning(
            "%s: the teacher ranks split %r worse than the retriever (%s %.3f, %.3f), and the model learns its errors",
            prepared.dataset.name,
            split,
            MEASURE,
            teacher_mean,
            retriever_mean,
        )
