from pathlib import Path

import pytest

pytest.importorskip("mlflow", reason="mlflow is optional")


def test_names_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphrerank.training.mlflow_logger import MLflowLogger

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    logger = MLflowLogger("test", tracking_uri=f"file:{tmp_path}")
    logger.log_metrics({"val/ndcg@10": 0.5}, step=3)
    logger.log_hyperparams({"trainer": {"max_epochs": 1}, "seed": 1})
    logger.log_hyperparams({"trainer": {"max_epochs": 2}, "seed": 1})
    run = logger.experiment.get_run(logger.run_id)
    assert run.data.metrics == {"val/ndcg_at_10": 0.5}
    assert run.data.params == {"trainer/max_epochs": "1", "seed": "1"}
    assert run.data.tags["resumed.trainer/max_epochs"] == "2"
    assert "resumed.seed" not in run.data.tags
