"""Chunks of equal length in tokens, and the sub-chunks into which they are halved."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from graphrerank.text import Tokenizer

SEPARATOR = "\n\n"  # between two documents of one chunk


@dataclass(frozen=True)
class Chunks:
    """Pieces of a corpus, in corpus order."""

    texts: Sequence[str]  # `n` strings
    indptr: Tensor  # `[n + 1]` int64; chunk `i` contains words of the documents `documents[indptr[i]:indptr[i + 1]]`
    documents: Tensor  # `[M]` int64 document indices, ascending within a chunk
    parent: Tensor  # `[n]` int64, the chunk that a sub-chunk was cut from; the chunk itself if nothing is halved

    def __len__(self) -> int:
        return len(self.texts)


class TokenStream:
    r"""The concatenated tokens of a corpus, from which chunks of any length are cut.

    Example:
        >>> from graphrerank.text import WordTokenizer
        >>> stream = TokenStream(["One two three.", "Four five."], WordTokenizer())
        >>> stream.cut(4).texts
        ['One two three.\n\nFour', 'five.']
        >>> halves = stream.cut(4, num_splits=1)
        >>> halves.texts, halves.parent.tolist(), halves.documents.tolist()
        (['One two', 'three.\n\nFour', 'five.'], [0, 0, 1], [0, 0, 1, 1])
        >>> stream.cut(4, join=False).texts
        ['One two three.', 'Four five.']
    """

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer) -> None:
        self._text = SEPARATOR.join(texts)
        begins = accumulate((len(text) + len(SEPARATOR) for text in texts), initial=0)
        spans = tokenizer.spans(texts)
        self._starts = [begin + start for begin, tokens in zip(begins, spans, strict=False) for start, _ in tokens]
        self._bounds = list(accumulate(map(len, spans), initial=0))  # of documents, in tokens
        self._document = torch.repeat_interleave(
            torch.arange(len(texts)), torch.tensor([len(tokens) for tokens in spans], dtype=torch.int64)
        )

    def __len__(self) -> int:
        return len(self._starts)

    def cut(self, chunk_tokens: int, *, join: bool = True, num_splits: int = 0) -> Chunks:
        r"""Cut the stream every ``chunk_tokens`` tokens, and halve each chunk ``num_splits`` times.

        Source: KET-RAG, section 2.1 and Algorithm 3, line 10. The first half of an odd length is the longer one. A
        single token is not halved, so a short chunk may have fewer than :math:`2^\tau` sub-chunks. ``join``: a chunk
        may span documents; if not, every document begins a new one.
        """
        regions = [(0, len(self))] if join else list(pairwise(self._bounds))
        spans = [
            (start, min(start + chunk_tokens, stop))
            for begin, stop in regions
            for start in range(begin, stop, chunk_tokens)
        ]
        # A character of several tokens goes to one side of a cut, which may leave the other without text.
        ranges = [(*span, chunk) for chunk, span in enumerate(span for span in spans if self._text_between(*span))]
        for _ in range(num_splits):
            ranges = [
                half
                for start, stop, chunk in ranges
                for half in ((start, (start + stop + 1) // 2, chunk), ((start + stop + 1) // 2, stop, chunk))
                if half[0] < half[1]
            ]
        ranges = [(start, stop, chunk) for start, stop, chunk in ranges if self._text_between(start, stop)]
        documents = [torch.unique_consecutive(self._document[start:stop]) for start, stop, _ in ranges]
        return Chunks(
            [self._text_between(start, stop) for start, stop, _ in ranges],
            torch.tensor(list(accumulate(map(len, documents), initial=0))),
            torch.cat([*documents, self._document[:0]]),
            torch.tensor([chunk for _, _, chunk in ranges], dtype=torch.int64),
        )

    def _text_between(self, start: int, stop: int) -> str:
        end = self._starts[stop] if stop < len(self) else len(self._text)
        return self._text[self._starts[start] : end].strip()
