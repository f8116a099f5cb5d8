from types import SimpleNamespace

import pytest
import torch

from graphrerank.evaluation.memory import peak_memory_mib, with_peak_memory

MIB = 1 << 18  # float32 numbers


def test_peak_memory_of_one_piece_of_work() -> None:
    def work(size: int) -> float:
        return float(torch.ones(size * MIB).sum())

    _, large = with_peak_memory(lambda: work(256))
    _, small = with_peak_memory(lambda: work(8))
    if large is None or small is None:
        pytest.skip("peaks of resident memory are reset on Linux alone")
    assert 128 < large - small < 320
    assert peak_memory_mib() >= large  # the whole process's peak is not forgotten


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1 << 10), ("darwin", 1 << 20)])
def test_the_unit_of_the_peak_is_the_systems(platform: str, unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS the system reports bytes, which were once taken for KiB."""
    monkeypatch.setattr("graphrerank.evaluation.memory.sys.platform", platform)
    monkeypatch.setattr("graphrerank.evaluation.memory._highest_before_reset", 0.0)
    usage = SimpleNamespace(ru_maxrss=3 * unit)
    monkeypatch.setattr("graphrerank.evaluation.memory.resource.getrusage", lambda _: usage)
    assert peak_memory_mib() == 3.0
