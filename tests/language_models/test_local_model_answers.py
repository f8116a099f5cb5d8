from collections.abc import Callable

import pytest

from graphrerank_papers.answers.judges import PairwiseJudge
from graphrerank_papers.answers.local import TransformersLanguageModel
from graphrerank_papers.answers.map_reduce_writer import CitedReply, MapReduceWriter
from graphrerank_papers.answers.packing import Context

QUESTION = "Which towns fell?"
SUMMARIES = (
    "Metz fell in the spring after a siege of two months.", "Nancy was never taken.", "Verdun fell in autumn.",
)  # fmt: skip


@pytest.mark.slow
def test_a_real_small_model_answers_with_citations_or_is_counted_as_unusable(
    small_chat: Callable[[int], TransformersLanguageModel],
) -> None:
    model = small_chat(32)
    (answer,) = MapReduceWriter(model, tries=1).write([QUESTION], [Context(SUMMARIES, 19)])
    assert isinstance(answer, CitedReply)
    assert bool(answer.text) == bool(answer.citations)
    assert set(answer.citations) <= {0, 1, 2}
    assert answer.text or answer.outcome == "unusable" or answer.helpfulness == (0,)
    judge = PairwiseJudge(model, criteria={"directness": "How directly is the question answered?"}, tries=1)
    verdicts = judge.compare([QUESTION], ["Metz and Verdun fell."], ["There are many towns in Lorraine."])
    both = [verdicts.forward, verdicts.backward]
    assert all(winner in (-1.0, 0.0, 1.0) for table in both for winner in table[~table.isnan()].tolist())
