"""From the id of a passage to its number, by hashes that lie on disk in order."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class NodeNumbers:
    """The numbers of passages that were not removed.

    Args:
        node_ids: ``N`` ids; of passages that were removed others may have the same.
        hashes: ``[N']`` int64, of the first ``N'`` ids (:func:`hash_strings`), ascending.
        by_hash: ``[N']`` int64, the number of each of these passages.
        removed: ``[N]`` bool; None for none.
    """

    def __init__(
        self, node_ids: Sequence[str], hashes: Integers, by_hash: Integers, removed: npt.NDArray[np.bool_] | None
    ) -> None:
        self._node_ids, self._hashes, self._by_hash, self._removed = node_ids, hashes, by_hash, removed
        added = range(len(hashes), len(node_ids))
        self._added = {node_ids[number]: number for number in added if removed is None or not removed[number]}

    def get(self, node_id: str) -> int | None:
        """Return the number of a passage, or None if there is none of this id."""
        if (added := self._added.get(node_id)) is not None:
            return added
        (wanted,) = hash_strings([node_id])
        start, stop = np.searchsorted(self._hashes, wanted), np.searchsorted(self._hashes, wanted, side="right")
        for number in self._by_hash[start:stop].tolist():
            if self._node_ids[number] == node_id and (self._removed is None or not self._removed[number]):
                return int(number)
        return None


def hash_strings(strings: Sequence[str]) -> Integers:
    """Hash strings to 64 bits: ``[n]`` int64.

    Example:
        >>> bool(hash_strings(["a", "b"])[0] == hash_strings(["a"])[0])
        True
    """
    digests = (blake2b(string.encode("utf-8", "surrogatepass"), digest_size=8).digest() for string in strings)
    return np.frombuffer(b"".join(digests), dtype="<i8")
