"""Strings stored contiguously, and helpers that select and renumber entries."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntegerArray = npt.NDArray[np.signedinteger[Any]]


def renumbered(nodes: npt.NDArray[np.int64], num_nodes: int, before: IntegerArray | None = None) -> IntegerArray:
    """Return the new index of each element after a selection.

    Args:
        nodes: Indices of the selected elements, in ascending order.
        num_nodes: Number of elements before the selection.
        before: Result ``[N']`` of an earlier selection, or None.

    Returns:
        New index of each element, int32, or -1 if it is not selected: ``[N']`` with ``before``, otherwise
        ``[num_nodes]``.
    """
    number = np.full(num_nodes + 1, -1, dtype=np.int32)  # index -1 reads the last entry
    number[nodes] = np.arange(len(nodes), dtype=np.int32)
    return number[:-1] if before is None else number[before]


def kept_entries(
    ptr: IntegerArray, entries: IntegerArray, numbers: IntegerArray
) -> tuple[IntegerArray, npt.NDArray[np.bool_]]:
    """Select the entries whose new index is not -1.

    Args:
        ptr: Row pointers ``[T + 1]``.
        entries: Indices of elements, ``[P]``.
        numbers: New index of each element, or -1. See :func:`renumbered`.

    Returns:
        Row pointers ``[T + 1]`` of the selected entries, and the mask of the selected entries ``[P]``.
    """
    mask = numbers[entries] >= 0
    return np.append(0, np.cumsum(mask))[ptr], mask


def slots_of(start: IntegerArray, stop: IntegerArray) -> tuple[IntegerArray, IntegerArray]:
    """List the positions of several ranges.

    Args:
        start: First position of each range, ``[M]``.
        stop: Position after each range, ``[M]``.

    Returns:
        Index of the range and position, with one entry per position.
    """
    count = stop - start
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) + (start - np.cumsum(count) + count)[row]


class PackedStrings(Sequence[str]):
    r"""Strings in UTF-8, stored contiguously. Lone surrogates are allowed.

    Args:
        offsets: Start of each string in ``content``, followed by the end of the last one, ``[N + 1]``.
        content: Bytes of all strings.
        stops: End of each string, ``[N]``. If None, each string ends where the next one starts.

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
        """Return packed strings in memory.

        Args:
            strings: Strings to pack.
        """
        return cls.of_encoded([string.encode("utf-8", "surrogatepass") for string in strings])

    @classmethod
    def of_encoded(cls, encoded: Sequence[bytes]) -> "PackedStrings":
        """Return packed strings in memory from strings in UTF-8.

        Args:
            encoded: Encoded strings.
        """
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(offsets, np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8))

    def chosen(self, indices: npt.NDArray[np.int64]) -> "PackedStrings":
        """Return the strings at the given indices, without copying their bytes.

        Args:
            indices: Indices ``[n]``.
        """
        return PackedStrings(np.append(self.offsets[indices], 0), self.content, self._stops[indices])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"`index` must lie in 0 to {len(self) - 1}, got {index}")
        return self._encoded(index % len(self)).decode("utf-8", "surrogatepass")

    def rank(self, string: str) -> int:
        """Return the index of a string, or -1 if it is not among the strings, which must be sorted by their bytes.

        Args:
            string: String to look up.
        """
        index = self.place(string)
        is_present = index < len(self) and self._encoded(index) == string.encode("utf-8", "surrogatepass")
        return index if is_present else -1

    def place(self, string: str) -> int:
        """Return the number of strings that come before a string. The strings must be sorted by their bytes.

        Args:
            string: String to look up.
        """
        return bisect_left(range(len(self)), string.encode("utf-8", "surrogatepass"), key=self._encoded)

    def _encoded(self, index: int) -> bytes:
        return self.content[self.offsets[index] : self._stops[index]].tobytes()


def chosen(strings: Sequence[Any], indices: npt.NDArray[np.int64]) -> Sequence[Any]:
    """Return the strings or records at the given indices.

    Args:
        strings: Strings or records.
        indices: Indices ``[n]``.
    """
    if isinstance(strings, PackedStrings):
        return strings.chosen(indices)
    return [strings[index] for index in indices.tolist()]
