"""Commands on a device: their numbers are those of the CPU."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import measures_of, without_times


def test_training_and_evaluation(
    run_command: Any, run_on_device: Any, small_job: tuple[str, ...], small_encoder: Any, tmp_path: Path
) -> None:
    job, data = (*small_job, "features=full", "model.dropout=0", "trainer.max_epochs=1"), small_job[:2]
    run_command("train.py", *job, f"hydra.run.dir={tmp_path / 'cpu'}", "device=cpu")
    run_on_device("train.py", *job, f"hydra.run.dir={tmp_path / 'device'}")
    here, there = measures_of(tmp_path / "cpu"), measures_of(tmp_path / "device")
    assert list(here) == list(there)
    for system, measures in here.items():
        assert there[system] == pytest.approx(measures, abs=0.02), system
    asked = (f"systems=[{tmp_path / 'cpu'},expand_then_rerank]", *data, *small_encoder)
    run_command("evaluate.py", *asked, f"hydra.run.dir={tmp_path / 'judged'}", "device=cpu")
    run_on_device("evaluate.py", *asked, f"hydra.run.dir={tmp_path / 'judged there'}")
    assert without_times(tmp_path / "judged there") == without_times(tmp_path / "judged")
