"""Views: parts of a corpus with everything built on them, cached by what determines their answers."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from threading import Lock
from typing import Generic, TypeVar

from torch import Tensor

T = TypeVar("T")
MOST_VIEWS, MOST_NAMES = 256, 4096


class Views(Generic[T]):
    """A bounded cache of views of one corpus, shared by all requests that would get the same answers.

    The key of a view is complete: it consists of the numbers of the passages (and guarded edges) that the view holds
    and of its ``variant``, which names everything else that changes its answers, such as whether a passage ranks below
    the one that supersedes it. A view must be a function of these two and of the corpus alone. Filters and principals
    that select the same passages therefore share a view; a search now and a search of the past do not.

    The least recently used views are dropped until the rest holds at most twice the passages of the corpus, or one view
    is left. Threads may share a cache; two that need a new view at the same time may both build it.

    Args:
        num_nodes: Number of passages of the corpus.
    """

    def __init__(self, num_nodes: int) -> None:
        self._most_nodes = 2 * num_nodes
        self._lock = Lock()
        self._views: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()  # by digest of the numbers, and variant
        self._digests: OrderedDict[Hashable, bytes] = OrderedDict()  # of the numbers, by selection

    def get(
        self,
        selection: Hashable,
        select: Callable[[], Tensor],
        build: Callable[[Tensor], T],
        *,
        variant: Hashable = None,
    ) -> T:
        """Return the view of a selection of passages, from the cache where an equal view is in it.

        Args:
            selection: What determines the selected numbers over this corpus, such as a filter. Known selections are
                not evaluated again.
            select: Returns the selected numbers, ``[n]`` int64 ascending: passages, and guarded edges behind them.
            build: Builds the view from the selected numbers.
            variant: Everything but the selected numbers that changes what ``build`` returns. None if there is nothing
                else.
        """
        with self._lock:
            digest = self._digests.get(selection)
            if digest is not None and (cached := self._views.get((digest, variant))) is not None:
                self._views.move_to_end((digest, variant))
                return cached[1]
        numbers = select().cpu().contiguous()
        digest = blake2b(numbers.numpy().data.cast("B") if len(numbers) else b"").digest()
        key = (digest, variant)
        with self._lock:
            self._digests[selection] = digest
            self._digests.move_to_end(selection)
            while len(self._digests) > MOST_NAMES:
                self._digests.popitem(last=False)
            if (cached := self._views.get(key)) is not None:
                self._views.move_to_end(key)
                return cached[1]
        built = build(numbers)
        with self._lock:
            view = self._views.setdefault(key, (len(numbers), built))[1]
            self._views.move_to_end(key)
            while len(self._views) > MOST_VIEWS or (len(self._views) > 1 and self._num_nodes > self._most_nodes):
                self._views.popitem(last=False)
            return view

    @property
    def _num_nodes(self) -> int:
        return sum(size for size, _ in self._views.values())
