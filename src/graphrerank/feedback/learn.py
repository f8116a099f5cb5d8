"""Train a new version of a checkpoint from a feedback log and record where it comes from."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from graphrerank.calibration.logistic import Calibration
from graphrerank.config.components import ComponentFactory
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.data.readers.judgements import TEST
from graphrerank.data.synthetic_queries.questions import draft_questions
from graphrerank.evaluation.encoder_checks import check_encoder
from graphrerank.feedback.learning import (
    DRAFTED_GUARD,
    JUDGED_GUARD,
    LearningData,
    LearningResult,
    learn_from_sessions,
    normalized,
)
from graphrerank.feedback.log import OTHER_CORPUS, read_log
from graphrerank.feedback.stages import exact_scores
from graphrerank.models.checkpoint import Checkpoint, load_primary
from graphrerank.training.training_data import evenly_spaced
from graphrerank.utils.checks import UserError, check_not_negative
from graphrerank.utils.files import hash_files, remove_leftovers

MAX_LOG_QUERIES = 10_000  # number of the most recent distinct queries that are used
MAX_JUDGED_QUERIES = 500  # largest number of judged questions in the guard


def learn_log(
    log: str | Path,
    data: Any,
    *,
    start: str | Path | Checkpoint = "base",
    retriever: Any = None,
    encoder: Any = None,
    drafted: int = 200,
    margin: float = 0.01,
    level: float = 0.025,
    any_corpus: bool = False,
    allow_anonymous: bool = False,
    seed: int = 0,
    parts: ComponentFactory | None = None,
) -> LearningResult:
    """Learn from a feedback log, without exporting the result.

    :func:`graphrerank.feedback.learn.learn` describes the procedure.

    Args:
        log: File or folder of JSON lines (:mod:`~graphrerank.feedback.log`).
        data: Corpus that was shown, in any form that
            :meth:`ComponentFactory.dataset <graphrerank.config.components.ComponentFactory.dataset>` accepts.
        start: Checkpoint that ranked the lists, a ``gatv2_reranker`` with ``features=scores``.
        retriever: Retriever of the candidates. If None, the retriever that the checkpoint was trained with.
        encoder: Text encoder. If None, the encoder that the checkpoint was trained with.
        drafted: Number of questions to draft from the corpus as a guard. 0 disables this guard.
        margin: Largest acceptable loss of mean nDCG@10 on a guard, above 0.
        level: Level of the one-sided test on later sessions, in (0, 1].
        any_corpus: Whether to use lists of other corpora too.
        allow_anonymous: Whether sessions without an authenticated user suffice without judged questions.
        seed: Random seed.
        parts: Factory of data sets, retrievers and encoders. If None, one with the default settings.

    Returns:
        The result. Its ``checkpoint`` is None if the update was refused.

    Raises:
        ValueError: If the log has no list of the corpus, or an argument is invalid.
    """
    parts = parts or ComponentFactory(seed=seed)
    check_not_negative(drafted=drafted)
    parent = start if isinstance(start, Checkpoint) else load_primary(start)
    manifest = parent.graph_reranker
    dataset = parts.dataset(data)
    corpora = None if any_corpus else [dataset.fingerprint]
    feedback_log = read_log(log, known=set(dataset.graph.node_ids), corpora=corpora)
    if not feedback_log.sessions:
        num_others = feedback_log.left_out[OTHER_CORPUS]
        hint = ""
        if num_others:
            hint = (
                f". {num_others:,} lists are from other corpora: set `data` to the corpus that was served, or "
                "any_corpus=true"
            )
        raise UserError(f"{log}: the log has no lists of corpus {dataset.name!r} ({feedback_log}){hint}")
    if encoder is None and manifest.encoder is not None:
        encoder = parts.from_manifest("encoder", manifest.encoder)
    queries, guards = with_guards(dataset, [session.query for session in feedback_log.sessions], drafted, seed=seed)
    prepared = parts.prepare(
        queries,
        retriever=retriever or parts.from_manifest("retriever", manifest.retriever),
        encoder=encoder,
        reads_vectors=manifest.inputs.reads_vectors,
    )
    check_encoder(parent, prepared)
    torch.set_num_threads(parts.num_threads)
    prepared = prepared.with_features(manifest.retriever.feature_names)
    material = LearningData.of(prepared, parent.model, guards)
    learned = learn_from_sessions(
        material, feedback_log.sessions, margin=margin, level=level, seed=seed, allow_anonymous=allow_anonymous
    )
    settings = {
        "drafted": drafted,
        "margin": margin,
        "level": level,
        "seed": seed,
        "allow_anonymous": allow_anonymous,
    }
    learned.log = feedback_log
    if learned.accepted:
        name = parent.manifest.name if isinstance(start, Checkpoint) else Path(start).name
        learned.checkpoint = _checkpoint(parent, name, material, learned, settings)
    return learned


def with_guards(dataset: Dataset, texts: Sequence[str], drafted: int, *, seed: int = 0) -> tuple[Dataset, list[str]]:
    """Return a corpus whose queries are those of a log, followed by drafted and judged questions that serve as guards.

    Args:
        dataset: Corpus that was shown. Its judgements on the split ``test`` are used only if there are no others.
        texts: Queries of the log, which may repeat.
        drafted: Number of questions to draft from the corpus.
        seed: Seed of the drafting.

    Returns:
        The data set, and the names of its splits, which are the guards.
    """
    queries = list({normalized(text): text for text in texts}.values())[-MAX_LOG_QUERIES:]
    judged = {name: qrels for name, qrels in dataset.splits.items() if name != TEST} or dict(dataset.splits)
    drafts = [] if not drafted else draft_questions(dataset.graph, drafted, seed=seed)
    rows = [[(len(queries) + index, node, 1.0) for node in draft.nodes] for index, draft in enumerate(drafts)]
    splits = {DRAFTED_GUARD: Qrels.from_rows(chain.from_iterable(rows))} if rows else {}
    texts, first = [*queries, *(draft.text for draft in drafts)], len(queries) + len(drafts)
    if judged and not dataset.drafted:
        merged = replace(dataset, splits=judged, known_fingerprint=dataset.fingerprint).merged()
        sample = evenly_spaced(merged.queries, MAX_JUDGED_QUERIES)
        qrels = merged.select_queries(sample)
        splits[JUDGED_GUARD] = replace(qrels, query=torch.searchsorted(sample, qrels.query) + first)
        texts += [dataset.query_texts[query] for query in sample.tolist()]
    ids = [f"query {number}" for number in range(len(texts))]
    together = replace(dataset, query_ids=ids, query_texts=texts, splits=splits, answers={}, known_fingerprint=None)
    return together, list(splits)


def _checkpoint(
    parent: Checkpoint, name: str, material: LearningData, learned: LearningResult, settings: dict[str, Any]
) -> Checkpoint:
    """Return the learned model with the parent's manifest, a new calibration, and an entry with its lineage."""
    log = learned.log
    assert learned.change is not None
    assert log is not None
    entries: dict[str, Any] = {}
    manifest, change = parent.graph_reranker, learned.change
    if manifest.calibration is not None:
        entries["calibration"] = _matched(manifest.calibration, material, change.model)
    entries["learned"] = {
        "parent": {"name": name, "sha256": hash_files([parent.path])},
        "log": {"sha256": log.digest, "lines": log.lines, "left_out": dict(log.left_out), **learned.counts},
        "stage": change.stage,
        "factors": dict(change.factors),
        "position_bias": {"slope": learned.propensities.slope, "source": learned.propensities.source},
        "tests": learned.tests,
        "settings": settings,
    }
    return Checkpoint(change.model, manifest.without("artifact").with_entries(**entries), parent.path)


def _matched(calibration: Calibration, material: LearningData, model: Any) -> dict[str, Any]:
    """Fit a logistic calibration that maps the new scores to the parent's probabilities of the same candidates.

    Clicks cannot be used for calibration because they determine relevance only up to a constant factor.
    """
    mask = material.lists.mask
    new = exact_scores(model, material.prepared, torch.arange(len(mask)))[mask].double()
    p = calibration.probabilities(material.lists.scores[mask]).double()
    logit = calibration.slope * material.lists.scores[mask].double() + calibration.intercept
    weight = p * (1 - p) / (p * (1 - p)).sum()
    mean = float(weight @ new)
    slope = float((weight * (new - mean)) @ logit / (weight @ (new - mean).square()).clamp(min=1e-9))
    matched = Calibration(slope=max(0.0, slope), intercept=float(weight @ logit) - slope * mean)
    return {**matched.model_dump(mode="json"), "fitted": {"matched": "the parent's probabilities", "pairs": len(new)}}


def learn(
    log: str | Path,
    data: Any,
    *,
    start: str | Path | Checkpoint = "base",
    artifact: str | Path | None = None,
    formats: Sequence[str] = ("torchscript",),
    **settings: Any,
) -> LearningResult:
    """Learn from a log of shown lists and clicks, and export the result if it is better than the original checkpoint.

    The update is accepted only if it ranks significantly better on later sessions with other queries, and no worse on
    drafted and judged questions. A log whose sessions have no authenticated users is refused, unless there are judged
    questions to guard the result.

    Args:
        log: File or folder of JSON lines (:mod:`~graphrerank.feedback.log`).
        data: Corpus that was shown, in any form that
            :meth:`ComponentFactory.dataset <graphrerank.config.components.ComponentFactory.dataset>` accepts.
        start: Checkpoint that ranked the lists, a ``gatv2_reranker`` with ``features=scores``.
        artifact: Folder of the exported artifact, which replaces an older one atomically. If None, nothing is exported.
        formats: Formats of the artifact.
        **settings: Arguments of :func:`learn_log`, with their defaults: ``retriever`` and ``encoder`` (those of
            ``start``), ``drafted`` (200 questions), ``margin`` (0.01 of nDCG@10), ``level`` (0.025 for the test on
            later sessions), ``any_corpus`` (False), ``allow_anonymous`` (False), ``seed`` (0) and ``parts``.

    Returns:
        The result, which prints as a report.

    Raises:
        ValueError: If the log has no list of the corpus, or an argument is invalid.

    Example:
        >>> from graphrerank import learn
        >>> print(learn("feedback", "my_corpus", artifact="next"))  # doctest: +SKIP
    """
    if artifact is not None:
        remove_leftovers(Path(artifact).absolute().parent)  # temporary folders of exports that were killed
    learned = learn_log(log, data, start=start, **settings)
    if artifact is not None and learned.checkpoint is not None:
        from graphrerank.artifacts.export import export_artifact  # slow import, only needed here

        export_artifact(learned.checkpoint, Path(artifact), formats)
    return learned
