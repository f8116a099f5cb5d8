from dataclasses import replace

import pytest

from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.feedback.learning import LearningData, LearningResult, learn_from_sessions, split_sessions
from graphrerank.feedback.log import Session
from tests.feedback.conftest import Simulate


def test_what_users_click_is_learned_and_accepted(material: LearningData, simulate: Simulate) -> None:
    learned = learn_from_sessions(material, simulate(1500))
    assert learned.accepted, str(learned)
    assert learned.tests["later sessions"]["estimated clicks more"] > 0.05
    assert "t" in "".join(learned.moved)
    assert str(learned).endswith("accepted")


@pytest.mark.parametrize("wants", ["anything", "first"])
def test_nothing_to_learn_is_refused(material: LearningData, simulate: Simulate, wants: str) -> None:
    for seed in range(3):
        learned = learn_from_sessions(material, simulate(1000, wants, seed))
        assert not learned.accepted
        assert "not significantly better on later sessions" in str(learned)


def test_few_sessions_are_refused_with_the_number_needed(material: LearningData, simulate: Simulate) -> None:
    learned = learn_from_sessions(material, simulate(20))
    assert learned.change is None
    assert "needs 30 sessions with positive feedback" in learned.refusals[0]


def test_one_loud_user_teaches_nothing(material: LearningData, simulate: Simulate) -> None:
    loud = [Session(**{**vars(session), "user": "loud"}) for session in simulate(1500)]
    quiet = simulate(400, "anything", seed=1)
    learned = learn_from_sessions(material, sorted([*loud, *quiet], key=lambda session: session.time))
    assert not learned.accepted


def test_sessions_of_other_queries_are_ignored(material: LearningData, simulate: Simulate) -> None:
    other = Session("r", 1e9, None, "asked of another corpus", ("p1",), (1.0,))
    assert learn_from_sessions(material, [*simulate(20), other]).counts["shown"] == 20


def test_split_by_time_and_query() -> None:
    sessions = [
        Session(str(n), float(n), None, f"Q{n % 37}" if n % 3 else f"new {n}", ("a",), (1.0,)) for n in range(600)
    ]
    fitted, tested = split_sessions(sessions)
    assert max(sessions[at].time for at in fitted) < min(sessions[at].time for at in tested)
    asked = [{sessions[at].query for at in part} for part in (fitted, tested)]
    assert not asked[0] & asked[1]
    assert min(len(fitted), len(tested)) > 100


def test_a_worse_guard_refuses(material: LearningData, simulate: Simulate, linked: Dataset) -> None:
    """Judged questions say the opposite of the clicks."""
    dataset = material.prepared.dataset
    ids = {name: node for node, name in enumerate(dataset.graph.node_ids)}
    rows = [(row, ids[f"p{text.split('word')[1].split('a')[0]}"], 1.0) for text, row in material.row.items()]
    judged = replace(dataset, splits={"judged": Qrels.from_rows(rows)}, known_fingerprint="x")
    guarded = replace(material, prepared=replace(material.prepared, dataset=judged), guards=["judged"])
    learned: LearningResult = learn_from_sessions(guarded, simulate(1500))
    assert "nDCG@10 on judged drops by" in learned.refusals[0]
