"""Strings packed behind each other, and the numbers of those that are chosen of many."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntegerArray = npt.NDArray[np.signedinteger[Any]]


def renumbered(nodes: npt.NDArray[np.int64], num_nodes: int, before: IntegerArray | None = None) -> IntegerArray:
    """Number some of ``num_nodes`` in their order: ``[num_nodes]`` int32, -1 for the others.

    With the numbers that others had ``before``: ``[N']``, the new number of each.
    """
    number = np.full(num_nodes + 1, -1, dtype=np.int32)  # the last for those that had none
    number[nodes] = np.arange(len(nodes), dtype=np.int32)
    return number[:-1] if before is None else number[before]


def kept_entries(
    ptr: IntegerArray, entries: IntegerArray, numbers: IntegerArray
) -> tuple[IntegerArray, npt.NDArray[np.bool_]]:
    """Keep the entries ``[P]`` of rows whose ``numbers`` are not -1: where rows then begin, and a mask ``[P]``."""
    kept = numbers[entries] >= 0
    return np.append(0, np.cumsum(kept))[ptr], kept


def slots_of(start: IntegerArray, stop: IntegerArray) -> tuple[IntegerArray, IntegerArray]:
    """List the places from ``start [M]`` to ``stop [M]``: of each the row and the place."""
    count = stop - start
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) + (start - np.cumsum(count) + count)[row]


class PackedStrings(Sequence[str]):
    """``N`` strings in UTF-8, a lone surrogate included: ``content[offsets[i]:offsets[i + 1]]``, or to ``stops[i]``.

    Example:
        >>> strings = PackedStrings.of(["b", "", "c\u00e9"])
        >>> strings[2], strings[1:], len(strings)
        ('cé', ['', 'cé'], 3)
    """

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        content: npt.NDArray[np.uint8],
        stops: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.offsets = offsets
        self.content = content
        self._stops = offsets[1:] if stops is None else stops

    @classmethod
    def of(cls, strings: Iterable[str]) -> "PackedStrings":
        """Pack strings in memory."""
        return cls.of_encoded([string.encode("utf-8", "surrogatepass") for string in strings])

    @classmethod
    def of_encoded(cls, encoded: Sequence[bytes]) -> "PackedStrings":
        """Pack strings that are in UTF-8 already."""
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(offsets, np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8))

    def chosen(self, places: npt.NDArray[np.int64]) -> "PackedStrings":
        """Return some of the strings, without a copy of their bytes."""
        return PackedStrings(np.append(self.offsets[places], 0), self.content, self._stops[places])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"`index` must lie in 0 to {len(self) - 1}, got {index}")
        return self._encoded(index % len(self)).decode("utf-8", "surrogatepass")

    def rank(self, string: str) -> int:
        """Return the place of a string among these, which ascend by their bytes; -1 if it is none of them."""
        place = self.place(string)
        return place if place < len(self) and self._encoded(place) == string.encode("utf-8", "surrogatepass") else -1

    def place(self, string: str) -> int:
        """Return how many of these, which ascend by their bytes, come before a string."""
        return bisect_left(range(len(self)), string.encode("utf-8", "surrogatepass"), key=self._encoded)

    def _encoded(self, place: int) -> bytes:
        return self.content[self.offsets[place] : self._stops[place]].tobytes()


def chosen(strings: Sequence[Any], places: npt.NDArray[np.int64]) -> Sequence[Any]:
    """Return some of the strings, or records."""
    return strings.chosen(places) if isinstance(strings, PackedStrings) else [strings[at] for at in places.tolist()]
