import time

import pytest
import torch

from graphrerank.serving.bench import bench_artifact, bench_table
from graphrerank.serving.export import export_artifact
from graphrerank.serving.parity import HARD_CASES


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


def test_table() -> None:
    alone = {"ms_alone": 1.0, "qps_alone": 1000.0, "speedup_alone": 2.0}
    batched = {"ms_batched": 0.25, "qps_batched": 4000.0, "speedup_batched": 2.0}
    table = bench_table([{"name": "onnx", **alone, **batched}])
    assert table.splitlines()[-1] == "| onnx | 1.000 | 1000 | 2.00 | 0.250 | 4000 | 2.00 |"


@pytest.mark.parametrize("more", [{"rounds": 0}, {"edges": -1}, {"candidates": 0}])
def test_numbers_out_of_range(tmp_path, more):
    with pytest.raises(ValueError, match=rf"`{next(iter(more))}` must (be a positive integer|not be negative), got"):
        bench_artifact(tmp_path, **more)
