import json
import math
from pathlib import Path

import pytest
import torch

from graphrerank.cli.results import log_study
from graphrerank.evaluation.study import DatasetStudy, Study, SystemStudy


@pytest.fixture
def study() -> Study:
    def system(name: str, *scores: float) -> SystemStudy:
        values = {"PR@10": torch.tensor(scores, dtype=torch.float64)}
        return SystemStudy(name, "run", f"{name}.trec", values, {"PR@10": (0.0, 1.0)}, None, (), 0.0)

    systems = {name: system(name, *scores) for name, scores in {"one": (0.0, 1.0), "two": (1.0, 1.0)}.items()}
    data = DatasetStudy("toy", "test", "f", ("q1", "q2"), ("a", "b"), (1, 1), systems, ("PR@10",))
    return Study("python evaluate.py", {"toy": data}, (), {"seed": 0})


@pytest.mark.slow  # wandb starts a process
def test_tables_go_to_wandb_offline(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is optional")
    from lightning.pytorch.loggers import WandbLogger

    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    log_study(WandbLogger(project="test", name="evaluate", save_dir=tmp_path, offline=True), study)
    tables = [json.loads(path.read_text()) for path in tmp_path.rglob("*.table.json")]
    assert sorted(table["columns"][1] for table in tables) == ["PR@10", "kind"]  # quality, and the systems' sources
    table = next(table for table in tables if "PR@10" in table["columns"])
    assert table["columns"] == ["system", "PR@10", "p50 ms", "p95 ms"]
    assert table["data"] == [["one", "50.00 (0.0 to 100.0)", "-", "-"], ["two", "100.00 (0.0 to 100.0)", "-", "-"]]


def test_means_go_to_csv(study: Study, tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    log_study(CSVLogger(tmp_path, name="csv"), study)
    (file,) = tmp_path.rglob("metrics.csv")
    header, row = (line.split(",") for line in file.read_text().splitlines())
    found = dict(zip(header, row, strict=True))
    assert float(found["toy/one/pr@10"]) == 0.5
    assert math.isclose(float(found["toy/two/pr@10"]), 1.0)
