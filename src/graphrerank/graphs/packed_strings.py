"""Strings concatenated in one array of bytes, which may lie on disk; each is decoded on access."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


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
        wanted = string.encode("utf-8", "surrogatepass")
        place = bisect_left(range(len(self)), wanted, key=self._encoded)
        return place if place < len(self) and self._encoded(place) == wanted else -1

    def _encoded(self, place: int) -> bytes:
        return self.content[self.offsets[place] : self._stops[place]].tobytes()
