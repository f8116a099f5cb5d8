"""Split long documents into chunks of whole sentences, which may overlap."""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

from graphrerank.text import split_sentences
from graphrerank.text.languages import detect_language
from graphrerank.text.sentences import Span
from graphrerank.utils.checks import UserError, check_choice, check_counts

#: Unit of the size of a chunk.
Unit = Literal["words", "characters"]

_WORD = re.compile(r"\S+")


def split_chunks(text: str, *, max_size: int, overlap: int = 0, unit: Unit = "characters") -> list[Span]:
    """Split a text into chunks of whole sentences.

    A sentence longer than ``max_size`` is split between words, and a word of more than ``max_size`` characters is split
    anywhere. The chunks cover every character except white space.

    Args:
        text: Text of a document.
        max_size: Maximum size of a chunk, in ``unit``.
        overlap: Maximum size of the part that a chunk shares with the next one, in ``unit``. The shared part consists
            of whole sentences, so it is often shorter. Defaults to 0, where no sentence is in two chunks.
        unit: ``characters``, or ``words`` (separated by white space).

    Returns:
        Start and end of each chunk in ``text``, in order.

    Raises:
        UserError: If ``max_size`` is not a positive integer, or ``overlap`` is more than half of it.

    Example:
        >>> text = "Dr. No ran. He hid. He slept."
        >>> [text[start:stop] for start, stop in split_chunks(text, max_size=20)]
        ['Dr. No ran. He hid.', 'He slept.']
        >>> [text[start:stop] for start, stop in split_chunks(text, max_size=5, overlap=2, unit="words")]
        ['Dr. No ran. He hid.', 'He hid. He slept.']
    """
    check_counts(max_size=max_size)
    check_choice(("words", "characters"), unit=unit)
    if not 0 <= overlap <= max_size // 2:
        raise UserError(f"`overlap` must be between 0 and half of `max_size`, got {overlap} of {max_size}")
    sentences = split_sentences(text, detect_language([text]))
    pieces = [piece for sentence in sentences for piece in _cut(text, sentence, max_size, unit)]
    words_before = list(accumulate((len(_WORD.findall(text, *piece)) for piece in pieces), initial=0))

    def size(first: int, last: int) -> int:
        """Return the size of the chunk that consists of the pieces from ``first`` to ``last``."""
        if unit == "words":
            return words_before[last + 1] - words_before[first]
        return pieces[last][1] - pieces[first][0]

    chunks: list[Span] = []
    first = last = 0
    while last < len(pieces):
        while last + 1 < len(pieces) and size(first, last + 1) <= max_size:
            last += 1
        chunks.append((pieces[first][0], pieces[last][1]))
        first = following = last + 1
        # Repeat pieces at the end of this chunk, as long as the next piece still fits behind them.
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
        for index in range(0, len(words), max_size):
            yield words[index][0], words[index : index + max_size][-1][1]
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
