"""What belongs to parts of a corpus, built once for each part and kept within a bound."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

from torch import Tensor

T = TypeVar("T")
MOST_VIEWS = 256


class Views(Generic[T]):
    """Keeps views of a corpus by the numbers of what they hold: filters and principals of one effect share a view.

    Those used last stay, together at most twice the corpus, or one that is larger.
    """

    def __init__(self, num_nodes: int) -> None:
        self._most_nodes = 2 * num_nodes
        self._kept: OrderedDict[bytes, tuple[int, T]] = OrderedDict()

    def get(self, held: Tensor, num_nodes: int, build: Callable[[], T]) -> T:
        """Return the view of ``held``, the numbers of its passages (and edges), or build it."""
        key = blake2b(held.cpu().contiguous().numpy().data.cast("B")).digest() if len(held) else b""
        if key not in self._kept:
            self._kept[key] = (num_nodes, build())
            while len(self._kept) > MOST_VIEWS or (len(self._kept) > 1 and self._num_nodes > self._most_nodes):
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][1]

    @property
    def _num_nodes(self) -> int:
        return sum(size for size, _ in self._kept.values())
