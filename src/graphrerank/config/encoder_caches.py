"""Text encoders with a cache of their vectors on disk, each built once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphrerank.core import Encoder
from graphrerank.data.vector_cache import VectorCache


class EncoderCaches:
    """Build text encoders, and return the same one for the same description.

    Args:
        build: Function that builds an encoder from its description: a name, settings, or the encoder itself.
    """

    def __init__(self, build: Callable[[Any], Encoder]) -> None:
        self._build = build
        self._encoders: list[tuple[Any, VectorCache]] = []  # descriptions need not be hashable

    def get(self, description: Any, folder: Path) -> VectorCache:
        """Return the encoder of a description, built at the first call.

        Args:
            description: Name, settings, or the encoder itself.
            folder: Folder of the cached vectors.

        Returns:
            Encoder with a cache of vectors on disk.
        """
        for known_description, encoder in self._encoders:
            if known_description == description:
                return encoder
        encoder = VectorCache(self._build(description), folder)
        self._encoders.append((description, encoder))
        return encoder

    @property
    def counts(self) -> dict[str, int]:
        """Counts of requests to encoders behind an endpoint, summed over the encoders. Empty if there is none."""
        total: Counter[str] = Counter()
        for _, encoder in self._encoders:
            total.update(encoder.counts)
        return dict(total)
