from collections.abc import Iterator, Sequence

import pytest
import torch

from graphrerank.data.dataset import Qrels
from graphrerank.graphs import Ranking
from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.correctness_judge import CorrectnessJudge
from graphrerank_papers.answers.packing import Packing
from graphrerank_papers.answers.prompted_writer import PromptedWriter
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.ea_graphrag.two_paths import TwoPaths, parse_rule

PASSAGES = ["Metz is a city.", "Lothair died in Piacenza.", "A river.", "A stone.", "A bridge.", "The Moselle."]
DENSE = torch.tensor([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, -1, -1, -1, -1, -1]])
GRAPH = torch.tensor([[1, 2, 3, 4, 5, 0], [0, 1, 5, 2, 3, 4], [5, 4, -1, -1, -1, -1]])


def ranking(nodes: torch.Tensor) -> Ranking:
    return Ranking(nodes, torch.where(nodes >= 0, -torch.arange(nodes.shape[1]).float(), -torch.inf))


@pytest.fixture
def paths() -> TwoPaths:
    """Questions 4, 7 and 9 of a data set: two relevant passages (0, 1), one (0), one (5); the last has no answer."""
    qrels = Qrels(torch.tensor([9, 4, 4, 7]), torch.tensor([5, 0, 1, 0]), torch.ones(4))
    return TwoPaths(
        dataset="toy",
        query_ids=["a", "b", "c"],
        texts=["Where did Lothair die?", "What is Metz?", "Which river?"],
        queries=torch.tensor([4, 7, 9]),
        qrels=qrels,
        passages=PASSAGES,
        answers={"a": ["piacenza", "Placentia"], "b": ["a city"]},
        dense=ranking(DENSE),
        graph=ranking(GRAPH),
        seconds=(0.001, 0.02),
    )


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


def test_who_is_right_is_a_setting(paths: TwoPaths) -> None:
    assert paths.is_right(GRAPH, "all_relevant@5").tolist() == [False, True, True]
    assert paths.is_right(GRAPH, "all_relevant@6").tolist() == [True, True, True]
    assert paths.is_right(GRAPH, "any_relevant@1").tolist() == [True, True, True]
    assert paths.is_right(DENSE, "any_relevant@3").tolist() == [True, False, False]


def take(paths: TwoPaths, *rows: int) -> TwoPaths:
    index = torch.tensor(rows)
    return TwoPaths(
        paths.dataset,
        [paths.query_ids[row] for row in rows],
        [paths.texts[row] for row in rows],
        paths.queries[index],
        paths.qrels,
        paths.passages,
        paths.answers,
        paths.dense.select(index),
        paths.graph.select(index),
        paths.seconds,
    )


def test_an_answer_in_the_context(paths: TwoPaths) -> None:
    answered = take(paths, 0, 1)
    assert answered.is_right(DENSE[:2], "answer_in_context@5").tolist() == [True, False]
    assert answered.is_right(DENSE[:2], "answer_in_context@1").tolist() == [False, False]
    with pytest.raises(ValueError, match=r"needs an `answer` .* found none in 'c' of data set 'toy'"):
        paths.is_right(DENSE, "answer_in_context@5")


ASKED = [
    "Metz is a city.\n\nLothair died in Piacenza.\n\nQuestion: Where did Lothair die?",
    "The Moselle.\n\nA bridge.\n\nQuestion: What is Metz?",
]


class Always:
    """A language model that always says the same."""

    fingerprint = "always"

    def __init__(self, text: str) -> None:
        self.text = text

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        yield from ((index, Reply(self.text, "answered")) for index in range(len(questions)))


class Reader:
    """A language model that knows one answer, and only reads it off its passages."""

    fingerprint = "reader"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        self.asked += questions
        for index, question in enumerate(questions):
            yield index, Reply("In Piacenza." if "Piacenza" in question else "Unknown", "answered")


def test_a_language_model_is_judged_by_containment(paths: TwoPaths) -> None:
    answered, reader = take(paths, 0, 1), Reader()
    prompt = Prompt("p", "{context}\n\nQuestion: {question}")
    stage = AnswerStage(Packing(100), PromptedWriter(reader, prompt))
    assert answered.is_right(DENSE[:2], "language_model@2", answers=stage).tolist() == [True, False]
    assert reader.asked == ASKED
    judge = CorrectnessJudge(Always("Decision: yes"), Prompt("j", "{query}{generated_answer}{ground_truth_answer}"))
    judged = AnswerStage(Packing(100), PromptedWriter(reader, prompt), judge=judge)
    assert answered.is_right(DENSE[:2], "language_model@2", answers=judged).tolist() == [True, True]
    with pytest.raises(ValueError, match="`answers` must be given with `right` = language_model@2"):
        answered.is_right(DENSE[:2], "language_model@2")


def test_fused_lies_at_the_paths_where_the_score_is_extreme(paths: TwoPaths) -> None:
    dense, graph = (paths.fused(torch.full((3,), score)).nodes for score in (0.0, 1.0))
    assert torch.equal(dense[:2], DENSE[:2])
    assert torch.equal(graph[:2], GRAPH[:2])
    assert dense[2, 0] == 2
    assert graph[2, :2].tolist() == [5, 4]


@pytest.mark.parametrize("rule", ["all_relevant", "all_relevant@0", "nobody@5", ""])
def test_rules_that_there_are_not(rule: str) -> None:
    with pytest.raises(ValueError, match="`right` must be one of"):
        parse_rule(rule)
