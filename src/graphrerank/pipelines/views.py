"""Cache of views, which are subsets of a corpus with the objects built on them, such as a pipeline."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from threading import Lock
from typing import Generic, TypeVar

from torch import Tensor

T = TypeVar("T")
MOST_VIEWS, MOST_NAMES = 256, 4096


class Views(Generic[T]):
    """Bounded, thread-safe cache of the views of one corpus.

    The key of a view consists of the indices of its passages (and of its edges with access restrictions) and of a
    ``variant``, which identifies everything else that affects the results, such as whether superseded passages are
    ranked lower. A view must depend only on its key and on the corpus. Filters and principals that select the same
    passages therefore share a view, but searches of the current corpus and of a past state do not.

    The least recently used views are evicted until the remaining views contain at most twice as many passages as the
    corpus, or until one view is left. If two threads request the same new view at the same time, both may build it.

    Args:
        num_nodes: Number of passages in the corpus.
    """

    def __init__(self, num_nodes: int) -> None:
        self._most_nodes = 2 * num_nodes
        self._lock = Lock()
        self._views: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()  # size and view, by digest and variant
        self._digests: OrderedDict[Hashable, bytes] = OrderedDict()  # digest of the indices, by selection

    def get(
        self,
        selection: Hashable,
        select: Callable[[], Tensor],
        build: Callable[[Tensor], T],
        *,
        variant: Hashable = None,
    ) -> T:
        """Return the view of a selection of passages, and build it if it is not in the cache.

        Args:
            selection: Identifier of the selection, such as a filter. It must determine the result of ``select``, which
                is not called again for a cached selection.
            select: Function that returns the selected indices, ``[n]`` int64 ascending: passages, followed by edges
                with access restrictions.
            build: Function that builds the view from the selected indices.
            variant: Identifier of everything else that affects the result of ``build``. None if there is nothing else.

        Returns:
            View of the selection.
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
