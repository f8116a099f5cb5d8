"""A batch of queries, what every retriever takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from graphrerank.utils.checks import UserError


@dataclass(frozen=True)
class Queries:
    """Queries to rank the corpus for; a ValueError if lengths differ."""

    ids: Sequence[str]  # `B` strings, as in the data set: a retriever that looks rankings up finds them by id
    texts: Sequence[str]  # `B` strings
    vectors: Tensor | None = None  # `[B, d]` float32 unit vectors; None where nothing was encoded

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
        """``[B, d]``, the vectors of queries that must have them; a ValueError if there are none."""
        if self.vectors is None:
            raise UserError("`queries` must have vectors: encode them first, with encoder=minilm or another")
        return self.vectors

    def block(self, start: int, stop: int) -> "Queries":
        """Take the queries from number ``start`` up to before ``stop``."""
        vectors = None if self.vectors is None else self.vectors[start:stop]
        return Queries(self.ids[start:stop], self.texts[start:stop], vectors)

    def blocks(self, size: int) -> Iterator["Queries"]:
        """Yield blocks of at most ``size`` queries; one empty block if there are no queries."""
        for start in range(0, max(1, len(self)), size):
            yield self.block(start, start + size)

    def select(self, rows: Tensor) -> "Queries":
        """Take the queries of some numbers (``[b]`` int64), in that order."""
        numbers = rows.tolist()
        ids, texts = ([strings[number] for number in numbers] for strings in (self.ids, self.texts))
        return Queries(ids, texts, None if self.vectors is None else self.vectors[rows.to(self.vectors.device)])


class TextEncoder(Protocol):
    """Anything that turns texts into vectors."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode ``n`` texts as ``[n, d]`` float32 unit vectors."""


@runtime_checkable
class IndexEncoder(TextEncoder, Protocol):
    """An encoder for texts of an index; one that caches vectors makes adding documents cheap."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the vectors would."""
