import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.hydra_jobs import run_hydra
from graphrerank.cli.run_folder import ClaimRunFolder, SweepTable, check_run_name
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import sole_use
from tests.support import CONF


def config(folder: Path, *overrides: str) -> Any:
    content = {"hydra": {"run": {"dir": str(folder)}, "sweep": {"dir": str(folder)}, "overrides": {"hydra": overrides}}}
    cfg = OmegaConf.create(content)
    OmegaConf.set_readonly(cfg.hydra, True)
    return cfg


def test_runs_of_one_second_have_a_folder_each(tmp_path: Path) -> None:
    folder = tmp_path / "train" / "2026-11-22_10-52-05"

    def start(_: int) -> str:
        cfg = config(folder)
        ClaimRunFolder().on_run_start(cfg, config_name="train")
        return str(cfg.hydra.run.dir)

    with ThreadPoolExecutor(16) as pool:
        claimed = list(pool.map(start, range(16)))
    assert len(set(claimed)) == 16
    assert {Path(name).name for name in claimed} == {folder.name, *(f"{folder.name}_{n}" for n in range(2, 17))}


def test_sweeps_too_and_a_folder_that_was_named_is_kept(tmp_path: Path) -> None:
    first, second = config(tmp_path / "a"), config(tmp_path / "a")
    for cfg in (first, second):
        ClaimRunFolder().on_multirun_start(cfg, config_name="train")
    assert (first.hydra.sweep.dir, second.hydra.sweep.dir) == (str(tmp_path / "a"), str(tmp_path / "a_2"))
    named = config(tmp_path / "a", f"hydra.run.dir={tmp_path / 'a'}")
    ClaimRunFolder().on_run_start(named, config_name="train")
    assert named.hydra.run.dir == str(tmp_path / "a")
    going_on = config(tmp_path / "a")
    ClaimRunFolder(goes_on=True).on_run_start(going_on, config_name="train")
    assert going_on.hydra.run.dir == str(tmp_path / "a")


def test_a_run_has_a_name(tmp_path: Path) -> None:
    folders = []
    for name in ("mine", "mine", None, "../mine"):
        cfg = config(tmp_path / "train" / "2026-11-22_10-52-05")
        cfg.name = name
        ClaimRunFolder().on_run_start(cfg, config_name="train")
        folders.append(Path(cfg.hydra.run.dir))
    times = ["2026-11-22_10-52-05", "2026-11-22_10-52-05_2"]
    assert folders == [tmp_path / "train" / name for name in ("mine", "mine_2", *times)]


@pytest.mark.parametrize("name", ["a/b", "..", "", "-x", "a b"])
def test_a_name_is_a_plain_file_name(name: str) -> None:
    check_run_name("mine_2.1-b")
    check_run_name(None)
    with pytest.raises(UserError, match="`name` must consist of letters"):
        check_run_name(name)


def test_the_empty_folder_of_a_failed_command_is_removed(run_command: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    failing = (f"paths.runs={runs}", "calibration=magic")
    assert "`calibration` must be one of" in run_command("train", *failing, "name=mine", status=1).stderr
    assert not list(runs.glob("*/*"))
    assert "`name` must consist" in run_command("train", *failing, "name=a/b", status=1).stderr
    assert not list(runs.glob("*/*"))
    named = tmp_path / "named"
    run_command("train", *failing, f"hydra.run.dir={named}", status=1)
    assert (named / ".hydra" / "overrides.yaml").is_file()


@pytest.mark.parametrize(("file", "is_removed"), [(None, True), ("metrics.csv", False), ("gatv2/x", False)])
def test_a_folder_with_results_is_kept(
    file: str | None, is_removed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def task(cfg: DictConfig) -> None:
        assert Path(cfg.paths.run_dir) == tmp_path / "evaluate" / "mine"
        if file is not None:
            (Path(cfg.paths.run_dir) / file).parent.mkdir(exist_ok=True)
            (Path(cfg.paths.run_dir) / file).write_text("x")
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["graphrerank"])
    assert run_hydra("evaluate", [f"paths.runs={tmp_path}", "name=mine", "checkpoint=base"], CONF, task) == 130
    assert (tmp_path / "evaluate" / "mine").exists() != is_removed


def test_two_commands_do_not_share_a_folder_that_was_named(run_command: Any, tmp_path: Path) -> None:
    arguments = ("train.py", f"hydra.run.dir={tmp_path}", "calibration=magic")
    with sole_use(tmp_path):
        done = run_command(*arguments, status=1)
    assert f"{tmp_path}: another command is writing to this folder" in done.stderr
    assert "`calibration` must be one of" in run_command(*arguments, status=1).stderr  # free again


def test_the_table_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"0": 0.25, "1": 0.75, "2": None}
    for name, score in scores.items():
        (tmp_path / name / ".hydra").mkdir(parents=True)
        (tmp_path / name / ".hydra" / "overrides.yaml").write_text(f"- seed={name}\n- loss=bce\n")
        (tmp_path / name / "gatv2").mkdir()
        kept = {"measure": "val/ndcg@10", "mode": "max", "score": score}
        manifest = {"name": "gatv2", "finished": score is not None, "validation": None if score is None else kept}
        (tmp_path / name / "gatv2" / "manifest.json").write_text(json.dumps(manifest))
    SweepTable().on_multirun_end(config(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        "val/ndcg@10 0.7500  1/gatv2  seed=1 loss=bce", "val/ndcg@10 0.2500  0/gatv2  seed=0 loss=bce"
    ]  # fmt: skip


def test_a_sweep_over_seeds_prints_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, score in ((1, 0.25), (2, 0.75)):
        (tmp_path / str(seed) / ".hydra").mkdir(parents=True)
        (tmp_path / str(seed) / ".hydra" / "overrides.yaml").write_text(f"- seed={seed}\n")
        (tmp_path / str(seed) / "gatv2").mkdir()
        manifest = {
            "name": "gatv2",
            "finished": True,
            "config": {"seed": seed},
            "validation": {"measure": "val/ndcg@10", "mode": "max", "score": score},
        }
        (tmp_path / str(seed) / "gatv2" / "manifest.json").write_text(json.dumps(manifest))
    SweepTable().on_multirun_end(config(tmp_path))
    assert "50.00 ± 35.36" in capsys.readouterr().out
    assert json.loads((tmp_path / "seeds.json").read_text())["groups"][0]["seeds"] == [1, 2]
