"""Coverage: whether retrieved texts contain a right answer."""

import re
import string
from collections.abc import Sequence

from graphrerank.utils.checks import UserError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Make answers comparable: lower case, no ASCII punctuation, no English articles, single spaces.

    Source: Rajpurkar et al., *SQuAD*, 2016, its evaluation; as in HotpotQA, MuSiQue and KET-RAG.

    Example:
        >>> normalize_answer("The  Cat's  hat, a hat.")
        'cats hat hat'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def coverage(context: str, answers: Sequence[str]) -> float:
    """Return 1 if a context contains one of the right answers, else 0.

    Source: KET-RAG, section 6.1, "ground-truth answers found within the retrieved context". Both are normalised, and
    the answer is looked for anywhere, also within a word. An answer of which nothing is left is found nowhere.

    Example:
        >>> coverage("He died in the Year 869, in Piacenza.", ["the year 869"])
        1.0
    """
    normalized = normalize_answer(context)
    return float(any(answer and answer in normalized for answer in map(normalize_answer, checked_answers(answers))))


def checked_answers(answers: Sequence[str]) -> Sequence[str]:
    """Return right answers, one or more."""
    if isinstance(answers, str) or not answers:
        raise UserError(f"`answers` must be a list of one or more right answers, got {answers!r}")
    return answers
