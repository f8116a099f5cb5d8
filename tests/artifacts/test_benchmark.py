import time

import pytest
import torch

from graphrerank.artifacts.benchmark import bench_artifact, bench_table
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.parity import HARD_CASES


def test_every_format_is_timed_beside_eager(tmp_path, make_checkpoint, monkeypatch):
    folder = export_artifact(make_checkpoint(), tmp_path / "artifact", num_batches=len(HARD_CASES))
    module = type(torch.jit.load(folder / "model.pt"))
    forward = module.__call__

    def slow(self, *inputs):
        time.sleep(0.2)
        return forward(self, *inputs)

    monkeypatch.setattr(module, "__call__", slow)
    eager, script = bench_artifact(folder, candidates=5, edges=6, batch_queries=4, rounds=3)
    assert (eager["name"], eager["speedup_alone"], eager["speedup_batched"]) == ("eager", 1.0, 1.0)
    assert script["name"] == "torchscript"
    assert script["ms_alone"] >= 200
    assert 50 <= script["ms_batched"] < script["ms_alone"]
    assert script["speedup_alone"] < 1
    assert bench_table([eager, script]).splitlines()[-1].startswith("| torchscript | ")
    with pytest.raises(ValueError, match="`rounds` must be a positive integer, got 0"):
        bench_artifact(folder, rounds=0)
