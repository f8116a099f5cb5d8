"""Score answers by exact match, F1 and Contain-Match, and contexts by Coverage."""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphrerank.metrics.coverage import checked_answers, coverage, normalize_answer

EM, F1, CONTAIN_MATCH, CONTEXT_COVERAGE = "EM", "F1", "Contain-Match", "Context-Coverage"
#: Measure of accuracy according to the verdicts of a model.
JUDGED_MEASURE = "Judged"
#: Measures that need no model.
SCORED = (EM, F1, CONTAIN_MATCH, CONTEXT_COVERAGE)
_SINGLED_OUT = frozenset({"yes", "no", "noanswer"})  # answers that have no partial match


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if an answer equals one of the correct answers after normalisation, and 0 otherwise.

    Args:
        prediction: Predicted answer.
        answers: Correct answers, at least one.

    Raises:
        UserError: If ``answers`` is empty or not a sequence of strings.

    Example:
        >>> exact_match("the Battle of Metz.", ["Battle of Metz"])
        1.0
    """
    return float(normalize_answer(prediction) in map(normalize_answer, checked_answers(answers)))


def answer_f1(prediction: str, answers: Sequence[str]) -> float:
    r"""Return the F1 of the words of an answer and of a correct answer, maximised over the correct answers.

    .. math:: F_1 = \frac{2\,|p \cap a|}{|p| + |a|}

    with :math:`p` and :math:`a` the multisets of normalised words. Two answers without words score 1. If only one of
    the two is "yes", "no" or "noanswer", the score is 0.

    Source: Rajpurkar et al., *SQuAD*, 2016. The rule for "yes" and "no" is that of HotpotQA and 2WikiMultihopQA.

    Args:
        prediction: Predicted answer.
        answers: Correct answers, at least one.

    Returns:
        F1 in [0, 1].

    Raises:
        UserError: If ``answers`` is empty or not a sequence of strings.

    Example:
        >>> answer_f1("in Metz and Nancy", ["Metz"])
        0.4
    """
    return max(_f1(normalize_answer(prediction), normalize_answer(text)) for text in checked_answers(answers))


def _f1(said: str, right: str) -> float:
    if said == right or {said, right} & _SINGLED_OUT:
        return float(said == right)
    prediction, answer = said.split(), right.split()
    return 2 * (Counter(prediction) & Counter(answer)).total() / (len(prediction) + len(answer))


# Contain-Match: EA-GraphRAG, section 4.3, "the gold answer appears as a substring within the model's prediction"
OF_TEXTS = {EM: exact_match, F1: answer_f1, CONTAIN_MATCH: coverage}


def score_answers(
    said: Sequence[str | None], contexts: Sequence[str], right: Sequence[Sequence[str] | None]
) -> dict[str, Tensor]:
    """Score answers and their contexts.

    For a question without a correct answer, EM, F1 and Contain-Match are 1 if the answer abstains and 0 otherwise, as
    in SQuAD 2.0, and Context-Coverage is NaN. If the correct answers are unknown, all measures are NaN. A missing
    answer has 0 in EM, F1 and Contain-Match.

    Args:
        said: ``Q`` answers. A blank answer abstains, and None is a missing answer.
        contexts: Packed context of each question.
        right: Correct answers to each question. Empty if the question has no answer, None if the answers are unknown.

    Returns:
        Scores ``[Q]`` float64 in [0, 1] for each measure in :data:`SCORED`.
    """
    scores = {name: torch.full((len(said),), torch.nan, dtype=torch.float64) for name in SCORED}
    for row, (text, context, answers) in enumerate(zip(said, contexts, right, strict=True)):
        if answers is None:
            continue
        for name, measure in OF_TEXTS.items():
            if text is None:
                scores[name][row] = 0.0
            else:
                scores[name][row] = measure(text, answers) if answers else float(not normalize_answer(text))
        if answers:
            scores[CONTEXT_COVERAGE][row] = coverage(context, answers)
    return scores


def question_kinds(num_relevant: Sequence[int], scores: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Group questions into ``multi-hop``, ``single-hop`` and ``unanswerable``.

    A multi-hop question has several relevant passages. Groups without questions are omitted.

    Args:
        num_relevant: Number of relevant passages of each of ``Q`` questions.
        scores: Scores of any system's answers, as :func:`score_answers` returns them.

    Returns:
        Mask ``[Q]`` bool of each group.
    """
    counts = torch.tensor(list(num_relevant))
    unanswerable = scores[CONTEXT_COVERAGE].isnan() & ~scores[EM].isnan()
    groups = {"multi-hop": (counts > 1) & ~unanswerable, "single-hop": (counts <= 1) & ~unanswerable}
    groups["unanswerable"] = unanswerable
    return {name: inside for name, inside in groups.items() if bool(inside.any())}
