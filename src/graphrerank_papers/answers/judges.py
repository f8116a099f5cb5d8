"""Judge answers with a language model: whether an answer is correct, and which of two answers is better."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import Table, column, records_table
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.reply import Reply
from graphrerank.language_models.strict_answers import ask_strictly, parse_object_answer
from graphrerank.utils.checks import UserError
from graphrerank_papers.answers.writers import PromptedModel

_DECISION = re.compile(r"decision\W*(yes|no)\b", re.IGNORECASE)
#: Separator between alternative correct answers.
OR = " or "
#: Question to the judge for each criterion of a comparison.
CRITERIA: Mapping[str, str] = {
    "comprehensiveness": "How much detail does the answer give to cover all aspects of the question?",
    "diversity": "How varied and rich are the perspectives and insights that the answer gives?",
    "empowerment": "How well does the answer help the reader to understand the matter and judge it for themselves?",
    "directness": "How specifically and clearly does the answer address the question?",
}
#: Score of the first answer, keyed by the winner of a comparison. Winner 0 is a tie.
FOR_FIRST = {1: 1.0, 0: 0.0, 2: -1.0}


@dataclass(eq=False)
class CorrectnessJudge(PromptedModel):
    """Ask a chat model whether an answer contains a correct answer.

    Source: GraphER, appendix A.1.3, whose prompt is ``grapher_judge``.

    *Differences from the paper:* several correct answers are joined by "or". Blank and missing answers are wrong and
    cost no request. Answers without a usable verdict are wrong.

    Attributes:
        model: Chat model that judges.
        prompt: Prompt with the placeholders ``{query}``, ``{generated_answer}`` and ``{ground_truth_answer}``.
        cache: Folder in which replies are stored for later runs. If None, replies are not stored.
    """

    placeholders = ("query", "generated_answer", "ground_truth_answer")

    def judge(
        self, questions: Sequence[str], said: Sequence[str | None], right: Sequence[Sequence[str] | None]
    ) -> tuple[Tensor, list[Reply | None]]:
        """Judge the answers to questions.

        Args:
            questions: ``Q`` questions.
            said: Answer to each question. A blank answer abstains, and None is a missing answer, such as a failed
                request.
            right: Correct answers to each question. Empty if the question has no answer, None if the answers are
                unknown.

        Returns:
            Scores ``[Q]`` float64, and the reply with each verdict or None if no verdict was necessary. A score is 1
            for a correct answer and 0 for a wrong one. For a question without an answer it is 1 if the answer is blank.
            It is NaN if the correct answers are unknown.
        """
        messages = {
            row: self.prompt.fill(query=question, generated_answer=text, ground_truth_answer=OR.join(answers))
            for row, (question, text, answers) in enumerate(zip(questions, said, right, strict=True))
            if answers and text and text.strip()
        }
        replies = self.ask(list(messages.values()))
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
    r"""Return the last decision in a verdict, or None if there is none.

    Args:
        text: Text of the verdict.

    Example:
        >>> [parse_decision(text) for text in ("Explanation: same.\nDecision: yes", "**Decision:** No.", "yes")]
        [True, False, None]
        >>> [parse_decision(text) for text in ("Decision: yes\nOn reflection, decision: no", "Decision: yesterday")]
        [False, None]
    """
    decisions = _DECISION.findall(text)
    return decisions[-1].lower() == "yes" if decisions else None


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on the answers of two systems to ``Q`` questions, in both orders.

    Attributes:
        criteria: Names of the ``C`` criteria.
        forward: Verdicts ``[C, Q]`` float64 with the first system's answer shown first: 1 if that answer is better, 0
            for a tie, -1 if it is worse. NaN if there is no usable verdict or nothing to compare.
        backward: Verdicts ``[C, Q]`` float64 with the second system's answer shown first. The signs are as in
            ``forward``.
    """

    criteria: tuple[str, ...]
    forward: Tensor
    backward: Tensor

    @property
    def scores(self) -> Tensor:
        """Score of the first system ``[C, Q]``: 1 for a win, 0.5 for a tie, 0 for a loss.

        A win in one order and a tie in the other is a win. Opposite verdicts are a tie. The score is NaN if one of the
        orders has no usable verdict.
        """
        both = self.forward + self.backward
        return ((1 + torch.sign(both)) / 2).masked_fill(both.isnan(), torch.nan)  # the sign of NaN is 0

    @property
    def agreement(self) -> Tensor:
        """Share of the pairs with the same verdict in both orders, ``[C]``. NaN if no pair has both verdicts."""
        same = (self.forward == self.backward).double()
        return same.masked_fill((self.forward + self.backward).isnan(), torch.nan).nanmean(1)


@dataclass(eq=False)
class PairwiseJudge:
    """Ask a chat model which of two answers is better, by each criterion and in both orders.

    Equal answers are a tie and a blank answer loses, without a request. Pairs of two blank answers and pairs with a
    missing answer are not compared.

    Source: Edge et al., *From Local to Global: A GraphRAG Approach to Query-Focused Summarization*, 2024, section 4.1.1
    (head-to-head comparison and its criteria), adopted by ReTAG. The wording of the criteria is ours.

    *Differences from the paper:* each order is sent once instead of one order five times, because a model may prefer a
    position.

    Attributes:
        model: Chat model that judges. Wrap it in an ``AnswerCache`` to reuse its answers.
        criteria: Question to the judge for each criterion. If None, :data:`CRITERIA` is used.
        prompt: Prompt with the placeholders ``{criterion}``, ``{question}``, ``{first}`` and ``{second}``. It must ask
            for an object with ``reason`` and ``winner``.
        tries: Maximum number of requests until a verdict is usable (see :func:`ask_strictly`).
    """

    model: ChatModel
    _: KW_ONLY
    criteria: Mapping[str, str] | None = None
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "preference"))
    tries: int = 3

    def __post_init__(self) -> None:
        self._criteria = dict(CRITERIA if self.criteria is None else self.criteria)
        if not self._criteria:
            raise UserError("`criteria` must contain at least one criterion, got none")
        self.prompt.fill(criterion="", question="", first="", second="")
        self.prompt.instructions()

    def compare(self, questions: Sequence[str], first: Sequence[str | None], second: Sequence[str | None]) -> Verdicts:
        """Compare the answers of two systems.

        Args:
            questions: ``Q`` questions.
            first: First system's answer to each question. None is a missing answer, such as a failed request.
            second: Second system's answer to each question. None is a missing answer.

        Returns:
            Verdicts on all pairs.
        """
        answers = zip(questions, first, second, strict=True)
        pairs = [("", "") if one is None or other is None else (one, other) for _, one, other in answers]
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
            row_scores = [torch.nan if winner is None else FOR_FIRST[winner] for winner in winners]
            scores[:, rows] = torch.tensor(row_scores, dtype=torch.float64).reshape(len(scores), len(rows))
            orders.append(scores)
        forward, backward = orders
        backward[:, rows] *= -1
        return Verdicts(tuple(self._criteria), forward, backward)


def parse_winner(content: str) -> int:
    """Return the winner in a verdict: 1 or 2, or 0 for a tie.

    Args:
        content: JSON object with ``reason``, a string, and ``winner``, an integer from 0 to 2.

    Raises:
        UserError: If ``content`` has another form.
    """
    winner: int = parse_object_answer(content, reason=str, winner=Annotated[int, Field(ge=0, le=2)]).winner
    return winner


def _known_score(first: str, second: str) -> float:
    """Return the score of a pair that needs no model. NaN for other pairs and for two blank answers."""
    first, second = first.strip(), second.strip()
    if bool(first) != bool(second):
        return 1.0 if first else -1.0
    return 0.0 if first and first == second else torch.nan


@dataclass(frozen=True)
class WinRate:
    """Win rate of one system against another by one criterion.

    Attributes:
        system: Name of the first system.
        baseline: Name of the second system.
        criterion: Name of the criterion.
        wins: Number of questions on which the first system's answer is better.
        ties: Number of ties.
        losses: Number of questions on which the second system's answer is better.
        without: Number of questions without a usable verdict in both orders, or with nothing to compare.
        rate: Mean score in [0, 1], in which a tie scores 0.5. NaN if no question has a verdict.
        interval: 95% bootstrap interval of ``rate`` over questions.
        p_value: p-value of the paired randomisation test against 0.5.
        agreement: Share of the pairs with the same verdict in both orders.
    """

    TITLE = "win rates"
    CAPTION = (
        "A model compared the answers of the last system with those of each other system, in both orders. A win in one "
        "order and a tie in the other is a win, and opposite verdicts are a tie. No verdict: both answers are blank, "
        "an answer is missing, or an order lacks a usable verdict; these questions are ignored. Win rate: percent, in "
        "which a tie is half a win, with its 95% bootstrap interval. p: paired randomisation test against one half. "
        "Same in both orders: percent of the pairs with equal verdicts."
    )

    system: str
    baseline: str = field(metadata=column("against", "system"))
    criterion: str = field(metadata=column("criterion", "text"))
    wins: int = field(metadata=column("won", ",.0f"))
    ties: int = field(metadata=column("tied", ",.0f"))
    losses: int = field(metadata=column("lost", ",.0f"))
    without: int = field(metadata=column("no verdict", ",.0f"))
    rate: float = field(metadata=column("win rate", "percent", note="interval"))
    interval: tuple[float, float]
    p_value: float = field(metadata=column("p", "p"))
    agreement: float = field(metadata=column("same in both orders", "percent"))


def win_rates(verdicts: Verdicts, *, system: str, baseline: str, seed: int = 0) -> list[WinRate]:
    """Compute the win rate of one system against another by each criterion.

    Args:
        verdicts: Verdicts on the answers of both systems. Questions without a usable verdict in both orders are
            ignored.
        system: Name of the first system.
        baseline: Name of the second system.
        seed: Random seed of the bootstrap and of the test.

    Returns:
        One record per criterion.

    Example:
        >>> scores = torch.tensor([[1.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
        >>> (rate,) = win_rates(Verdicts(("overall",), scores, scores), system="ours", baseline="theirs")
        >>> rate.wins, rate.ties, rate.losses, rate.rate
        (2, 1, 1, 0.625)
    """
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
    """Return the table of win rates, with one row per baseline and criterion.

    Args:
        rates: Win rates.
    """
    return replace(records_table(WinRate, rates), printed=True)
