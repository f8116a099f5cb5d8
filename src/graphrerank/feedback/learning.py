"""Learn from sessions, and accept the result only if it passes a test on later sessions and on the guard questions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.core import Ranking
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.significance import randomization_tests
from graphrerank.feedback.log import FeedbackLog, Session
from graphrerank.feedback.propensity import Propensities, estimate_propensities, user_weights
from graphrerank.feedback.relevance import Relevance, compare_worth, estimate_relevance, order
from graphrerank.feedback.stages import (
    FEW_PARAMETERS,
    MIN_SESSIONS,
    ModelUpdate,
    ScoredLists,
    exact_scores,
    fit_stage,
    quick_scores,
    score_lists,
)
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import check_positive, check_positive_share

__getattr__ = moved_names(__name__)

TRAINING_SHARE = 0.6  # share of the positive feedback that is used for training, the rest for the test
CHOOSING = 4  # every fourth query is held out to choose the stage
PRIOR_SESSIONS = 100.0  # weight of the parent's ranking in the targets, as a number of sessions
MIN_TEST_QUERIES = 30  # smallest number of queries with different rankings for a test
NUM_REPORTED_QUERIES, NUM_REPORTED_PASSAGES = 10, 3  # number of queries in the report, and of passages for each
MEASURE = "nDCG@10"
DRAFTED_GUARD, JUDGED_GUARD = "drafted questions", "judged questions"  # names of the guards
MIN_JUDGED_QUERIES = 30  # number of judged questions with which authenticated users are not required


@dataclass(frozen=True)
class LearningData:
    """Corpus with the queries of a log and of guards, ranked and scored once by the parent model.

    Attributes:
        prepared: Data set with candidates and features.
        model: Parent model.
        lists: Scores of the parent model for all queries.
        row: Maps the normalised text of each query to its row in ``lists``.
        columns: For each row, maps passage ids to columns.
        guards: Splits with questions of known answers, on which the update must not be worse.
    """

    prepared: PreparedDataset
    model: GATv2Reranker
    lists: ScoredLists
    row: Mapping[str, int]
    columns: Sequence[dict[str, int]]
    guards: Sequence[str] = ()

    @classmethod
    def of(cls, prepared: PreparedDataset, model: Any, guards: Sequence[str] = ()) -> "LearningData":
        """Score all queries of a data set with the parent model.

        Args:
            prepared: Data set with candidates and features.
            model: Parent model.
            guards: Names of the splits that serve as guards.

        Returns:
            The scored data.

        Raises:
            ValueError: If the model is not a ``gatv2_reranker`` with ``features=scores``.
        """
        lists = score_lists(model, prepared)
        ids = prepared.dataset.graph.node_ids
        columns = [
            {ids[node]: column for column, node in enumerate(nodes) if node >= 0} for nodes in lists.nodes.tolist()
        ]
        row = {normalized(text): index for index, text in reversed(list(enumerate(prepared.dataset.query_texts)))}
        return cls(prepared, model, lists, row, columns, guards)


@dataclass
class LearningResult:
    """Result of learning from a log.

    Attributes:
        change: Learned update, or None if there was too little feedback.
        propensities: Estimated position bias.
        refusals: Reasons for which the update was refused. Empty if it was accepted.
        tests: Results of the tests, keyed by ``later sessions`` and by the name of each guard.
        counts: Number of sessions by kind.
        moved: Lines that describe the changes for the most frequent queries.
        log: Log that was read, or None if the sessions came from elsewhere.
        checkpoint: Updated checkpoint with its lineage, or None if the update was refused or there is no manifest.
    """

    change: ModelUpdate | None
    propensities: Propensities
    refusals: list[str] = field(default_factory=list)
    tests: dict[str, dict[str, float]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    log: FeedbackLog | None = None
    checkpoint: Checkpoint | None = None

    @property
    def accepted(self) -> bool:
        """True if no check refused the update."""
        return not self.refusals

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        lines = [*([] if self.log is None else [str(self.log)]), f"sessions: {counts}", str(self.propensities)]
        if self.change is not None:
            lines += [f"learned ({self.change.stage}): {describe_update(self.change)}"]
        for name, outcome in self.tests.items():
            lines.append(f"{name}: " + ", ".join(f"{key} {number:.4g}" for key, number in outcome.items()))
        lines += self.moved
        return "\n".join([*lines, *(f"refused: {reason}" for reason in self.refusals)] + ["accepted"] * self.accepted)


def normalized(text: str) -> str:
    """Return a query in lower case with single spaces, so that repeated queries are recognised.

    Args:
        text: Text of the query.
    """
    return " ".join(text.lower().split())


def learn_from_sessions(
    material: LearningData,
    sessions: Sequence[Session],
    *,
    margin: float = 0.01,
    level: float = 0.025,
    seed: int = 0,
    allow_anonymous: bool = False,
) -> LearningResult:
    """Learn from earlier sessions, few parameters first, and test the result on later sessions and on the guards.

    All sessions without an authenticated user together get the weight of a single user (:func:`user_weights`), because
    one client can send any number of them. If there are too few sessions of authenticated users, anonymous sessions
    count as sessions of different users, provided that the guards have at least ``MIN_JUDGED_QUERIES`` judged questions
    or ``allow_anonymous`` is set. Otherwise, the update is refused.

    Args:
        material: Scored lists of the queries. Sessions with other queries are ignored.
        sessions: Shown lists, in order of time.
        margin: Largest acceptable loss of mean nDCG@10 on a guard, above 0. A smaller loss is refused if it is
            significant.
        level: Level of the one-sided test on later sessions, in (0, 1].
        seed: Seed of the order of batches.
        allow_anonymous: Whether sessions without an authenticated user suffice without judged questions.

    Returns:
        The result, with the reasons for a refusal.

    Raises:
        ValueError: If `margin` is not positive, or `level` is outside (0, 1].
    """
    check_positive(margin=margin)
    check_positive_share(level=level)
    sessions = [session for session in sessions if normalized(session.query) in material.row]
    allow_anonymous = allow_anonymous or _num_judged(material) >= MIN_JUDGED_QUERIES
    needed = MIN_SESSIONS[FEW_PARAMETERS]
    divided = _divide(sessions, user_weights(sessions))
    too_few_users = min(divided.evidence, divided.later_evidence) < needed
    if too_few_users and allow_anonymous:
        divided = _divide(sessions, user_weights(sessions, anonymous_as_one=False))
    propensities = estimate_propensities(sessions, divided.weights)
    users = {session.known_user for session in sessions if any(session.gains)} - {None}
    learned = LearningResult(None, propensities, counts={**_counts(sessions, divided), "known users": len(users)})
    if (refusal := _lack_of_evidence(divided, needed, too_few_users and not allow_anonymous)) is not None:
        learned.refusals.append(refusal)
        return learned

    evidence = divided.num_fitted if too_few_users else divided.evidence
    estimate = _estimate(material, sessions, divided.weights, divided.fitted, propensities.curve)
    learned.change = change = _best_stage(material, estimate, evidence, seed)
    later_estimate = _estimate(material, sessions, divided.weights, divided.tested, propensities.cautious)
    outcome = _test_on_later(material, change, later_estimate, level, seed)
    learned.tests["later sessions"] = outcome
    if outcome["p"] > level:
        reason = (
            f"p = {outcome['p']:.3f}, required {level:g}; the rankings of {outcome['differing']:.0f} queries differ"
        )
        learned.refusals.append(f"not significantly better on later sessions ({reason})")
        return learned
    for guard in material.guards:
        loss = _guard(material, guard, change, seed)
        learned.tests[guard] = loss
        if loss["difference"] < -margin:
            learned.refusals.append(
                f"{MEASURE} on {guard} drops by {-loss['difference']:.3f}, which exceeds the margin of {margin:g}"
            )
        elif loss["p worse"] <= level:
            learned.refusals.append(f"significantly worse on {guard} (p = {loss['p worse']:.3f})")
    learned.moved = _moved(material, change, [material.row[normalized(session.query)] for session in sessions])
    return learned


def _estimate(
    material: LearningData, sessions: Sequence[Session], weights: Tensor, positions: Sequence[int], curve: Tensor
) -> Relevance:
    """Estimate the relevance of candidates from the sessions at some positions.

    Args:
        material: Scored lists of the queries.
        sessions: All ``S`` sessions.
        weights: Weight of each session, ``[S]``.
        positions: Positions of the sessions to use.
        curve: Propensity of each rank.
    """
    selected = [sessions[position] for position in positions]
    return estimate_relevance(
        selected,
        weights[list(positions)],
        [material.row[normalized(session.query)] for session in selected],
        material.columns,
        curve,
        material.lists.scores,
        material.lists.mask,
    )


def _lack_of_evidence(divided: "_Divided", needed: int, too_few_users: bool) -> str | None:
    """Return the reason why the sessions do not suffice for training and for the test, or None if they do.

    Args:
        divided: Weighted sessions of both parts.
        needed: Number of sessions with positive feedback that each part needs.
        too_few_users: Whether there are too few sessions of authenticated users, and anonymous ones may not replace
            them.
    """
    if min(divided.num_fitted, divided.num_tested) < needed:
        return (
            f"needs {needed} sessions with positive feedback for training and {needed} for the test, found "
            f"{divided.num_fitted} and {divided.num_tested}"
        )
    if not too_few_users:
        return None
    return (
        f"too few known users: the weight of each user is limited to 5 sessions or 2 %, and all sessions without an "
        f"authenticated user count as one user. This leaves {divided.evidence:.0f} sessions with positive feedback for "
        f"training and {divided.later_evidence:.0f} for the test, but {needed} are needed for each. Let the service "
        f"authenticate its users, provide {MIN_JUDGED_QUERIES} judged questions, or set allow_anonymous=true if only "
        f"trusted clients could write to the log"
    )


def _test_on_later(
    material: LearningData, change: ModelUpdate, estimate: Relevance, level: float, seed: int
) -> dict[str, float]:
    """Test an update on the relevance estimated from later sessions.

    The quick test uses approximate scores. Exact scores are computed only if the quick test is significant.

    Args:
        material: Lists of the queries.
        change: Update to test.
        estimate: Relevance estimated from later sessions, with cautious propensities.
        level: Level of the one-sided test, in (0, 1].
        seed: Seed of the sign flips.

    Returns:
        ``estimated clicks more`` per session, ``p``, number of ``queries``, and number of ``differing`` ones.
    """
    tested_rows = estimate.sessions.nonzero().flatten()
    estimate, lists = estimate.select(tested_rows), material.lists.select(tested_rows)

    def test(scores: Tensor) -> dict[str, float]:
        differences = compare_worth(scores, lists.scores, lists.nodes, estimate)
        differing = differences[differences != 0]
        p = 1.0
        if len(differing) >= MIN_TEST_QUERIES:
            p = float(randomization_tests(differing, seed=seed)[1])
        gain = float(differences.sum() / estimate.weight.sum())
        return {"estimated clicks more": gain, "p": p, "queries": len(tested_rows), "differing": len(differing)}

    outcome = test(quick_scores(change, material.model, material.prepared, material.lists, tested_rows))
    if outcome["p"] <= level:
        outcome = test(exact_scores(change.model, material.prepared, tested_rows))
    return outcome


@dataclass(frozen=True)
class _Divided:
    """Sessions for training and for the test, and the amount of positive feedback in each part.

    Attributes:
        weights: Weight of each session, ``[S]``.
        fitted: Positions of the sessions for training.
        tested: Positions of the sessions for the test.
        num_fitted: Number of training sessions with positive feedback.
        num_tested: Number of test sessions with positive feedback.
        evidence: Sum of the weights of the training sessions with positive feedback.
        later_evidence: Sum of the weights of the test sessions with positive feedback.
    """

    weights: Tensor
    fitted: list[int]
    tested: list[int]
    num_fitted: int
    num_tested: int
    evidence: float
    later_evidence: float


def _divide(sessions: Sequence[Session], weights: Tensor) -> _Divided:
    """Split weighted sessions into training and test, and count the positive feedback of each part."""
    fitted, tested = split_sessions(sessions, weights)
    is_positive = torch.tensor([any(session.gains) for session in sessions], dtype=torch.bool)
    return _Divided(
        weights,
        fitted,
        tested,
        num_fitted=int(is_positive[fitted].sum()),
        num_tested=int(is_positive[tested].sum()),
        evidence=float((weights * is_positive)[fitted].sum()),
        later_evidence=float((weights * is_positive)[tested].sum()),
    )


def _counts(sessions: Sequence[Session], divided: _Divided) -> dict[str, int]:
    """Return the numbers of sessions for the report."""
    return {
        "shown": len(sessions),
        "with positive feedback to learn from": divided.num_fitted,
        "to test on": divided.num_tested,
    }


def split_sessions(sessions: Sequence[Session], weights: Tensor | None = None) -> tuple[list[int], list[int]]:
    """Split sessions by time and by query into a training part and a later test part without common queries.

    A query with sessions in both periods goes to one part, chosen by a hash, and its sessions of the other period are
    ignored.

    Args:
        sessions: ``S`` sessions, each a list that was shown with the feedback on it.
        weights: Weight of each session, ``[S]``. The earlier period ends at 60 % of the weight with positive feedback,
            so that a user with many sessions cannot shift its end. If None, all sessions have the same weight.

    Returns:
        Positions of the training sessions, and positions of the test sessions.
    """
    session_weights = [1.0] * len(sessions) if weights is None else weights.tolist()
    end = _end_of_training(sessions, session_weights)
    is_late = [session.time >= end for session in sessions]
    queries = [normalized(session.query) for session in sessions]
    early_queries = {query for query, late in zip(queries, is_late, strict=True) if not late}
    late_queries = {query for query, late in zip(queries, is_late, strict=True) if late}
    test_queries = {query for query in late_queries if query not in early_queries or hash_texts([query])[0] % 2}
    fitted = [index for index, query in enumerate(queries) if not is_late[index] and query not in test_queries]
    tested = [index for index, query in enumerate(queries) if is_late[index] and query in test_queries]
    return fitted, tested


def _end_of_training(sessions: Sequence[Session], weights: Sequence[float]) -> float:
    """Return the time until which sessions have ``TRAINING_SHARE`` of the weight with positive feedback."""
    positive = sorted(
        (session.time, weight) for session, weight in zip(sessions, weights, strict=True) if any(session.gains)
    )
    training_weight = TRAINING_SHARE * sum(weight for _, weight in positive)
    total = 0.0
    for time, weight in positive:
        total += weight
        if total > training_weight:
            return time
    return 0.0


def describe_update(change: ModelUpdate) -> str:
    """Return a description of the learned weights: retriever relative to model, and the weight of each edge type.

    Args:
        change: Learned update.

    Returns:
        One sentence part per factor, or "weights of the model" if the update is not described by factors.

    Example:
        >>> model = GATv2Reranker(num_edge_types=5)
        >>> describe_update(ModelUpdate("few parameters", model, {"retriever": 0.8, "model": 1.0, "reference": 1.3}))
        'the weight of the retriever relative to the model is multiplied by 0.8; the weight of reference edges by 1.3'
    """
    factors = dict(change.factors)
    if not factors:
        return "weights of the model"
    trust = factors.pop("retriever") / factors.pop("model")
    changes = [f"the weight of the retriever relative to the model is multiplied by {trust:.2g}"]
    changes += [f"the weight of {name} edges by {factor:.2g}" for name, factor in factors.items()]
    return "; ".join(changes)


def _num_judged(material: LearningData) -> int:
    """Return the number of judged questions in the guards."""
    return len(material.prepared.dataset.split(JUDGED_GUARD).queries) if JUDGED_GUARD in material.guards else 0


def _best_stage(material: LearningData, estimate: Relevance, evidence: float, seed: int) -> ModelUpdate:
    """Fit the best stage on all queries.

    Each stage is first fitted on three quarters of the queries and compared on the others. A stage with more parameters
    is chosen only if it is better by more than one standard error.
    """
    inputs = material.model, material.prepared, material.lists
    queries = estimate.sessions.nonzero().flatten()
    targets = _targets(material, estimate)
    texts = [normalized(material.prepared.dataset.query_texts[row]) for row in queries.tolist()]
    is_held_out = torch.tensor([hash_texts([text])[1] % CHOOSING == 0 for text in texts])
    fitted_queries = queries[~is_held_out]
    held_out_queries = queries[is_held_out]
    stages = [stage for stage, needed in MIN_SESSIONS.items() if evidence >= needed]
    if len(stages) < 2 or not len(fitted_queries) or not len(held_out_queries):
        return fit_stage(FEW_PARAMETERS, *inputs, queries, targets, seed=seed)
    best_stage = FEW_PARAMETERS
    best_scores = None
    for stage in stages:
        change = fit_stage(stage, *inputs, fitted_queries, targets, seed=seed)
        scores = quick_scores(change, *inputs, held_out_queries)
        if best_scores is not None:
            nodes = material.lists.nodes[held_out_queries]
            gain = compare_worth(scores, best_scores, nodes, estimate.select(held_out_queries))
            if float(gain.mean()) <= float(gain.std()) / len(gain) ** 0.5:
                continue
        best_stage = stage
        best_scores = scores
    return fit_stage(best_stage, *inputs, queries, targets, seed=seed)


def _targets(material: LearningData, estimate: Relevance) -> Tensor:
    """Return the estimated relevance, mixed with the parent's softmax scores as a prior."""
    lists = material.lists
    parent_shares = torch.softmax(lists.scores.double().masked_fill(~lists.mask, -1e30), dim=1) * lists.mask
    weighted_gain = estimate.weight.unsqueeze(1) * estimate.gain
    has_session = estimate.sessions > 0
    mean_gain = float(weighted_gain.clamp(min=0).sum()) / max(float(estimate.weight.sum()), 1e-9)  # per session
    prior_weight = PRIOR_SESSIONS * mean_gain / max(int(has_session.sum()), 1)
    return weighted_gain + parent_shares * has_session.unsqueeze(1) * prior_weight


def _guard(material: LearningData, guard: str, change: ModelUpdate, seed: int) -> dict[str, float]:
    """Compare an update with the parent model on the questions of a guard.

    Returns:
        Mean nDCG@10 of the parent model (``before``), mean ``difference`` to it, and the p-value ``p worse`` of the
        one-sided test that the update is worse.
    """
    dataset = material.prepared.dataset
    qrels = dataset.split(guard)
    nodes = material.lists.nodes[qrels.queries]

    def measure(scores: Tensor) -> Tensor:
        ranking = Ranking(nodes.gather(1, order(scores, nodes)), scores)
        return measure_ranking(dataset, qrels, qrels.queries, ranking, [MEASURE])[MEASURE]

    before = measure(material.lists.scores[qrels.queries])
    after = measure(exact_scores(change.model, material.prepared, qrels.queries))
    difference = (after - before).nan_to_num(0.0)
    p = float(randomization_tests(-difference, seed=seed)[1])
    return {"before": float(before.nanmean()), "difference": float(difference.mean()), "p worse": p}


def _moved(material: LearningData, change: ModelUpdate, rows: Sequence[int]) -> list[str]:
    """Return lines that list the passages that move into the first ranks for the most frequent queries."""
    frequent = Counter(rows).most_common(NUM_REPORTED_QUERIES)
    queries = torch.tensor([row for row, _ in frequent])
    lists = material.lists.select(queries)
    ids = material.prepared.dataset.graph.node_ids
    new = order(exact_scores(change.model, material.prepared, queries), lists.nodes).tolist()
    old = order(lists.scores, lists.nodes).tolist()
    lines = ["the most frequent queries:"]
    for index, (row, count) in enumerate(frequent):
        before = {column: rank for rank, column in enumerate(old[index], 1)}
        risen = [
            f"{ids[int(lists.nodes[index, column])]} {before[column]} -> {rank}"
            for rank, column in enumerate(new[index][:NUM_REPORTED_PASSAGES], 1)
            if before[column] != rank and int(lists.nodes[index, column]) >= 0
        ]
        text = material.prepared.dataset.query_texts[row]
        lines.append(f"  {count:,} x {text[:60]!r}: {', '.join(risen) or 'the first three are unchanged'}")
    return lines
