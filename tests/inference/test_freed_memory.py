import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from graphrerank.inference.freed_memory import keep_freed_memory
def faults():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        first, second, third = (torch.ones(1_500_000) for _ in range(3))  # 6 MB each, freed together
        del first, second, third
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
faults()
before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is about glibc")
def test_freed_memory_is_used_again() -> None:
    ran = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert after < 100 < before
