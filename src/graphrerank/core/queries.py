"""Batches of queries, the input of every retriever."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from graphrerank.utils.checks import UserError
from graphrerank.utils.progress import step


@dataclass(frozen=True)
class Queries:
    """Batch of queries.

    Attributes:
        ids: Ids of ``B`` queries as in the data set. A retriever with precomputed rankings looks them up by id.
        texts: Texts of the queries.
        vectors: Unit vectors ``[B, d]``, float32. None if the queries are not encoded.

    Raises:
        UserError: If the lengths differ.

    Example:
        >>> len(Queries(["q1", "q2"], ["red apple", "green pear"]))
        2
    """

    ids: Sequence[str]
    texts: Sequence[str]
    vectors: Tensor | None = None

    def __post_init__(self) -> None:
        vectors = len(self.ids) if self.vectors is None else len(self.vectors)
        if not len(self.ids) == len(self.texts) == vectors:
            raise UserError(
                f"`ids`, `texts` and `vectors` must have one entry per query, got {len(self.ids)} ids, "
                f"{len(self.texts)} texts and {vectors} vectors"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def encoded(self) -> Tensor:
        """Vectors ``[B, d]`` of encoded queries.

        Raises:
            UserError: If the queries are not encoded.
        """
        if self.vectors is None:
            raise UserError("`queries` must have vectors, got None. Encode them first, for example with encoder=minilm")
        return self.vectors

    def block(self, start: int, stop: int) -> "Queries":
        """Return consecutive queries.

        Args:
            start: Index of the first query.
            stop: Index after the last query.
        """
        vectors = None if self.vectors is None else self.vectors[start:stop]
        return Queries(self.ids[start:stop], self.texts[start:stop], vectors)

    def blocks(self, size: int) -> Iterator["Queries"]:
        """Yield blocks of consecutive queries, or one empty block if there are no queries.

        Each block is a step of the current progress (:func:`~graphrerank.utils.progress.step`). The step ends when the
        next block is requested.

        Args:
            size: Largest number of queries in a block.
        """
        for start in range(0, max(1, len(self)), size):
            block = self.block(start, start + size)
            with step(len(block)):
                yield block

    def select(self, rows: Tensor) -> "Queries":
        """Return the queries with the given indices, in the given order.

        Args:
            rows: Indices ``[b]``, int64.
        """
        numbers = rows.tolist()
        ids, texts = ([strings[number] for number in numbers] for strings in (self.ids, self.texts))
        return Queries(ids, texts, None if self.vectors is None else self.vectors[rows.to(self.vectors.device)])


class TextEncoder(Protocol):
    """Protocol of objects that encode texts as vectors."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts.

        Args:
            texts: ``n`` texts.

        Returns:
            Unit vectors ``[n, d]``, float32.
        """


@runtime_checkable
class IndexEncoder(TextEncoder, Protocol):
    """Protocol of encoders for the texts of an index. An encoder with a cache makes adding documents cheap."""

    @property
    def fingerprint(self) -> str:
        """String that changes whenever the vectors would change."""
