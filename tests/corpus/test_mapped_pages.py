"""Given back, pages of files do not count as the process's; arrays stay what they are. Oracle: /proc/self/statm."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from graphrerank.corpus import mapped_pages
from graphrerank.corpus.mapped_pages import MappedPages

SIZE = 64 << 20

on_linux = pytest.mark.skipif(not mapped_pages.RESIDENT.is_file(), reason="the kernel does not say what is resident")


def resident() -> int:
    return int(mapped_pages.RESIDENT.read_text().split()[2]) * mmap.PAGESIZE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    np.arange(SIZE // 8, dtype="<i8").tofile(path)
    return path


@on_linux
def test_many_pages_are_given_back_and_read_again(file: Path) -> None:
    pages = MappedPages(most_bytes=SIZE // 4)
    numbers = pages.map(file, "<i8", (SIZE // 8 // 4, 4))
    pages.release()  # those of libraries, which stay
    before = resident()
    assert not pages.release()
    total = numbers.sum()
    assert resident() - before > SIZE * 0.9
    assert pages.release()
    assert resident() - before < SIZE * 0.1
    assert numbers.sum() == total == (SIZE // 8) * (SIZE // 8 - 1) // 2
    assert not numbers.flags.writeable


def test_nothing_is_given_back_where_the_kernel_does_not_say(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_pages, "RESIDENT", file.with_name("none"))
    pages = MappedPages(most_bytes=0)
    assert pages.map(file, "<i8", (3,)).tolist() == [0, 1, 2]
    assert not pages.release()
