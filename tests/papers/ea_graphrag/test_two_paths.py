from dataclasses import replace

import pytest
import torch

from graphrerank.core import Queries, Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.language_models.prompt import Prompt
from graphrerank_papers.answers.judges import CorrectnessJudge
from graphrerank_papers.answers.packing import Packing
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.answers.writers import PromptedWriter
from graphrerank_papers.ea_graphrag.two_paths import TwoPaths, parse_rule
from tests.support.language_models import ScriptedReplies

PASSAGES = ["Metz is a city.", "Lothair died in Piacenza.", "A river.", "A stone.", "A bridge.", "The Moselle."]
DENSE = torch.tensor([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, -1, -1, -1, -1, -1]])
ANSWERS = {"q4": ["piacenza", "Placentia"], "q7": ["a city"]}
GRAPH = torch.tensor([[1, 2, 3, 4, 5, 0], [0, 1, 5, 2, 3, 4], [5, 4, -1, -1, -1, -1]])


def ranking(nodes: torch.Tensor) -> Ranking:
    return Ranking(nodes, torch.where(nodes >= 0, -torch.arange(nodes.shape[1]).float(), -torch.inf))


@pytest.fixture
def paths() -> TwoPaths:
    """Questions 4, 7 and 9 of a data set: two relevant passages (0, 1), one (0), one (5); the last has no answer."""
    texts = {4: "Where did Lothair die?", 7: "What is Metz?", 9: "Which river?"}
    qrels = Qrels(torch.tensor([9, 4, 4, 7]), torch.tensor([5, 0, 1, 0]), torch.ones(4))
    graph = CorpusGraph.from_edges([f"p{i}" for i in range(6)], PASSAGES, torch.zeros(0, 2, dtype=torch.int64))
    ids = [f"q{i}" for i in range(10)]
    dataset = Dataset("toy", graph, ids, [texts.get(i, "") for i in range(10)], {"test": qrels}, answers=ANSWERS)
    rows = torch.tensor([4, 7, 9])
    queries = Queries(["q4", "q7", "q9"], list(texts.values()))
    return TwoPaths(dataset, queries, rows, qrels, ranking(DENSE), ranking(GRAPH), seconds=(0.001, 0.02))


def test_measures_by_hand(paths: TwoPaths) -> None:
    dense, graph = paths.measure(DENSE), paths.measure(GRAPH)
    assert dense["Hit@3"].tolist() == [1, 0, 0]
    assert dense["Hit@5"].tolist() == [1, 0, 0]  # the second question's passage is sixth
    assert dense["PR@5"].tolist() == [1, 0, 0]
    assert graph["PR@5"].tolist() == [0, 1, 1]  # of the first question's two passages one is sixth
    assert graph["Hit@5"].tolist() == [1, 1, 1]
    assert dense["Answer@5"][:2].tolist() == [1, 0]
    assert graph["Answer@5"][:2].tolist() == [1, 1]
    assert bool(dense["Answer@5"][2].isnan())


@pytest.fixture
def answered(paths: TwoPaths) -> TwoPaths:
    """The two questions with an answer."""
    return replace(paths, queries=paths.queries.block(0, 2), rows=paths.rows[:2])


def test_a_right_ranking_is_a_setting(paths: TwoPaths, answered: TwoPaths) -> None:
    assert paths.is_right(GRAPH, "all_relevant@5").tolist() == [False, True, True]
    assert paths.is_right(GRAPH, "all_relevant@6").tolist() == [True, True, True]
    assert paths.is_right(GRAPH, "any_relevant@1").tolist() == [True, True, True]
    assert paths.is_right(DENSE, "any_relevant@3").tolist() == [True, False, False]
    assert answered.is_right(DENSE[:2], "answer_in_context@5").tolist() == [True, False]
    assert answered.is_right(DENSE[:2], "answer_in_context@1").tolist() == [False, False]
    with pytest.raises(ValueError, match=r"needs an `answer` .* question 'q9' of data set 'toy' has none"):
        paths.is_right(DENSE, "answer_in_context@5")


def test_a_language_model_is_judged_by_containment(answered: TwoPaths) -> None:
    reader = ScriptedReplies(lambda question: "In Piacenza." if "Piacenza" in question else "Unknown")
    writer = PromptedWriter(reader, Prompt("p", "{context}\n\nQuestion: {question}"))
    stage = AnswerStage(Packing(100), writer)
    assert answered.is_right(DENSE[:2], "language_model@2", answers=stage).tolist() == [True, False]
    assert [question for _, question in reader.asked] == [
        "Metz is a city.\n\nLothair died in Piacenza.\n\nQuestion: Where did Lothair die?",
        "The Moselle.\n\nA bridge.\n\nQuestion: What is Metz?",
    ]
    prompt = Prompt("j", "{query}{generated_answer}{ground_truth_answer}")
    judged = AnswerStage(
        Packing(100), writer, judge=CorrectnessJudge(ScriptedReplies(lambda _: "Decision: yes"), prompt)
    )
    assert answered.is_right(DENSE[:2], "language_model@2", answers=judged).tolist() == [True, True]
    with pytest.raises(ValueError, match="`answers` is required with `right` = language_model@2"):
        answered.is_right(DENSE[:2], "language_model@2")


def test_fused_is_the_path_where_the_score_is_extreme(paths: TwoPaths) -> None:
    for score, path in enumerate((DENSE, GRAPH)):
        (_, _, fused), seconds = paths.routes(torch.full((3,), float(score)))
        assert torch.equal(fused.nodes[:2], path[:2])
        assert fused.nodes[2, : 1 + score].tolist() == path[2, : 1 + score].tolist()
        assert seconds[0, :2].tolist() == [0.001, 0.02]
        assert (seconds[:, 2] > 0.021).all()


@pytest.mark.parametrize("rule", ["all_relevant", "all_relevant@0", "nobody@5", ""])
def test_rules_that_there_are_not(rule: str) -> None:
    with pytest.raises(ValueError, match="`right` must be one of"):
        parse_rule(rule)
