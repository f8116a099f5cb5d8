import ctypes
import platform
import subprocess
import sys

import pytest

MAPPED = """
import ctypes, torch
from graphrerank.inference.freed_memory import keep_freed_memory
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd x1 x2 x3 x4 x5".split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
def mapped_for_a_block():
    start = libc.mallinfo2().hblks
    held = torch.empty(31 << 20, dtype=torch.uint8)
    return libc.mallinfo2().hblks - start
def cleared_pages():
    import resource
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(7 << 20)  # 28 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
keep_freed_memory()
keep_freed_memory()
after = mapped_for_a_block()
cleared_pages()
print(after, cleared_pages())
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="is about glibc"
)
def test_large_blocks_are_no_longer_mapped_anew() -> None:
    """glibc counts the blocks that it maps; without the call it maps this one, unless one as large was freed before."""
    without = MAPPED.replace("\nkeep_freed_memory()", "")
    mapped = [
        list(map(int, subprocess.check_output([sys.executable, "-c", script], text=True).split()))
        for script in (without, MAPPED)
    ]
    assert mapped[0][0] == 1
    assert mapped[1][0] == 0
    assert mapped[1][1] < 1000  # of 140,000 pages that were written
