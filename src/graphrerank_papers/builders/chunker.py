"""Split long documents into chunks of whole sentences."""

import re
from collections.abc import Iterator

from graphrerank.text import split_sentences
from graphrerank.text.languages import detect_language
from graphrerank.text.sentences import Span
from graphrerank.utils.checks import check_counts

_WORD = re.compile(r"\S+")


def split_chunks(text: str, *, max_size: int) -> list[Span]:
    """Split a text into chunks of whole sentences.

    A sentence longer than ``max_size`` is split between words, and a longer word is split anywhere. The chunks cover
    every character except white space.

    Args:
        text: Text of a document.
        max_size: Maximum number of characters per chunk.

    Returns:
        Start and end of each chunk in ``text``, in order.

    Raises:
        UserError: If ``max_size`` is not a positive integer.

    Example:
        >>> text = "Dr. No ran. He hid. He slept."
        >>> [text[start:stop] for start, stop in split_chunks(text, max_size=20)]
        ['Dr. No ran. He hid.', 'He slept.']
    """
    check_counts(max_size=max_size)
    chunks: list[Span] = []
    for sentence in split_sentences(text, detect_language([text])):
        for start, stop in _cut(text, sentence, max_size):
            if chunks and stop - chunks[-1][0] <= max_size:
                chunks[-1] = chunks[-1][0], stop
            else:
                chunks.append((start, stop))
    return chunks


def _cut(text: str, span: Span, max_size: int) -> Iterator[Span]:
    """Split one sentence into pieces of at most ``max_size`` characters, between words if possible."""
    start, stop = span[0], span[0]
    for word_start, word_stop in (match.span() for match in _WORD.finditer(text, *span)):
        if word_stop - start > max_size and stop > start:
            yield start, stop
            start = word_start
        while word_stop - start > max_size:
            yield start, start + max_size
            start += max_size
        stop = word_stop
    if stop > start:
        yield start, stop
