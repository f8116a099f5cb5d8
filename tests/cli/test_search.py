"""``hparams_search=optuna``: the search space, the study of a sweep folder, and trials of ``train``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

pytest.importorskip("optuna", reason="Optuna is optional: pip install 'graphrerank[search]'")

from optuna import load_study
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from graphrerank.cli.hydra_jobs import run_hydra
from graphrerank.cli.search import BEST_TRIAL, HyperparameterSearch, read_search_space
from graphrerank.cli.train import validation_score
from graphrerank.models.manifest import MANIFEST
from graphrerank.training.resume import LAST
from graphrerank.training.trials import PRUNED, STUDY, open_storage
from graphrerank.utils.checks import UserError
from tests.support import CONF
from tests.support.commands import RunCommand, manifest_of

Task = Callable[[DictConfig], object]
RANDOM = {"_target_": "optuna.samplers.RandomSampler", "seed": 1}
parse = OverridesParser.create().parse_overrides


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("interval(0.1,2)", FloatDistribution(0.1, 2)),
        ("tag(log,interval(1e-4,1e-2))", FloatDistribution(1e-4, 1e-2, log=True)),
        ("int(interval(1,5))", IntDistribution(1, 5)),
        ("range(1,10,3)", IntDistribution(1, 7, step=3)),
        ("range(3)", IntDistribution(0, 2)),
        ("choice(bce,listwise)", CategoricalDistribution(["bce", "listwise"])),
        ("8,16", CategoricalDistribution(["8", "16"])),
        ("choice([1,2],[3])", CategoricalDistribution(["[1,2]", "[3]"])),
    ],
)
def test_each_sweep_of_hydra_is_a_distribution(sweep: str, expected: object) -> None:
    assert read_search_space(parse, {}, [f"x={sweep}"]) == ({"x": expected}, [])


def test_the_command_line_replaces_entries_of_the_search_space() -> None:
    params = {"module": {"learning_rate": "interval(0.1,1)", "warmup_steps": "range(9)"}, "model.dropout": "0.1,0.2"}
    arguments = ["module.learning_rate=interval(2,3)", "module.warmup_steps=5", "+trainer.x=1", "~ablations.mlp"]
    space, fixed = read_search_space(parse, params, arguments)
    assert list(space) == ["module.learning_rate", "model.dropout"]
    assert space["module.learning_rate"] == FloatDistribution(2, 3)
    assert fixed == ["module.warmup_steps=5", "+trainer.x=1", "~ablations.mlp"]
    with pytest.raises(UserError, match=r"`hydra\.sweeper\.params` must have at least one setting to search"):
        read_search_space(parse, {"module": {"warmup_steps": None}}, ["seed=1"])
    with pytest.raises(UserError, match="`x` must have at least one value"):
        read_search_space(parse, {}, ["x=range(3,3)"])


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Run a search of which each trial calls a task instead of training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def run(task: Task, *overrides: str, folder: str = "search") -> int:
        arguments = ["hparams_search=optuna", f"hydra.sweep.dir={tmp_path / folder}", *overrides]
        return run_hydra("train", arguments, CONF, task)

    return run


def far_from_best(cfg: DictConfig) -> float:
    """Score settings by their distance to a learning rate of 2e-3 and a weight decay of 0.05."""
    return -abs(cfg.module.learning_rate / 2e-3 - 1) - abs(cfg.module.weight_decay / 0.05 - 1)


def test_an_interrupted_search_continues_and_equals_an_uninterrupted_one(
    search: Callable[..., int], tmp_path: Path
) -> None:
    seen: list[int] = []

    def interrupted(cfg: DictConfig) -> float:
        seen.append(len(seen))
        if len(seen) == 4:  # after the random trials of the sampler
            raise KeyboardInterrupt
        return far_from_best(cfg)

    few = ("hydra.sweeper.n_trials=5", "hydra.sweeper.sampler.n_startup_trials=2")
    assert search(far_from_best, *few, folder="whole") == 0
    assert search(interrupted, *few) == 130
    assert search(interrupted, *few) == 0
    assert len(seen) == 4 + 2
    whole, continued = (
        load_study(study_name=STUDY, storage=open_storage(tmp_path / name)).trials for name in ("whole", "search")
    )
    assert [trial.params for trial in continued] == [trial.params for trial in whole]
    assert [trial.value for trial in continued] == [trial.value for trial in whole]
    first, second = (OmegaConf.load(tmp_path / name / BEST_TRIAL) for name in ("whole", "search"))
    assert first == second
    assert first.best_value == max(trial.value for trial in whole)
    assert first.trials == {"complete": 5, "pruned": 0, "fail": 0}
    assert search(interrupted, *few) == 0  # complete: nothing is run
    assert len(seen) == 6


def test_a_search_with_other_settings_needs_another_folder(
    search: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(far_from_best, "hydra.sweeper.n_trials=1") == 0
    for other in ("loss=bce", "model.dropout=interval(0,0.3)", "hydra.sweeper.direction=minimize"):
        assert search(far_from_best, "hydra.sweeper.n_trials=2", other) == 1
        assert "`hydra.sweep.dir` must be a new folder for a search with other settings" in capsys.readouterr().err


def test_failed_trials_are_reported_and_end_the_search_if_there_are_many(
    search: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    losses = "loss=choice(bce,listwise)"
    few = ("hydra.sweeper.n_trials=8", "hydra.sweeper.max_failures=1", losses)
    bce = OmegaConf.load(CONF / "loss" / "bce.yaml")._target_

    def failing(cfg: DictConfig) -> float:
        if cfg.loss._target_ == bce:
            raise UserError("this loss does not converge")
        return 0.5

    assert search(failing, *few) == 1
    printed = capsys.readouterr()
    assert "failed (" in printed.err
    assert "this loss does not converge" in printed.err
    states = [trial.state for trial in load_study(study_name=STUDY, storage=open_storage(tmp_path / "search")).trials]
    assert states.count(TrialState.FAIL) == 2
    assert states[-1] == TrialState.FAIL


def test_a_job_without_validation_is_refused(search: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert search(lambda cfg: None, "hydra.sweeper.n_trials=2") == 1
    assert "the job of a search must return a validation score, got None" in capsys.readouterr().err


def test_an_interrupted_training_run_of_a_trial_is_resumed(tmp_path: Path) -> None:
    def study() -> HyperparameterSearch:
        space = {"seed": IntDistribution(1, 9)}
        return HyperparameterSearch(tmp_path, space, ["x=1"], direction="maximize", sampler=RANDOM, command="train")

    (trial,) = study().next_trials(5, 1)
    proposed = [f"x=1 seed={trial.params['seed']}"]
    assert [" ".join(study().overrides_of(trial))] == proposed
    (tmp_path / "0" / "gatv2" / LAST).parent.mkdir(parents=True)
    (tmp_path / "0" / "gatv2" / LAST).touch()
    (tmp_path / "0" / "gatv2" / MANIFEST).write_text("{}")
    (again,) = study().next_trials(5, 3)
    assert (again.number, again.params) == (0, trial.params)
    assert study().overrides_of(again) == ["x=1", f"seed={trial.params['seed']}", f"ckpt_path={tmp_path / '0'}"]
    study().study.tell(0, 0.5)
    assert [proposed.number for proposed in study().next_trials(5, 3)] == [1, 2, 3]


def test_the_score_of_a_run_is_that_of_its_primary_model(trained: Path, tmp_path: Path) -> None:
    score = manifest_of(trained / "gatv2")["validation"]["score"]
    assert score != manifest_of(trained / "mlp")["validation"]["score"]
    assert validation_score(trained, "gatv2") == score
    assert validation_score(tmp_path, "gatv2") is None


def test_trials_of_train_are_pruned_and_scored(
    run_command: RunCommand, small_job: tuple[str, ...], tmp_path: Path
) -> None:
    """A threshold above 1 prunes each trial once the pruner allows it, after the first of two epochs."""
    pruner = "+callbacks.pruning.pruner={_target_: optuna.pruners.ThresholdPruner, lower: 2.0}"
    settings: tuple[str, ...] = ("hparams_search=optuna", "hydra.sweeper.n_trials=1", f"hydra.sweep.dir={tmp_path}")
    done = run_command("train.py", *settings, *small_job, "~callbacks.pruning.pruner", pruner)
    assert "trial 0 (1 of 1): pruned after epoch 1  module.learning_rate=" in done.stdout
    (trial,) = load_study(study_name=STUDY, storage=open_storage(tmp_path)).trials
    manifest: dict[str, Any] = manifest_of(tmp_path / "0" / "gatv2")
    assert trial.state == TrialState.PRUNED
    assert trial.user_attrs[PRUNED] == 1
    assert trial.intermediate_values == {1: pytest.approx(manifest["validation"]["score"])}
    assert manifest["finished"]
