import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from graphrerank.cli import schema
from graphrerank.cli.sweep_summary import SweepSummary, read_run, summarise, summarise_failed, sweep_rows
from graphrerank.files import write_json, write_text
from tests.support import CONF
from tests.support.commands import RunCommand


def write_run(folder: Path, overrides: list[str], score: float | None, **manifest: Any) -> None:
    write_text(folder / ".hydra" / "overrides.yaml", OmegaConf.to_yaml(OmegaConf.create(overrides)))
    write_text(folder / ".hydra" / "config.yaml", "system: gatv2\n")
    kept = {} if score is None else {"validation": {"measure": "val/ndcg@10", "mode": "max", "score": score}}
    content = {"finished": True, "metrics": {"attack/test": {"PR@10": 0.5, "nDCG@10": score or 0.1}}, **kept}
    write_json(folder / "gatv2" / "manifest.json", content | manifest)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two settings with two seeds each, and a run that has not finished."""
    number = 0
    for features, scores in (("full", (0.5, 0.7)), ("scores", (0.62, 0.66))):
        for seed, score in enumerate(scores):
            write_run(tmp_path / str(number), [f"features={features}", f"seed={seed}", "paths.runs=/here"], score)
            number += 1
    write_run(tmp_path / "4", ["features=paper", "seed=0"], 0.9, finished=False)
    return tmp_path


def test_rows_are_named_by_what_differs_and_the_best_mean_on_validation_wins(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summarise(sweep)
    text = (sweep / "summary.md").read_text(encoding="utf-8")
    assert "| settings | runs | val/ndcg@10 | attack/test PR@10 | attack/test nDCG@10 |" in text
    assert "| features=full | 2 | 0.6000 ± 0.1414 | 0.5000 ± 0.0000 | 0.6000 ± 0.1414 |" in text
    assert "| features=scores | 2 | 0.6400 ± 0.0283 |" in text
    assert f"Best by val/ndcg@10: features=scores; of its runs {sweep / '3'}" in text
    assert "paper" not in text
    rows = json.loads((sweep / "summary.json").read_text())["rows"]
    assert [(row["name"], row["best"], list(row["runs"])) for row in rows] == [
        ("features=full", False, ["0", "1"]), ("features=scores", True, ["2", "3"]),
    ]  # fmt: skip
    assert (sweep / "summary.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "features=scores" in printed
    assert printed.splitlines()[-1] == str(sweep / "summary.md")


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_summary_of_the_others(
    small_attack: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    """The first of three fails, the others are trained and summarised, and the error is told last."""
    job = (f"data.path={small_attack}", "encoder=none", "retriever=bm25", "features=scores", "trainer.max_epochs=1")
    more = ("+trainer.enable_progress_bar=false", "~ablations.mlp", f"hydra.sweep.dir={tmp_path}")
    done = run_command("train.py", "-m", "retriever.top_k=0,10,12", "data=attack", *job, *more)
    assert done.returncode == 1
    assert "`top_k` must be a positive integer" in done.stderr
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "Not finished: 0" in text
    assert [f"| retriever.top_k={top_k} | 1 |" in text for top_k in (0, 10, 12)] == [False, True, True]
    assert done.stdout.splitlines()[-1] == str(tmp_path / "summary.md")


def test_only_a_sweep_that_an_error_ended_is_summarised(sweep: Path) -> None:
    cfg = OmegaConf.create({"hydra": {"sweep": {"dir": str(sweep)}}})
    summarise_failed()
    assert not (sweep / "summary.md").exists()
    SweepSummary().on_multirun_start(cfg)
    summarise_failed()
    assert "Not finished: 4" in (sweep / "summary.md").read_text(encoding="utf-8")
    (sweep / "summary.md").unlink()
    summarise_failed()
    assert not (sweep / "summary.md").exists()


def test_without_validation_no_row_is_the_best(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / str(seed), [f"seed={seed}"], None)
    summarise(tmp_path)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "| as configured | 2 | 0.5000 ± 0.0000 |" in text
    assert "Best" not in text


def test_the_lowest_loss_wins(tmp_path: Path) -> None:
    for number, score in enumerate((0.3, 0.2)):
        kept = {"measure": "val/loss", "mode": "min", "score": score}
        write_run(tmp_path / str(number), [f"loss=l{number}"], None, validation=kept)
    summarise(tmp_path)
    assert "Best by val/loss: loss=l1;" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_a_folder_without_finished_runs_gets_no_summary(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    write_run(tmp_path / "0", ["seed=1"], 0.5, finished=False)
    assert read_run(tmp_path / "notes") is read_run(tmp_path / "0") is None
    summarise(tmp_path)
    assert not (tmp_path / "summary.md").exists()


def test_settings_that_only_some_runs_have(tmp_path: Path) -> None:
    write_run(tmp_path / "0", ["loss=bce"], 0.1)
    write_run(tmp_path / "1", ["loss=bce", "model.dropout=0"], 0.1)
    runs = [run for name in "01" if (run := read_run(tmp_path / name)) is not None]
    assert [row.name for row in sweep_rows(runs)] == ["as configured", "model.dropout=0"]


@pytest.mark.parametrize("file", sorted((CONF / "sweep").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_sweep_of_wandb_composes(file: Path) -> None:
    content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    assert isinstance(content, dict)
    assert content["program"] == "train.py"
    parameters = {
        key: entry["values"] if "values" in entry else [entry["min"], entry["max"]]
        for key, entry in content["parameters"].items()
    }
    fixed = [part for part in content["command"] if not part.startswith("$") and part != "python"]
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for number in range(max(map(len, parameters.values()))):
            chosen = [f"{key}={options[number % len(options)]}" for key, options in parameters.items()]
            cfg = compose("train", overrides=[*fixed, *chosen])
    assert content["metric"]["name"] == cfg.callbacks.best.monitor
    assert cfg.ablations == {}
