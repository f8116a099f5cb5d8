"""Chunks of long documents: whole sentences, with an overlap."""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

from graphrerank.checks import UserError, check_counts
from graphrerank.text import split_sentences
from graphrerank.text.languages import detect_language
from graphrerank.text.sentences import Span

Unit = Literal["words", "characters"]

_WORD = re.compile(r"\S+")


def split_chunks(text: str, *, max_size: int = 200, overlap: int = 40, unit: Unit = "words") -> list[Span]:
    """Split a text into chunks of whole sentences; the last ones of a chunk are repeated in the next.

    A sentence longer than ``max_size`` is split between words, a word longer than ``max_size`` characters within. The
    repeated part has ``overlap`` units at most, often fewer, as sentences stay whole. Words are separated by white
    space. Together the chunks hold every character but white space.

    Example:
        >>> text = "Dr. No ran. He hid. He slept."
        >>> [text[start:stop] for start, stop in split_chunks(text, max_size=5, overlap=2)]
        ['Dr. No ran. He hid.', 'He hid. He slept.']
    """
    check_counts(max_size=max_size)
    if not 0 <= overlap <= max_size // 2:
        raise UserError(f"`overlap` must lie between 0 and the half of `max_size`, got {overlap} of {max_size}")
    sentences = split_sentences(text, detect_language([text]))
    pieces = [piece for sentence in sentences for piece in _cut(text, sentence, max_size, unit)]
    words = list(accumulate((len(_WORD.findall(text, *piece)) for piece in pieces), initial=0))

    def size(first: int, last: int) -> int:
        return words[last + 1] - words[first] if unit == "words" else pieces[last][1] - pieces[first][0]

    chunks: list[Span] = []
    first = last = 0
    while last < len(pieces):
        while last + 1 < len(pieces) and size(first, last + 1) <= max_size:
            last += 1
        chunks.append((pieces[first][0], pieces[last][1]))
        first = following = last + 1
        while first - 1 > 0 and following < len(pieces) and size(first - 1, last) <= overlap:
            if size(first - 1, following) > max_size:
                break
            first -= 1
        last = following
    return chunks


def _cut(text: str, span: Span, max_size: int, unit: Unit) -> Iterator[Span]:
    """Split one sentence into pieces of at most ``max_size``, between words if possible."""
    words = [match.span() for match in _WORD.finditer(text, *span)]
    if unit == "words":
        for first in range(0, len(words), max_size):
            yield words[first][0], words[first : first + max_size][-1][1]
        return
    start, stop = span[0], span[0]
    for word_start, word_stop in words:
        if word_stop - start > max_size and stop > start:
            yield start, stop
            start = word_start
        while word_stop - start > max_size:
            yield start, start + max_size
            start += max_size
        stop = word_stop
    if stop > start:
        yield start, stop
