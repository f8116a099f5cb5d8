"""Measures of answers: exact match, F1 and Contain-Match."""

from collections import Counter
from collections.abc import Sequence

from graphrerank.metrics.coverage import checked_answers, coverage, normalize_answer

__all__ = ["answer_f1", "contain_match", "coverage", "exact_match", "normalize_answer"]

_SINGLED_OUT = frozenset({"yes", "no", "noanswer"})  # answers that no other one shares words with


def contain_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if an answer contains one of the right ones, both normalised, else 0.

    Source: EA-GraphRAG, section 4.3, Contain-Match Accuracy of the answer of Eq. 11: "the gold answer appears as a
    substring within the model's prediction". :func:`coverage` of the answer in the place of the context.

    Raises:
        ValueError: If there is no right answer.

    Example:
        >>> contain_match("He was born in Metz, France.", ["Metz"])
        1.0
    """
    return coverage(prediction, answers)


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if an answer equals a right one, both normalised, else 0.

    Raises:
        ValueError: If there is no right answer.

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

    Source: Rajpurkar et al., *SQuAD*, 2016; the rule for "yes" and "no" is of the evaluation of HotpotQA and
    2WikiMultihopQA.

    Raises:
        ValueError: If there is no right answer.

    Example:
        >>> answer_f1("in Metz and Nancy", ["Metz"])
        0.4
    """
    said = normalize_answer(prediction)
    return max(_f1(said, normalize_answer(text)) for text in checked_answers(answers))


def _f1(said: str, right: str) -> float:
    if said == right:
        return 1.0
    if {said, right} & _SINGLED_OUT:
        return 0.0
    prediction, answer = said.split(), right.split()
    shared = sum((Counter(prediction) & Counter(answer)).values())
    return 2 * shared / (len(prediction) + len(answer))
