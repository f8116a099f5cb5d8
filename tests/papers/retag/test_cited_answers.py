import json
import math

import torch

from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import AnswerCounts
from graphrerank_papers.answers.map_reduce_writer import CitedReply
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import SystemAnswers
from graphrerank_papers.retag.cited_answers import answers_table, count_answers

SOME: list[Reply] = [
    CitedReply("Metz fell.", "answered", "m", 30, 4, citations=(0, 3), helpfulness=(70, 0, None)),
    CitedReply("", "unusable", "m", 10, 4, helpfulness=(None,)),
    CitedReply("It rose.", "answered", "m", 20, 4, citations=(1,), helpfulness=(10,)),
    CitedReply("", "answered", "", 0, 0),  # nothing to read
]


def answers(replies: list[Reply]) -> SystemAnswers:
    contexts = [Context((), 150)] * len(replies)
    return SystemAnswers(replies, contexts, {"EM": torch.zeros(0)}, AnswerCounts.of("w", replies, contexts, None))


def test_by_hand() -> None:
    found = count_answers("ReTAG", answers(SOME))
    assert (found.counts.questions, found.answered, found.parts, found.skipped) == (4, 2, 5, 2)
    assert (found.citations, found.counts.context_tokens, found.counts.input_tokens) == (1.5, 150.0, 60)


def test_a_writer_that_cites_nothing_and_no_question() -> None:
    found = count_answers("ReTAG", answers([Reply("Metz", "answered", "m")]))
    assert (found.answered, found.parts) == (1, 0)
    assert math.isnan(found.citations)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["citations"] is None
    none = count_answers("ReTAG", answers([]))
    assert (none.counts.questions, none.answered, none.parts) == (0, 0, 0)


def test_table() -> None:
    table = answers_table([count_answers("ReTAG", answers(SOME)), count_answers("GraphRAG", answers(SOME[1:2]))])
    assert "| ReTAG | 4 | 2 | 1.5 | 150 | 5 | 2 | 60 | 12 | - | 0 | 1 |" in table
    assert "| GraphRAG | 1 | 0 |  | 150 | 1 | 1 | 10 | 4 | - | 0 | 1 |" in table
