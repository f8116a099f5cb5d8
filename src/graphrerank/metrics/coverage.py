"""Answer coverage: check whether retrieved text contains a correct answer."""

import re
import string
from collections.abc import Sequence

from graphrerank.utils.checks import UserError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Normalise an answer for comparison: lower case, no ASCII punctuation, no English articles, single spaces.

    Source: the evaluation script of Rajpurkar et al., *SQuAD*, 2016, which HotpotQA, MuSiQue and KET-RAG also use.

    Args:
        text: Answer or retrieved text.

    Returns:
        Normalised text, which may be empty.

    Example:
        >>> normalize_answer("The  Cat's  hat, a hat.")
        'cats hat hat'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def coverage(context: str, answers: Sequence[str]) -> float:
    """Return 1 if the context contains at least one of the correct answers, and 0 otherwise.

    Both are normalised. An answer may match anywhere in the context, even inside a word. An answer that is empty after
    normalisation never matches.

    Source: KET-RAG, section 6.1, "ground-truth answers found within the retrieved context".

    Args:
        context: Retrieved text.
        answers: Correct answers, at least one.

    Returns:
        1.0 or 0.0.

    Raises:
        UserError: If ``answers`` is empty or a string.

    Example:
        >>> coverage("He died in the Year 869, in Piacenza.", ["the year 869"])
        1.0
    """
    normalized = normalize_answer(context)
    return float(any(answer and answer in normalized for answer in map(normalize_answer, checked_answers(answers))))


def checked_answers(answers: Sequence[str]) -> Sequence[str]:
    """Return the answers after checking that they are a non-empty list.

    Args:
        answers: Correct answers.

    Raises:
        UserError: If ``answers`` is empty or a string.
    """
    if isinstance(answers, str) or not answers:
        raise UserError(f"`answers` must be a list of at least one correct answer, got {answers!r}")
    return answers
