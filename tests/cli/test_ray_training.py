"""``trainer=ray``: two workers of Ray Train on a cluster that is started here."""

import csv
from pathlib import Path
from typing import Any

import pytest

JOB = ("retriever.top_k=10", "model.dropout=0", "module.warmup_steps=3", "+trainer.enable_progress_bar=false")


def logged(folder: Path) -> list[dict[str, float]]:
    with (folder / "csv" / "version_0" / "metrics.csv").open() as file:
        return [{key: float(number) for key, number in row.items() if number} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_two_workers_train_what_one_process_does(small_attack: Path, run_process: Any, tmp_path: Path) -> None:
    for module in ("ray", "pyarrow", "pandas"):
        pytest.importorskip(module, reason="Ray Train is optional: pip install 'graphrerank[ray]'")
    data = ("data=attack", f"data.path={small_attack}", "encoder=none", "retriever=bm25", "features=scores")
    more = ("trainer.max_epochs=2", "~ablations.mlp")
    for name, trainer in (("alone", ()), ("ray", ("trainer=ray", "trainer.num_nodes=2"))):
        done = run_process("train.py", *trainer, *data, *JOB, *more, f"hydra.run.dir={tmp_path / name}")
        assert done.stdout.splitlines()[-1] == str(tmp_path / name)
    one, two = (logged(tmp_path / name / "gatv2") for name in ("alone", "ray"))
    assert len(one) == len(two) >= 4
    for alone, shared in zip(one, two, strict=True):
        assert shared == pytest.approx(alone, rel=1e-4, abs=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name in ("alone", "ray")) == ["alone", "ray"]
    assert not list(tmp_path.glob(".ray-*"))
