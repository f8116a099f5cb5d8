from collections.abc import Callable

import pytest

from graphrerank.text import WordTokenizer
from graphrerank_papers.answers.answer_judge import PairwiseJudge
from graphrerank_papers.answers.local import TransformersLanguageModel
from graphrerank_papers.answers.map_reduce import MapReduceAnswers, Summary

QUESTION = "Which towns fell?"
SUMMARIES = [
    Summary("0.0.1", "Metz fell in the spring after a siege of two months."),
    Summary("0.0.2", "Nancy was never taken."),
    Summary("0.0.3", "Verdun fell in autumn."),
]


@pytest.mark.slow
def test_a_real_small_model_answers_with_citations_or_is_counted_as_unusable(
    small_chat: Callable[[int], TransformersLanguageModel],
) -> None:
    model = small_chat(32)
    reader = MapReduceAnswers(model, WordTokenizer(), tries=1)
    (answer,) = reader.answer([QUESTION], [SUMMARIES])
    assert bool(answer.text) == bool(answer.citations)
    assert set(answer.citations) <= {summary.name for summary in SUMMARIES}
    assert answer.tokens_read == 19
    assert answer.text or reader.skipped or answer.helpfulness == (0,)
    judge = PairwiseJudge(model, criteria={"directness": "How directly is the question answered?"}, tries=1)
    verdicts = judge.compare([QUESTION], ["Metz and Verdun fell."], ["There are many towns in Lorraine."])
    both = [verdicts.forward, verdicts.backward]
    assert sum(int(table.isnan().sum()) for table in both) == len(judge.skipped)
    assert all(winner in (-1.0, 0.0, 1.0) for table in both for winner in table[~table.isnan()].tolist())
