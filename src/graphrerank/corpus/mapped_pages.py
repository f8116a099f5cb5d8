"""Pages of mapped files that a process has read: they count as its memory until they are given back."""

import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.utils.files import open_plain

MAX_RESIDENT_BYTES = 1 << 29  # 0.5 GiB
RESIDENT = Path("/proc/self/statm")  # of Linux; its third number is pages of files


class MappedPages:
    """Maps files, and gives their pages back when the process holds more than ``most_bytes`` that it can give back.

    A process that reads rows here and there soon holds all pages of a large file, as the kernel maps some around each.
    Pages given back stay in the kernel's cache while there is room. Linux only.
    """

    def __init__(self, most_bytes: int = MAX_RESIDENT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._maps: list[mmap.mmap] = []
        self._kept_bytes = 0  # left when pages were given back last

    def map(self, path: Path, dtype: str, shape: tuple[int, ...], *, private: bool = False) -> npt.NDArray[Any]:
        """Map the start of a file, which is no symbolic link, as a read-only array of at least a byte.

        A ``private`` array can be written to, unseen by the file and other processes; its pages are not given back.
        """
        size = np.dtype(dtype).itemsize * math.prod(shape)
        with os.fdopen(open_plain(path), "rb") as file:
            access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
            mapped = mmap.mmap(file.fileno(), size, access=access)
        if not private:
            self._maps.append(mapped)
        return np.frombuffer(mapped, dtype=dtype).reshape(shape)

    def release(self) -> bool:
        """Give all pages back if they are more than ``most_bytes``, and return whether; arrays keep their contents."""
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
    """Return the bytes of the pages of files that this process has mapped and touched; 0 if unknown."""
    return int(RESIDENT.read_text().split()[2]) * mmap.PAGESIZE if RESIDENT.is_file() else 0
