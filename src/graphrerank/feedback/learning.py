"""Learn from sessions, and accept the result only if later sessions and a guard set agree that it is no worse."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
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

TRAINING_SHARE = 0.6  # share of the sessions with positive feedback that come before those of the test
CHOOSING = 4  # one in so many queries chooses the stage
PRIOR_SESSIONS = 100.0  # that the parent's ranking counts as
MIN_TEST_QUERIES = 30  # queries on which the rankings differ
NUM_REPORTED_QUERIES, NUM_REPORTED_PASSAGES = 10, 3  # queries, and passages of each, in the report
MEASURE = "nDCG@10"
DRAFTED_GUARD, JUDGED_GUARD = "drafted questions", "judged questions"  # names of guards
MIN_JUDGED_QUERIES = 30  # judged questions that can stand in for known users


@dataclass(frozen=True)
class LearningData:
    """A corpus with the queries of a log and of guards, ranked and scored by the parent once."""

    prepared: PreparedDataset
    model: GATv2Reranker
    lists: ScoredLists  # of all queries
    row: Mapping[str, int]  # of each query's normalised text
    columns: Sequence[dict[str, int]]  # for each row, the column of each passage id
    guards: Sequence[str] = ()  # splits of questions with known answers, on which nothing may get worse

    @classmethod
    def of(cls, prepared: PreparedDataset, model: Any, guards: Sequence[str] = ()) -> "LearningData":
        """Score all queries of a data set with features."""
        lists, ids = score_lists(model, prepared), prepared.dataset.graph.node_ids
        columns = [{ids[node]: at for at, node in enumerate(nodes) if node >= 0} for nodes in lists.nodes.tolist()]
        row = {normalized(text): at for at, text in reversed(list(enumerate(prepared.dataset.query_texts)))}
        return cls(prepared, model, lists, row, columns, guards)


@dataclass
class LearningResult:
    """Result of learning from a log, and whether it was accepted."""

    change: ModelUpdate | None  # None where there was too little to learn from
    propensities: Propensities
    refusals: list[str] = field(default_factory=list)  # empty: accepted
    tests: dict[str, dict[str, float]] = field(default_factory=dict)  # by `later sessions` and name of the guard
    counts: Mapping[str, int] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)  # what changed for the most frequent queries
    log: FeedbackLog | None = None
    checkpoint: Checkpoint | None = None  # with its lineage, where it was accepted and has a parent's manifest

    @property
    def accepted(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.refusals

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        lines = [*([] if self.log is None else [str(self.log)]), f"sessions: {counts}", str(self.propensities)]
        if self.change is not None:
            lines += [f"learned ({self.change.stage}): {describe_update(self.change)}"]
        for name, found in self.tests.items():
            lines.append(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()))
        lines += self.moved
        return "\n".join([*lines, *(f"refused: {reason}" for reason in self.refusals)] + ["accepted"] * self.accepted)


def normalized(text: str) -> str:
    """Return a query as repeats of it are recognised: without capitals and further blanks."""
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
    """Learn from the earlier sessions, few parameters first, and test the result on later ones and on the guards.

    Sessions without an authenticated user count as those of one user (:func:`user_weights`), because one client can
    send any number of them. Where the sessions of known users are too few to learn from or to test on, they count as
    those of different users if at least ``MIN_JUDGED_QUERIES`` judged questions guard, or if ``allow_anonymous`` says
    so; otherwise the result is refused.

    Args:
        material: What the sessions' queries rank; a session whose query it lacks does not count.
        sessions: Lists shown, by time.
        margin: Points of nDCG@10, from 0 to 1, that a guard may lose on average; more is refused, and so is less if it
            is significant.
        level: Of the one-sided test on later sessions, in (0, 1].
        seed: Seed of the order of batches.
        allow_anonymous: Whether sessions without an authenticated user may be accepted without judged questions.

    Returns:
        The result, with the reasons against it where it is refused.

    Raises:
        ValueError: If `margin` is not positive, or `level` is outside (0, 1].
    """
    check_positive(margin=margin)
    check_positive_share(level=level)
    sessions = [session for session in sessions if normalized(session.query) in material.row]
    rows = [material.row[normalized(session.query)] for session in sessions]
    allow_anonymous = allow_anonymous or _num_judged(material) >= MIN_JUDGED_QUERIES
    divided, needed = _divide(sessions, user_weights(sessions)), MIN_SESSIONS[FEW_PARAMETERS]
    too_few_users = min(divided.evidence, divided.later_evidence) < needed
    if too_few_users and allow_anonymous:
        divided = _divide(sessions, user_weights(sessions, anonymous_as_one=False))
    propensities = estimate_propensities(sessions, divided.weights)
    users = {session.known_user for session in sessions if any(session.gains)} - {None}
    learned = LearningResult(None, propensities, counts={**_counts(sessions, divided), "known users": len(users)})
    if (refusal := _lack_of_evidence(divided, needed, too_few_users and not allow_anonymous)) is not None:
        learned.refusals.append(refusal)
        return learned

    def relevance(positions: Sequence[int], curve: Tensor) -> Relevance:
        return estimate_relevance(
            [sessions[position] for position in positions],
            divided.weights[list(positions)],
            [rows[position] for position in positions],
            material.columns,
            curve,
            material.lists.scores,
            material.lists.mask,
        )

    evidence = divided.num_fitted if too_few_users else divided.evidence
    learned.change = change = _best_stage(material, relevance(divided.fitted, propensities.curve), evidence, seed)
    outcome = _test_on_later(material, change, relevance(divided.tested, propensities.cautious), level, seed)
    learned.tests["later sessions"] = outcome
    if outcome["p"] > level:
        reason = f"p {outcome['p']:.3f}, needs {level:g}, {outcome['differing']:.0f} queries differ"
        learned.refusals.append(f"not significantly better on later sessions ({reason})")
        return learned
    for guard in material.guards:
        learned.tests[guard] = loss = _guard(material, guard, change, seed)
        if loss["difference"] < -margin:
            learned.refusals.append(f"loses {-loss['difference']:.3f} of {MEASURE} on {guard}, margin {margin:g}")
        elif loss["p worse"] <= level:
            learned.refusals.append(f"significantly worse on {guard} (p {loss['p worse']:.3f})")
    learned.moved = _moved(material, change, rows)
    return learned


def _lack_of_evidence(divided: "_Divided", needed: int, too_few_users: bool) -> str | None:
    """Return why the sessions are too few to learn from and to test on, or None if they suffice.

    Args:
        divided: Sessions with the limits of single users applied.
        needed: Number of sessions with positive feedback that each part needs.
        too_few_users: Whether the sessions of known users are too few and those of others may not stand in for them.
    """
    if min(divided.num_fitted, divided.num_tested) < needed:
        reason = "sessions with positive feedback to learn from and to test on"
        return f"needs {needed} {reason}, found {divided.num_fitted} and {divided.num_tested}"
    if not too_few_users:
        return None
    return (
        f"too few known users: no user counts for more than 5 sessions or 2 %, and all sessions without an "
        f"authenticated user count as those of one user, which leaves {divided.evidence:.0f} sessions with "
        f"positive feedback to learn from and {divided.later_evidence:.0f} to test on, where {needed} are needed; "
        f"let the service know its users, give {MIN_JUDGED_QUERIES} judged questions, or set allow_anonymous=true if "
        f"no stranger could write to the log"
    )


def _test_on_later(
    material: LearningData, change: ModelUpdate, estimate: Relevance, level: float, seed: int
) -> dict[str, float]:
    """Test a change on the relevance that later sessions show, exactly only where the quick test allows it.

    Args:
        material: Lists of the queries.
        change: ModelUpdate to test.
        estimate: Relevance estimated from later sessions, with cautious propensities.
        level: Level of the one-sided test, in (0, 1].
        seed: Seed of the sign flips.

    Returns:
        ``estimated clicks more`` per session, ``p``, and the numbers of ``queries`` and of ``differing`` ones.
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
    """Sessions to fit on and later ones to test on, and how much positive feedback there is in each part.

    Attributes:
        weights: Weight of each session, ``[S]``.
        fitted: Positions of the sessions to fit on.
        tested: Positions of the sessions to test on.
        num_fitted: Number of sessions with positive feedback among those to fit on.
        num_tested: The same among those to test on.
        evidence: Sum of the weights of the sessions that ``num_fitted`` counts.
        later_evidence: The same for ``num_tested``.
    """

    weights: Tensor
    fitted: list[int]
    tested: list[int]
    num_fitted: int
    num_tested: int
    evidence: float
    later_evidence: float


def _divide(sessions: Sequence[Session], weights: Tensor) -> _Divided:
    """Divide weighted sessions, and count the positive feedback of both parts."""
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
    """Divide sessions by time and by query: places of those to fit on, and of later ones of other queries to test on.

    A query of both times is fitted or tested by a hash, and its other sessions are left out.

    Args:
        sessions: ``S`` lists shown.
        weights: ``[S]`` weight of each. The first 60 % of the weight with positive feedback is the earlier part, so
            that a user who sends many sessions does not decide when the later part begins. If None, all weigh the same.

    Returns:
        Positions of the sessions to fit on, and of those to test on.
    """
    each = [1.0] * len(sessions) if weights is None else weights.tolist()
    timed = sorted((session.time, weight) for session, weight in zip(sessions, each, strict=True) if any(session.gains))
    earlier = TRAINING_SHARE * sum(weight for _, weight in timed)
    reached = accumulate(weight for _, weight in timed)
    cut = next((time for (time, _), total in zip(timed, reached, strict=True) if total > earlier), 0.0)
    late = [session.time >= cut for session in sessions]
    queries = [normalized(session.query) for session in sessions]
    before = {query for query, is_late in zip(queries, late, strict=True) if not is_late}
    after = {query for query, is_late in zip(queries, late, strict=True) if is_late}
    tests = {query for query in after if query not in before or hash_texts([query])[0] % 2}
    fitted = [at for at, query in enumerate(queries) if not late[at] and query not in tests]
    return fitted, [at for at, query in enumerate(queries) if late[at] and query in tests]


def describe_update(change: ModelUpdate) -> str:
    """Say what few parameters mean: how much the retriever counts against the model, and each type of edges."""
    factors = dict(change.factors)
    if not factors:
        return "weights of the model"
    trust = factors.pop("retriever") / factors.pop("model")
    parts = [f"the retriever counts {trust:.2g} times as much against the model"]
    return "; ".join([*parts, *(f"edges of type {name} count {factor:.2g} times" for name, factor in factors.items())])


def _num_judged(material: LearningData) -> int:
    """Return the number of judged questions that guard."""
    return len(material.prepared.dataset.split(JUDGED_GUARD).queries) if JUDGED_GUARD in material.guards else 0


def _best_stage(material: LearningData, estimate: Relevance, evidence: float, seed: int) -> ModelUpdate:
    """Fit the stage that three quarters of the queries show to be best on the others; of equals the smaller one."""
    parts = material.model, material.prepared, material.lists
    asked, targets = estimate.sessions.nonzero().flatten(), _targets(material, estimate)
    texts = [normalized(material.prepared.dataset.query_texts[row]) for row in asked.tolist()]
    chooses = torch.tensor([hash_texts([text])[1] % CHOOSING == 0 for text in texts])
    learning, choosing = asked[~chooses], asked[chooses]
    chosen, best = FEW_PARAMETERS, None
    stages = [stage for stage, needed in MIN_SESSIONS.items() if evidence >= needed]
    for stage in stages if len(stages) > 1 and len(learning) and len(choosing) else ():
        change = fit_stage(stage, *parts, learning, targets, seed=seed)
        scores = quick_scores(change, *parts, choosing)
        if best is not None:
            gain = compare_worth(scores, best, material.lists.nodes[choosing], estimate.select(choosing))
            if float(gain.mean()) <= float(gain.std()) / len(gain) ** 0.5:
                continue
        chosen, best = stage, scores
    return fit_stage(chosen, *parts, asked, targets, seed=seed)


def _targets(material: LearningData, estimate: Relevance) -> Tensor:
    """Mix estimated relevance with the parent's own shares, which count as a number of sessions."""
    lists = material.lists
    of_parent = torch.softmax(lists.scores.double().masked_fill(~lists.mask, -1e30), dim=1) * lists.mask
    data, asked = estimate.weight.unsqueeze(1) * estimate.gain, estimate.sessions > 0
    mass = float(data.clamp(min=0).sum()) / max(float(estimate.weight.sum()), 1e-9)  # of a session
    return data + of_parent * asked.unsqueeze(1) * (PRIOR_SESSIONS * mass / max(int(asked.sum()), 1))


def _guard(material: LearningData, guard: str, change: ModelUpdate, seed: int) -> dict[str, float]:
    dataset, qrels = material.prepared.dataset, material.prepared.dataset.split(guard)
    nodes, scores = material.lists.nodes[qrels.queries], material.lists.scores[qrels.queries]

    def measured(scores: Tensor) -> Tensor:
        ranking = Ranking(nodes.gather(1, order(scores, nodes)), scores)
        return measure_ranking(dataset, qrels, qrels.queries, ranking, [MEASURE])[MEASURE]

    before, after = measured(scores), measured(exact_scores(change.model, material.prepared, qrels.queries))
    difference = (after - before).nan_to_num(0.0)
    p = float(randomization_tests(-difference, seed=seed)[1])
    return {"before": float(before.nanmean()), "difference": float(difference.mean()), "p worse": p}


def _moved(material: LearningData, change: ModelUpdate, rows: Sequence[int]) -> list[str]:
    """Describe what comes to the first ranks for the most frequent queries."""
    frequent = Counter(rows).most_common(NUM_REPORTED_QUERIES)
    queries = torch.tensor([row for row, _ in frequent])
    lists, ids = material.lists.select(queries), material.prepared.dataset.graph.node_ids
    new, old = (
        order(scores, lists.nodes).tolist()
        for scores in (exact_scores(change.model, material.prepared, queries), lists.scores)
    )
    lines = ["the most frequent queries:"]
    for at, (row, count) in enumerate(frequent):
        before = {column: rank for rank, column in enumerate(old[at], 1)}
        risen = [
            f"{ids[int(lists.nodes[at, column])]} {before[column]} -> {rank}"
            for rank, column in enumerate(new[at][:NUM_REPORTED_PASSAGES], 1)
            if before[column] != rank and int(lists.nodes[at, column]) >= 0
        ]
        text = material.prepared.dataset.query_texts[row]
        lines.append(f"  {count:,} x {text[:60]!r}: {', '.join(risen) or 'the same first three'}")
    return lines
