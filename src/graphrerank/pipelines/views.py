"""What belongs to parts of a corpus, built once for each part and kept within a bound."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Generic, TypeVar

from torch import Tensor

T = TypeVar("T")
MOST_VIEWS, MOST_NAMES = 256, 4096


class Views(Generic[T]):
    """Keeps views of a corpus by the numbers of what they hold: filters and principals of one effect share a view.

    Those used last stay, together at most twice the corpus, or one that is larger.
    """

    def __init__(self, num_nodes: int) -> None:
        self._most_nodes = 2 * num_nodes
        self._kept: OrderedDict[bytes, tuple[int, T]] = OrderedDict()
        self._keys: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, name: Hashable, held: Callable[[], Tensor], build: Callable[[Tensor], T]) -> T:
        """Return the view of some ``name``, or else of what it holds: the numbers of its passages (and edges)."""
        if (key := self._keys.get(name, b"")) not in self._kept:
            numbers = held().cpu().contiguous()
            key = blake2b(numbers.numpy().data.cast("B") if len(numbers) else b"").digest()
            self._keys[name] = key
            if key not in self._kept:
                self._kept[key] = (len(numbers), build(numbers))
            while len(self._keys) > MOST_NAMES:
                self._keys.popitem(last=False)
            while len(self._kept) > MOST_VIEWS or (len(self._kept) > 1 and self._num_nodes > self._most_nodes):
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][1]

    @property
    def _num_nodes(self) -> int:
        return sum(size for size, _ in self._kept.values())
