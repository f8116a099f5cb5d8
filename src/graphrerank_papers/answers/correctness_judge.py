"""A model's verdict on whether an answer is right."""

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply, ReplyingModel
from graphrerank_papers.answers.replies import RecordedModel

_DECISION = re.compile(r"decision\W*(yes|no)\b", re.IGNORECASE)
OR = " or "  # between right answers that mean the same


@dataclass(eq=False)
class CorrectnessJudge:
    """Asks a chat model whether an answer contains a right answer.

    Source: GraphER, appendix A.1.3, whose prompt is ``grapher_judge``. *Where we differ:* several
    right answers are joined by "or", blank and missing answers are wrong without asking, and so are those without a
    usable verdict, which are counted.
    """

    model: ReplyingModel
    prompt: Prompt  # with the places `{query}`, `{generated_answer}` and `{ground_truth_answer}`
    _: KW_ONLY
    cache: str | Path | None = None  # folder of replies, which a later run reads; None for no cache

    def __post_init__(self) -> None:
        self.prompt.fill(query="", generated_answer="", ground_truth_answer="")
        self.prompt.instructions()

    def judge(
        self, questions: Sequence[str], said: Sequence[str | None], right: Sequence[Sequence[str] | None]
    ) -> tuple[Tensor, list[Reply | None]]:
        """Judge ``Q`` answers; None where there is none, as of a failed request.

        Returns:
            ``[Q]`` float64: 1 for right, 0 for wrong; of a question without an answer 1 if the answer is blank; NaN
            if no right answer is known. And the reply with each verdict, None if none was needed.
        """
        asked = {row: text for row, text in enumerate(said) if right[row] and text and text.strip()}
        messages = [
            self.prompt.fill(query=questions[row], generated_answer=text, ground_truth_answer=OR.join(right[row] or ()))
            for row, text in asked.items()
        ]
        verdicts: list[Reply | None] = [None] * len(questions)
        model = RecordedModel(self.model, self.cache).in_form(self.prompt.form)
        replies = model.all_replies(messages, system=self.prompt.instructions())
        for row, reply in zip(asked, replies, strict=True):
            verdicts[row] = reply
        scores = [
            torch.nan if answers is None
            else float(text is not None and not text.strip()) if not answers
            else float(verdict is not None and parse_decision(verdict.text) is True)
            for text, answers, verdict in zip(said, right, verdicts, strict=True)
        ]  # fmt: skip
        return torch.tensor(scores, dtype=torch.float64), verdicts


def parse_decision(text: str) -> bool | None:
    r"""Read the last decision of a verdict; None if there is none.

    Example:
        >>> [parse_decision(text) for text in ("Explanation: same.\nDecision: yes", "**Decision:** No.", "maybe")]
        [True, False, None]
    """
    found = _DECISION.findall(text)
    return found[-1].lower() == "yes" if found else None
