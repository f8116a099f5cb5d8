"""Verdicts of a language model on answers: whether one is right, and which of two is better."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import Table, column, records_table
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.reply import Reply, ReplyingModel
from graphrerank.language_models.strict_answers import ask_strictly, parse_object_answer
from graphrerank.utils.checks import UserError
from graphrerank_papers.answers.writers import ask_prompt

_DECISION = re.compile(r"decision\W*(yes|no)\b", re.IGNORECASE)
OR = " or "  # between right answers that mean the same
CRITERIA: Mapping[str, str] = {
    "comprehensiveness": "How much detail does the answer give to cover all aspects of the question?",
    "diversity": "How varied and rich are the perspectives and insights that the answer gives?",
    "empowerment": "How well does the answer help the reader to understand the matter and judge it for themselves?",
    "directness": "How specifically and clearly does the answer address the question?",
}
FOR_FIRST = {1: 1.0, 0: 0.0, 2: -1.0}  # winner -> score of the answer shown first


@dataclass(eq=False)
class CorrectnessJudge:
    """Asks a chat model whether an answer contains a right answer.

    Source: GraphER, appendix A.1.3, whose prompt is ``grapher_judge``. *Where we differ:* several right answers are
    joined by "or", blank and missing answers are wrong without a request, and so are those without a usable verdict.
    """

    model: ReplyingModel
    prompt: Prompt  # with the placeholders `{query}`, `{generated_answer}` and `{ground_truth_answer}`
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
        messages = {
            row: self.prompt.fill(query=question, generated_answer=text, ground_truth_answer=OR.join(answers))
            for row, (question, text, answers) in enumerate(zip(questions, said, right, strict=True))
            if answers and text and text.strip()
        }
        replies = ask_prompt(self.model, self.prompt, list(messages.values()), self.cache)
        replied = dict(zip(messages, replies, strict=True))
        verdicts = [replied.get(row) for row in range(len(questions))]
        scores = torch.full((len(questions),), torch.nan, dtype=torch.float64)
        for row, (text, answers, verdict) in enumerate(zip(said, right, verdicts, strict=True)):
            if answers:
                scores[row] = float(verdict is not None and parse_decision(verdict.text) is True)
            elif answers is not None:
                scores[row] = float(text is not None and not text.strip())
        return scores, verdicts


def parse_decision(text: str) -> bool | None:
    r"""Read the last decision of a verdict; None if there is none.

    Example:
        >>> [parse_decision(text) for text in ("Explanation: same.\nDecision: yes", "**Decision:** No.", "yes")]
        [True, False, None]
        >>> [parse_decision(text) for text in ("Decision: yes\nOn reflection, decision: no", "Decision: yesterday")]
        [False, None]
    """
    found = _DECISION.findall(text)
    return found[-1].lower() == "yes" if found else None


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on ``Q`` pairs of answers by ``C`` criteria, from the first system's side."""

    criteria: tuple[str, ...]  # `C` names
    # `[C, Q]` float64, with the first system's answer shown first: 1 if it is better, 0 for a tie, -1 if it is worse;
    # NaN without a usable verdict, or with nothing to compare
    forward: Tensor
    backward: Tensor  # `[C, Q]`, the same with the second system's answer shown first

    @property
    def scores(self) -> Tensor:
        """``[C, Q]``: 1 won, 0.5 tied, 0 lost; NaN if an order has no usable verdict.

        A win in one order and a tie in the other is a win; opposite verdicts are a tie.
        """
        both = self.forward + self.backward
        return ((1 + torch.sign(both)) / 2).masked_fill(both.isnan(), torch.nan)  # the sign of NaN is 0

    @property
    def agreement(self) -> Tensor:
        """``[C]``, share of the pairs with the same verdict in both orders; NaN if no pair has both."""
        same = (self.forward == self.backward).double()
        return same.masked_fill((self.forward + self.backward).isnan(), torch.nan).nanmean(1)


@dataclass(eq=False)
class PairwiseJudge:
    """Asks a chat model which of two answers is better, by each criterion and in both orders.

    Source: Edge et al., *From Local to Global: A GraphRAG Approach to Query-Focused Summarization*, 2024, section 4.1.1
    (head-to-head comparison and its criteria), adopted by ReTAG; the criteria's wording is ours.
    *Where we differ:* each order is sent once, instead of one order five times, as a model may prefer a position.
    Equal answers are a tie and a blank one loses, without a request; two blank or missing ones are not compared.
    """

    model: ChatModel  # best wrapped in an `AnswerCache`
    _: KW_ONLY
    criteria: Mapping[str, str] | None = None  # question by name of the criterion; None for `CRITERIA`
    # with the placeholders `{criterion}`, `{question}`, `{first}` and `{second}`; it asks for `reason` and `winner`
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "preference"))
    tries: int = 3  # see `ask_strictly`

    def __post_init__(self) -> None:
        self._criteria = dict(CRITERIA if self.criteria is None else self.criteria)
        if not self._criteria:
            raise UserError("`criteria` must contain a criterion, got none")
        self.prompt.fill(criterion="", question="", first="", second="")
        self.prompt.instructions()

    def compare(self, questions: Sequence[str], first: Sequence[str | None], second: Sequence[str | None]) -> Verdicts:
        """Compare the answers of two systems to ``Q`` questions; None where there is none, as of a failed request."""
        given = zip(questions, first, second, strict=True)
        pairs = [("", "") if one is None or other is None else (one, other) for _, one, other in given]
        known = torch.tensor([_known_score(*pair) for pair in pairs], dtype=torch.float64)
        rows = [row for row in known.isnan().nonzero().flatten().tolist() if pairs[row][0].strip()]
        settings: dict[str, Any] = {"system": self.prompt.instructions(), "form": self.prompt.form, "tries": self.tries}
        orders = []
        for shown in (pairs, [(other, one) for one, other in pairs]):
            messages = [
                self.prompt.fill(criterion=text, question=questions[row], first=shown[row][0], second=shown[row][1])
                for text, row in product(self._criteria.values(), rows)
            ]
            winners = ask_strictly(self.model, messages, parse=parse_winner, **settings)
            scores = known.repeat(len(self._criteria), 1)
            of_rows = [torch.nan if winner is None else FOR_FIRST[winner] for winner in winners]
            scores[:, rows] = torch.tensor(of_rows, dtype=torch.float64).reshape(len(scores), len(rows))
            orders.append(scores)
        forward, backward = orders
        backward[:, rows] *= -1
        return Verdicts(tuple(self._criteria), forward, backward)


def parse_winner(content: str) -> int:
    """Parse a verdict, strictly: a JSON object with ``reason``, a string, and ``winner``, 0, 1 or 2."""
    winner: int = parse_object_answer(content, reason=str, winner=Annotated[int, Field(ge=0, le=2)]).winner
    return winner


def _known_score(first: str, second: str) -> float:
    """Score answers that need no model; NaN for all others, and for two blank ones."""
    first, second = first.strip(), second.strip()
    if bool(first) != bool(second):
        return 1.0 if first else -1.0
    return 0.0 if first and first == second else torch.nan


@dataclass(frozen=True)
class WinRate:
    """The first system against the second by one criterion."""

    TITLE = "win rates"
    CAPTION = (
        "Answers of the last system against those of each other one, judged by a model in both orders: a win in one "
        "order and a tie in the other is a win, opposite verdicts are a tie, and ties count half. No verdict: both are "
        "blank, one is missing, or an order lacks a usable verdict; these do not count. Win rate: percent with its 95% "
        "bootstrap interval; p: paired randomisation test against one half. Same: percent of the pairs with one "
        "verdict in both orders."
    )

    system: str  # name of the first
    baseline: str = field(metadata=column("against", "system"))  # name of the second
    criterion: str = field(metadata=column("criterion", "text"))
    wins: int = field(metadata=column("won", ",.0f"))  # questions on which the first system's answer is better
    ties: int = field(metadata=column("tied", ",.0f"))
    losses: int = field(metadata=column("lost", ",.0f"))
    without: int = field(metadata=column("no verdict", ",.0f"))  # in an order, or with two blank answers
    rate: float = field(metadata=column("win rate", "percent", note="interval"))  # NaN if no question counts
    interval: tuple[float, float]  # its 95% bootstrap interval over questions
    p_value: float = field(metadata=column("p", "p"))  # of the paired randomisation test against 0.5
    agreement: float = field(metadata=column("same in both orders", "percent"))


def win_rates(verdicts: Verdicts, *, system: str, baseline: str, seed: int = 0) -> list[WinRate]:
    """Count verdicts by criterion, one entry each; questions without a usable verdict do not count."""
    rates = []
    each = zip(verdicts.criteria, verdicts.scores, verdicts.agreement.tolist(), strict=True)
    for criterion, scores, agreement in each:
        low, high = bootstrap_interval(scores, seed=seed).tolist()
        wins, ties, losses = (int((scores == score).sum()) for score in (1.0, 0.5, 0.0))
        p_value = float(paired_randomization(scores, 1 - scores, seed=seed))
        counts = (system, baseline, criterion, wins, ties, losses, len(scores) - wins - ties - losses)
        rates.append(WinRate(*counts, float(scores.nanmean()), (low, high), p_value, agreement))
    return rates


def wins_table(rates: Sequence[WinRate]) -> Table:
    """Lay out a row per other system and criterion."""
    return replace(records_table(WinRate, rates), printed=True)
