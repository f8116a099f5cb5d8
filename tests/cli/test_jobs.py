"""``job`` in a configuration: what is refused, and an experiment that is one class and one YAML file."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from graphrerank.cli import schema
from graphrerank.cli.jobs import build_job, register_models
from tests.support import ROOT

TABLES, ADAPTER = "experiment=grapher_tables", "experiment=complexity_adapter"

JOB = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Greeting:
    words: list[str]
    times: int = 1

    def __call__(self, parts, run_dir):
        group = parts.settings("pipeline", "vector_search", budget=3)
        run_dir.mkdir(parents=True, exist_ok=True)
        lines = [*self.words * self.times, str(group["budget"])]
        (run_dir / "greeting.txt").write_text("\\n".join(lines))
        return run_dir
"""
YAML = """# @package _global_
# graphrerank evaluate experiment=greeting
job:
  _target_: greeting_job.Greeting
  words: [good, morning]
"""


@pytest.fixture(autouse=True)
def _schema() -> None:
    schema.register()


def composed(script: str, overrides: list[str]) -> DictConfig:
    """Compose as a command does, with Hydra's own settings at hand."""
    cfg = compose(script, overrides=overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    schema.check_settings(cfg, script)
    return cfg


@pytest.fixture
def _conf(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        yield


@pytest.fixture
def greeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside the package with a job and its experiment."""
    (tmp_path / "greeting_job.py").write_text(JOB)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "greeting.yaml").write_text(YAML)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _evaluate(folder: Path, *overrides: str) -> int:
    """Run the script evaluate.py in this process, and return its exit status."""
    searched = f"hydra.searchpath=[file://{folder / 'conf'}]"
    sys.argv[1:] = [searched, "experiment=greeting", f"hydra.run.dir={folder / 'run'}", *overrides]
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "evaluate.py"), run_name="__main__")
    return int(ended.value.code or 0)


def test_an_experiment_is_one_class_and_one_yaml_file(
    greeting: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which the command sets and resets
    assert _evaluate(greeting, "+job.times=2", "paths.datasets=/mine") == 0
    said = (greeting / "run" / "greeting.txt").read_text().splitlines()
    assert said == ["good", "morning", "good", "morning", "3"]
    assert capsys.readouterr().out == f"{greeting / 'run'}\n"
    assert _evaluate(greeting, "+job.time=2") == 1
    assert capsys.readouterr().err.startswith(
        "`job`: got an unexpected keyword argument 'time'; the settings of Greeting are"
    )


@pytest.mark.usefixtures("_conf")
@pytest.mark.parametrize(
    ("script", "overrides", "message"),
    [
        ("train", [TABLES, "+job.seds=[1]"], "`job`: got an unexpected keyword argument 'seds'; the settings of Gr"),
        ("train", [TABLES, "~job.seeds"], "`job`: missing a required argument: 'seeds'"),
        ("train", [TABLES, "job.seeds=[a]"], "`job.seeds`: input should be a valid integer, got '"),
        ("train", [TABLES, "+job.grid.depth=[1]"], "`job.grid` must contain the settings"),
        (
            "train",
            [ADAPTER, "+job.settings.max_epoch=8"],
            "`job.settings`: got an unexpected keyword argument 'max_epoch'",
        ),
        ("train", [ADAPTER, "job.settings.num_selected=0"], "`num_selected` must be a positive integer, got 0"),
        ("evaluate", ["experiment=ea_benchmark"], "`job.checkpoint` must be set"),
        ("evaluate", ["job._target_=graphrerank.nowhere.Job"], "`job._target_` must name a class, got 'graphrerank.n"),
        ("evaluate", ["job=ket"], "`job` must be a mapping with the class to build as `_target_`"),
    ],
)
def test_a_plan_is_refused_by_name(script: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build_job(composed(script, overrides))


@pytest.mark.parametrize("path", ["os.system", "pathlib.Path", "nowhere.Model"])
def test_models_are_classes_of_models(path: str) -> None:
    with pytest.raises(ValueError, match=f"`models` must contain import paths of model classes, got '{path}'"):
        register_models([path])
