"""Measures of answers: exact match, F1, Contain-Match and the Coverage of their contexts."""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphrerank.metrics.coverage import checked_answers, coverage, normalize_answer

EM, F1, CONTAIN_MATCH, CONTEXT_COVERAGE = "EM", "F1", "Contain-Match", "Context-Coverage"
JUDGED = "Judged"  # accuracy by a model's verdict
SCORED = (EM, F1, CONTAIN_MATCH, CONTEXT_COVERAGE)
_SINGLED_OUT = frozenset({"yes", "no", "noanswer"})  # answers that no other one shares words with


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if an answer equals a right one, both normalised, else 0.

    Example:
        >>> exact_match("the Battle of Metz.", ["Battle of Metz"])
        1.0
    """
    return float(normalize_answer(prediction) in map(normalize_answer, checked_answers(answers)))


def answer_f1(prediction: str, answers: Sequence[str]) -> float:
    r"""Measure the words that an answer shares with a right one; the best of several right ones.

    .. math:: F_1 = \frac{2\,|p \cap a|}{|p| + |a|}

    with :math:`p` and :math:`a` multisets of normalised words. Two answers without a word are equal, 1. Where one of
    them is "yes", "no" or "noanswer" and the other one is not the same, it is 0.

    Source: Rajpurkar et al., *SQuAD*, 2016; the rule for "yes" and "no": HotpotQA and 2WikiMultihopQA.

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
    """Score ``Q`` answers, each with its packed context: ``[Q]`` float64 of each of :data:`SCORED`, in [0, 1].

    A blank answer abstains, None is missing. ``right`` are the right answers of each question; empty if there is none,
    None if unknown. If there is none, EM, F1 and Contain-Match are 1 if the answer abstains, else 0 (as in SQuAD 2.0),
    and Context-Coverage is NaN; if unknown, all are NaN. A missing answer has 0 in EM, F1 and Contain-Match.
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
    """Group questions: ``[Q]`` bool of those with several relevant passages, with one, and without an answer.

    ``scores`` are those of any system. Groups without a question are left out.
    """
    counts = torch.tensor(list(num_relevant))
    unanswerable = scores[CONTEXT_COVERAGE].isnan() & ~scores[EM].isnan()
    groups = {"multi-hop": (counts > 1) & ~unanswerable, "single-hop": (counts <= 1) & ~unanswerable}
    groups["unanswerable"] = unanswerable
    return {name: inside for name, inside in groups.items() if bool(inside.any())}
