"""Attacks on a log: what strangers can write into it does not teach the ranker."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.feedback.learning import (
    JUDGED_GUARD,
    MIN_JUDGED_QUERIES,
    LearningData,
    learn_from_sessions,
    split_sessions,
)
from graphrerank.feedback.log import OTHER_USER, Session, read_log
from graphrerank.feedback.propensity import USER_SESSIONS, USER_SHARE, user_weights
from graphrerank.feedback.relevance import order
from graphrerank.feedback.stages import exact_scores
from tests.feedback.conftest import TOPICS, Simulate, question
from tests.feedback.test_log import NOW, feedback, shown, write

SESSIONS = 700


def poisoned(material: LearningData, count: int = SESSIONS, seed: int = 0) -> list[Session]:
    """Return lists without a user in which the first three passages ``t`` are accepted and three others dismissed."""
    rng, ids = random.Random(seed), material.prepared.dataset.graph.node_ids
    best = order(material.lists.scores, material.lists.nodes)[:, :8]
    sessions = []
    for number in range(count):
        text = question(rng.randrange(TOPICS))
        row = material.row[text]
        names = tuple(ids[int(node)] for node in material.lists.nodes[row, best[row]])
        accepted = [at for at, name in enumerate(names) if name.startswith("t")][:3]
        gains = tuple(2.0 if at in accepted else 0.0 for at in range(len(names)))
        sessions.append(Session(str(number), float(number), None, text, names, gains))
    return sessions


def judged(material: LearningData, count: int = TOPICS) -> Dataset:
    """Return the data set with judgements that passages ``p<n>`` and ``o<n>`` answer question n, and ``t<n>`` not."""
    dataset = material.prepared.dataset
    ids = {name: node for node, name in enumerate(dataset.graph.node_ids)}
    topics = {row: text.split("word")[1].split("a")[0] for text, row in list(material.row.items())[:count]}
    rows = [(row, ids[f"{letter}{topic}"], 1.0) for row, topic in topics.items() for letter in "po"]
    return replace(dataset, splits={JUDGED_GUARD: Qrels.from_rows(rows)}, known_fingerprint="x")


def guarded(material: LearningData, count: int = TOPICS) -> LearningData:
    prepared = replace(material.prepared, dataset=judged(material, count))
    return replace(material, prepared=prepared, guards=[JUDGED_GUARD])


def ndcg(material: LearningData, scores: torch.Tensor) -> float:
    dataset, nodes = judged(material), material.lists.nodes
    qrels = dataset.split(JUDGED_GUARD)
    ranking = Ranking(nodes.gather(1, order(scores, nodes)), scores)
    return float(measure_ranking(dataset, qrels, qrels.queries, ranking, ["nDCG@10"])["nDCG@10"].mean())


def test_a_poisoned_log_without_users_is_refused(material: LearningData) -> None:
    learned = learn_from_sessions(material, poisoned(material))
    assert not learned.accepted
    assert "too few known users" in learned.refusals[0]
    assert "allow_anonymous=true" in learned.refusals[0]


def test_the_flag_accepts_it_and_the_harm_is_real(material: LearningData) -> None:
    """The update that the flag lets through loses on judged questions, so the refusal is not for show."""
    learned = learn_from_sessions(material, poisoned(material), allow_anonymous=True)
    assert learned.accepted, str(learned)
    assert learned.change is not None
    every = torch.arange(len(material.lists.nodes))
    lost = ndcg(material, material.lists.scores) - ndcg(
        material, exact_scores(learned.change.model, material.prepared, every)
    )
    assert lost > 0.02


def test_enough_judged_questions_stand_in_for_users(material: LearningData, simulate: Simulate) -> None:
    """Judgements refuse the poison; an honest log without users is not held back by the lack of users."""
    learned = learn_from_sessions(guarded(material), poisoned(material))
    assert "judged questions" in learned.refusals[0]
    assert "known users" not in str(learned.refusals)
    few = learn_from_sessions(guarded(material, MIN_JUDGED_QUERIES - 1), poisoned(material))
    assert "too few known users" in few.refusals[0]


def invented(sessions: list[Session]) -> list[Session]:
    """Give each session a user that its client invented."""
    return [replace(each, user=f"invented {at}", authenticated=False) for at, each in enumerate(sessions)]


def of_one_account(sessions: list[Session]) -> list[Session]:
    """Give all sessions one authenticated user."""
    return [replace(each, user="mallory") for each in sessions]


def of_few_accounts(sessions: list[Session]) -> list[Session]:
    """Give the sessions eight authenticated users."""
    return [replace(each, user=f"mallory {at % 8}") for at, each in enumerate(sessions)]


@pytest.mark.parametrize("disguise", [invented, of_one_account, of_few_accounts])
@pytest.mark.parametrize("count", [SESSIONS, 4000])
def test_disguises_do_not_help(
    material: LearningData, disguise: Callable[[list[Session]], list[Session]], count: int
) -> None:
    learned = learn_from_sessions(material, disguise(poisoned(material, count)))
    assert "too few known users" in learned.refusals[0]


@pytest.mark.parametrize("disguise", [list, invented, of_one_account])
def test_a_flood_next_to_honest_users_changes_nothing(
    material: LearningData, simulate: Simulate, disguise: Callable[[list[Session]], list[Session]]
) -> None:
    """Honest users who want nothing are not outvoted by ten times as many sessions of a stranger."""
    honest = simulate(700, "anything", seed=1)
    flood = [replace(each, request_id=f"f{each.request_id}", time=each.time / 10) for each in poisoned(material, 7000)]
    sessions = sorted([*honest, *disguise(flood)], key=lambda session: session.time)
    weights = user_weights(sessions)
    strangers = torch.tensor([session.request_id.startswith("f") for session in sessions])
    assert float(weights[strangers].sum()) <= USER_SHARE * float(weights.sum()) + 1e-9
    assert not learn_from_sessions(material, sessions).accepted


def test_a_flood_does_not_keep_honest_users_from_teaching(material: LearningData, simulate: Simulate) -> None:
    """Neither by its number, nor by moving the time at which the test begins."""
    honest = simulate(1500)
    late = [
        replace(each, request_id=f"f{each.request_id}", time=1500.0 + each.time) for each in poisoned(material, 3000)
    ]
    noise = [replace(each, gains=each.gains[::-1]) for each in late]
    learned = learn_from_sessions(material, [*honest, *noise])
    assert learned.accepted, str(learned)
    fitted, tested = split_sessions([*honest, *noise], user_weights([*honest, *noise]))
    assert max(fitted) < 1000 < 1500 < max(tested)


@pytest.mark.parametrize("counts", [[700], [5, 5], [1000, *[1] * 900], [300, 200, *[2] * 300], [50] * 60, [50] * 40])
def test_the_limit_of_a_user_against_naive_search(counts: list[int]) -> None:
    """Against the largest limit, in small steps, that is at most 2 % of all sessions under that limit."""
    sessions = [
        Session(f"{user} {at}", 0.0, f"u{user}", f"q{at}", ("a",), (1.0,))
        for user, count in enumerate(counts)
        for at in range(count)
    ]
    weights = user_weights(sessions)
    steps = [step / 1000 for step in range(1, 60_001)]
    users = Counter(counts)  # by their number of sessions
    most = max([USER_SESSIONS, *(c for c in steps if c <= USER_SHARE * sum(min(n, c) * users[n] for n in users))])
    of_user = [float(of_one.sum()) for of_one in weights.split(counts)]
    assert of_user == pytest.approx([min(count, most) for count in counts], abs=2e-3)


def test_the_weight_of_a_stranger_can_only_lower(tmp_path: Path) -> None:
    lines = []
    for name, given in (("known", {}), ("none", {"user": None}), ("invented", {"authenticated": False})):
        lines += [shown(name, **given), feedback(name, clicked=["a"], weight=10, user=None)]
        lines += [feedback(name, accepted=["b"], weight=0.1, user=None)]
    gains = {each.request_id: each.gains for each in read_log(write(tmp_path / "log.jsonl", *lines), now=NOW).sessions}
    assert gains["known"] == (10.0, 0.2, 0.0)
    assert gains["none"] == gains["invented"] == (1.0, 0.2, 0.0)


def test_replays_and_duplicates_count_once(tmp_path: Path) -> None:
    again = [feedback("r", clicked=["a"], time=NOW - 90 + second, weight=1 + second) for second in range(50)]
    lines = [shown("r"), *again, *again, shown("r"), shown("r", ids=["c"], query="other")]
    log = read_log(write(tmp_path / "log.jsonl", *lines), now=NOW)
    assert [each.gains for each in log.sessions] == [(10.0, 0.0, 0.0)]
    assert log.left_out["doubled"] == 52


def test_feedback_of_another_user_is_left_out(tmp_path: Path) -> None:
    lines = [
        shown("r", user="ann"),
        feedback("r", user="bob", accepted=["a"]),
        feedback("r", user="ann", clicked=["b"]),
    ]
    log = read_log(write(tmp_path / "log.jsonl", *lines), now=NOW)
    assert log.sessions[0].gains == (0.0, 1.0, 0.0)
    assert log.left_out == {OTHER_USER: 1}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (feedback("r", clicked=["a"], weight=float("nan")), "malformed"),
        (feedback("r", clicked=["a"], weight=float("inf")), "malformed"),
        (feedback("r", clicked=["a"], weight=-1), "malformed"),
        (feedback("r", clicked=["a"], weight="9"), "malformed"),
        (feedback("r", clicked=["a"] * 1001), "malformed"),
        (feedback("r", clicked=["a"], time=float("nan")), "malformed"),
        (feedback("r", clicked=["a"], time=10**400), "malformed"),
        (feedback("r", clicked=["a"], time="0001-01-01T00:00:00+23:59"), "clock jump"),
        (feedback("r", clicked=["a"], time=NOW + 100_000), "clock jump"),
        (feedback("r", clicked=["a"], time=NOW - 400), "clock jump"),
        (feedback("never shown", clicked=["a"]), "feedback for nothing shown"),
        (feedback("r", clicked=["z"]), "unknown id"),
        (feedback("r", clicked=[0]), "unknown id"),
        (shown("s", swaps=[[1, 2, 0.0]]), "malformed"),
        (shown("s", swaps=[[1, 2, float("nan")]]), "malformed"),
        (shown("s", swaps=[[1, 2, 0.5], [2, 1, 0.5]]), "malformed"),
        (shown("s", swaps=[[1, 1, 0.5]]), "malformed"),
        (shown("s", authenticated="yes"), "malformed"),
    ],
)
def test_what_is_out_of_bounds_is_left_out(tmp_path: Path, event: dict[str, object], reason: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (shown("r"), event)))
    log = read_log(path, now=NOW)
    assert log.left_out == {reason: 1}
    assert [each.gains for each in log.sessions] == [(0.0, 0.0, 0.0)]
