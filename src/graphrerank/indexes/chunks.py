"""Chunks of a corpus of equal length in tokens, and the sub-chunks that halving makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from graphrerank.text import Tokenizer

SEPARATOR = "\n\n"  # between two documents of one chunk


@dataclass(frozen=True)
class Chunks:
    """Pieces of a corpus, in its order.

    Attributes:
        texts: ``n`` strings.
        indptr: ``[n + 1]`` int64; chunk ``i`` holds words of the documents ``documents[indptr[i]:indptr[i + 1]]``.
        documents: ``[M]`` int64 document numbers, ascending within a chunk.
        parent: ``[n]`` int64, the chunk that a sub-chunk was cut from; its own number where nothing is halved.
    """

    texts: Sequence[str]
    indptr: Tensor
    documents: Tensor
    parent: Tensor

    def __len__(self) -> int:
        return len(self.texts)


class TokenStream:
    r"""The tokens of a corpus, one document after the other, from which chunks of any length are cut.

    Args:
        texts: ``D`` documents.
        tokenizer: What a token is.

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

        Source: KET-RAG, section 2.1 and Algorithm 3, line 10. An odd length leaves the first half the longer one, and
        a single token is not halved, so that a short chunk may have less than :math:`2^\tau` sub-chunks.

        Args:
            chunk_tokens: Tokens of a chunk; the last one may be shorter.
            join: Whether a chunk may go on in the next document; if not, every document begins a new one.
            num_splits: How often each chunk is halved.

        Raises:
            ValueError: If ``chunk_tokens`` is below 1 or ``num_splits`` below 0.
        """
        if chunk_tokens < 1:
            raise ValueError(f"`chunk_tokens` must be a positive integer, got {chunk_tokens}")
        if num_splits < 0:
            raise ValueError(f"`num_splits` must not be negative, got {num_splits}")
        regions = [(0, len(self))] if join else list(pairwise(self._bounds))
        whole = [
            (start, min(start + chunk_tokens, stop))
            for begin, stop in regions
            for start in range(begin, stop, chunk_tokens)
        ]
        # without a piece: what a character of several tokens left behind, as it goes whole to one side
        ranges = [(*tokens, number) for number, tokens in enumerate(t for t in whole if self._piece(*t))]
        for _ in range(num_splits):
            ranges = [
                half
                for start, stop, number in ranges
                for half in ((start, (start + stop + 1) // 2, number), ((start + stop + 1) // 2, stop, number))
                if half[0] < half[1]
            ]
        pieces = [(self._piece(start, stop), start, stop, number) for start, stop, number in ranges]
        pieces = [piece for piece in pieces if piece[0]]
        documents = [torch.unique_consecutive(self._document[start:stop]) for _, start, stop, _ in pieces]
        indptr = torch.tensor(list(accumulate(map(len, documents), initial=0)))
        return Chunks(
            [text for text, _, _, _ in pieces],
            indptr,
            torch.cat([*documents, self._document[:0]]),
            torch.tensor([number for _, _, _, number in pieces], dtype=torch.int64),
        )

    def _piece(self, start: int, stop: int) -> str:
        end = self._starts[stop] if stop < len(self) else len(self._text)
        return self._text[self._starts[start] : end].strip()
