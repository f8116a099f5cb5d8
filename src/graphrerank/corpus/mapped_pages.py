"""Memory-mapped files whose pages can be released, because pages in use count as memory of the process."""

import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.utils.files import open_plain

#: Default number of resident bytes above which pages are released: 0.5 GiB.
MAX_RESIDENT_BYTES = 1 << 29
#: File of Linux whose third number is the number of resident pages of mapped files.
RESIDENT = Path("/proc/self/statm")


class MappedPages:
    """Map files, and release their pages when the process has too many of them in memory.

    A process that reads scattered rows soon has all pages of a large file in memory, because the kernel also maps
    neighbouring pages. Released pages remain in the page cache of the kernel while there is room. Pages are only
    released on Linux.

    Args:
        most_bytes: Number of resident bytes above which pages are released.
    """

    def __init__(self, most_bytes: int = MAX_RESIDENT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._maps: list[mmap.mmap] = []
        self._kept_bytes = 0  # resident bytes after the last release

    def map(self, path: Path, dtype: str, shape: tuple[int, ...], *, private: bool = False) -> npt.NDArray[Any]:
        """Map the start of a file, which must not be a symbolic link.

        Args:
            path: Path of the file.
            dtype: Data type of the array.
            shape: Shape of the array, which must have at least one byte.
            private: Whether the array can be written to. Changes are not written to the file, and the pages are not
                released.

        Returns:
            Array, which is read-only unless ``private`` is set.
        """
        size = np.dtype(dtype).itemsize * math.prod(shape)
        with os.fdopen(open_plain(path), "rb") as file:
            access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
            mapped = mmap.mmap(file.fileno(), size, access=access)
        if not private:
            self._maps.append(mapped)
        return np.frombuffer(mapped, dtype=dtype).reshape(shape)

    def release(self) -> bool:
        """Release all pages if more than ``most_bytes`` are resident. Arrays keep their contents.

        Returns:
            Whether pages were released.
        """
        if not self._maps or not hasattr(mmap, "MADV_DONTNEED"):
            return False
        resident = _resident_bytes()
        self._kept_bytes = min(self._kept_bytes, resident)
        if resident - self._kept_bytes <= self._most_bytes:
            return False
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)
        self._kept_bytes = _resident_bytes()
        return True


def _resident_bytes() -> int:
    """Return the resident bytes of files that this process has mapped, or 0 if unknown."""
    return int(RESIDENT.read_text().split()[2]) * mmap.PAGESIZE if RESIDENT.is_file() else 0
