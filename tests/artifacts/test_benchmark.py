import pytest
import torch

from graphrerank.artifacts import benchmark
from graphrerank.artifacts.benchmark import bench_artifact, bench_table
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.parity import HARD_CASES
from tests.support.clocks import READING_SECONDS, Clock


def test_every_format_is_timed_beside_eager(tmp_path, make_checkpoint, monkeypatch):
    folder = export_artifact(make_checkpoint(), tmp_path / "artifact", num_batches=len(HARD_CASES))
    module = type(torch.jit.load(folder / "model.pt"))
    forward, clock = module.__call__, Clock()

    def slow(self, *inputs):
        clock.move(0.2)
        return forward(self, *inputs)

    monkeypatch.setattr(module, "__call__", slow)
    monkeypatch.setattr(benchmark, "perf_counter", clock)
    eager, script = bench_artifact(folder, candidates=5, edges=6, batch_queries=4, rounds=3)
    assert (eager["name"], eager["speedup_alone"], eager["speedup_batched"]) == ("eager", 1.0, 1.0)
    assert script["name"] == "torchscript"
    assert script["ms_alone"] == pytest.approx(200, abs=0.1)
    assert script["ms_batched"] == pytest.approx(50, abs=0.1)
    assert eager["ms_alone"] == pytest.approx(1000 * READING_SECONDS)
    assert script["speedup_alone"] == pytest.approx(eager["ms_alone"] / script["ms_alone"])
    assert bench_table([eager, script]).splitlines()[-1].startswith("| torchscript | ")
    with pytest.raises(ValueError, match="`rounds` must be a positive integer, got 0"):
        bench_artifact(folder, rounds=0)
