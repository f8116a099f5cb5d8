"""Keep freed memory in the process, so that each forward pass does not ask the system for it again."""

from functools import cache

import torch

LARGEST_RAISED = 32 << 20  # glibc's own limit: 4 MiB times the size of a long


@cache
def keep_freed_memory() -> None:
    """Raise the size from which glibc returns freed memory to the system, once in a process.

    glibc maps blocks above a threshold anew each time, and cuts the heap when twice the threshold is free at its end;
    the system then clears each page again, which takes longer than a layer's arithmetic. The threshold rises to the
    size of the largest mapped block that was freed, of at most 32 MiB (``man mallopt``, ``M_MMAP_THRESHOLD``): so such
    a block is mapped here, and freed without being touched. At most 64 MiB stay. Where ``MALLOC_*`` variables set the
    thresholds, and with other allocators, nothing changes.
    """
    torch.empty(LARGEST_RAISED - (8 << 10), dtype=torch.uint8)  # less a page or two for the allocator's own use
