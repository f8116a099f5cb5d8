"""Objects that the engines of one process share."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OncePerProcess(Generic[T]):
    """Factory that builds its object on the first call in a process, and returns the same object on every later call.

    The engines of a worker use it to share an encoder or a corpus. Engines are described in one process and built in
    others, so the factory is pickled without the object. Factories that are pickled together still share one object.

    Args:
        make: Picklable factory without arguments.

    Example:
        >>> shared = OncePerProcess(list)
        >>> shared() is shared()
        True
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._built: list[T] = []

    def __call__(self) -> T:
        """Return the object.

        Returns:
            The result of ``make`` from the first call in this process.
        """
        if not self._built:
            self._built.append(self._make())
        return self._built[0]

    def __getstate__(self) -> dict[str, Any]:
        """Return the factory without the object."""
        return {"_make": self._make, "_built": []}
