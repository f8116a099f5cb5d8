"""Hyperparameter search with Optuna: the search space in Hydra's syntax, and a study that can be continued."""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.utils import instantiate
from omegaconf import OmegaConf
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.trial import FrozenTrial, TrialState

from graphrerank.config.compose import flatten_settings
from graphrerank.models.manifest import MANIFEST
from graphrerank.training.resume import LAST
from graphrerank.training.trials import PRUNED, STUDY, open_storage
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_text

LOGGER = logging.getLogger(__name__)
BEST_TRIAL = "optimization_results.yaml"  # file of a sweep folder with the best trial
SETTINGS = "settings"  # user attribute of a study: the fixed settings and the search space
TRAINED = "train"  # command whose interrupted trials continue with `ckpt_path`

#: Distribution of each setting of a search space.
SearchSpace = dict[str, BaseDistribution]


def read_search_space(
    parse: Callable[[list[str]], list[Override]], params: Mapping[str, Any], arguments: Sequence[str]
) -> tuple[SearchSpace, list[str]]:
    """Divide the settings of a search into those to search and those that are the same in each trial.

    Args:
        parse: Parser of Hydra's overrides.
        params: Sweep for each setting, with nested keys. A setting that is null is not searched.
        arguments: Overrides of the command line. They replace entries of ``params``.

    Returns:
        Distribution of each setting to search, and the overrides with a single value.

    Raises:
        ValueError: If no setting is searched, or a sweep is invalid.
    """
    searched = [f"{key}={sweep}" for key, sweep in flatten_settings(params) if sweep is not None]
    space: SearchSpace = {}
    fixed: list[str] = []
    for override in parse([*searched, *arguments]):
        key = override.key_or_group
        if override.is_sweep_override():
            space[key] = read_distribution(key, override)
        else:
            space.pop(key, None)
            fixed.append(str(override.input_line))
    if not space:
        raise UserError(
            "`hydra.sweeper.params` must have at least one setting to search, such as "
            "module.learning_rate=interval(1e-4,1e-2), got none"
        )
    return space, fixed


def read_distribution(key: str, override: Override) -> BaseDistribution:
    """Return the distribution of a sweep.

    Args:
        key: Name of the setting.
        override: Override with ``interval(a,b)``, ``range(a,b,step)`` or ``choice(a,b,...)``. The tag ``log`` selects a
            logarithmic scale for an interval, and ``int(interval(a,b))`` integers.

    Returns:
        Distribution of Optuna. Choices are in the syntax of the command line.

    Raises:
        ValueError: If the sweep has no values.
    """
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        is_log, low, high = "log" in sweep.tags, sweep.start, sweep.end
        assert low is not None
        assert high is not None
        if isinstance(low, int) and isinstance(high, int):
            return IntDistribution(low, high, log=is_log)
        return FloatDistribution(low, high, log=is_log)
    if isinstance(sweep, RangeSweep) and isinstance(sweep.start, int) and isinstance(sweep.step, int):
        numbers = list(sweep.range())
        if not numbers:
            raise UserError(f"`{key}` must have at least one value, got {override.input_line}")
        return IntDistribution(int(min(numbers)), int(max(numbers)), step=abs(sweep.step))
    assert isinstance(sweep, ChoiceSweep | RangeSweep)
    return CategoricalDistribution(list(override.sweep_string_iterator()))


class HyperparameterSearch:
    """Study of a sweep folder, which is created or continued.

    Args:
        folder: Folder of the sweep.
        space: Distribution of each setting to search.
        fixed: Overrides with a single value, which are the same in each trial.
        direction: ``maximize`` or ``minimize``.
        sampler: Settings of the sampler with ``_target_``.
        command: Name of the command.

    Raises:
        ValueError: If the folder has a search with other settings.
    """

    def __init__(
        self,
        folder: Path,
        space: SearchSpace,
        fixed: Sequence[str],
        *,
        direction: Literal["maximize", "minimize"],
        sampler: Mapping[str, Any],
        command: str,
    ) -> None:
        self.folder, self.space, self.fixed, self.command = folder, space, list(fixed), command
        self._sampler = sampler
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # each trial is logged by `tell`
        self.study = optuna.create_study(
            study_name=STUDY, storage=open_storage(folder), direction=direction, load_if_exists=True
        )
        self._check_settings(direction)
        self._interrupted = self._unfinished_trials()
        self._n_trials = 0

    def _check_settings(self, direction: str) -> None:
        """Store the settings of a new study, or compare them with those of the study in the folder."""
        described = {key: distribution_to_json(distribution) for key, distribution in self.space.items()}
        described |= {"direction": direction, "command": self.command, "settings": shlex.join(sorted(self.fixed))}
        before = self.study.user_attrs.get(SETTINGS)
        if before is None:
            self.study.set_user_attr(SETTINGS, described)
        elif changed := [key for key in {**before, **described} if before.get(key) != described.get(key)]:
            key = changed[0]
            raise UserError(
                f"`hydra.sweep.dir` must be a new folder for a search with other settings: {key} of the search in "
                f"{self.folder} is {before.get(key)}, got {described.get(key)}"
            )

    def _unfinished_trials(self) -> list[FrozenTrial]:
        """Return the running trials of an earlier command. Trials that had not all settings yet count as failed."""
        running = self.study.get_trials(states=[TrialState.RUNNING])
        for trial in running:
            if trial.params.keys() != self.space.keys():
                self.study.tell(trial.number, state=TrialState.FAIL)
        return [trial for trial in running if trial.params.keys() == self.space.keys()]

    def next_trials(self, n_trials: int, n_jobs: int) -> list[FrozenTrial]:
        """Return the next trials to run: first those that an earlier command did not finish, then new ones.

        Args:
            n_trials: Total number of trials of the study.
            n_jobs: Maximum number of trials to return.

        Returns:
            Trials with consecutive numbers. Empty if the study is complete.
        """
        self._n_trials = n_trials
        if self._interrupted:
            return [self._interrupted.pop(0)]
        first = len(self.study.get_trials(deepcopy=False))
        trials = []
        for number in range(first, min(first + n_jobs, n_trials)):
            self.study.sampler = self._build_sampler(number)
            trial = self.study.ask(self.space)
            trials.append(self.study.get_trials()[trial.number])
        return trials

    def _build_sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Build the sampler of a trial. A seed for each trial makes proposals independent of interruptions."""
        settings = {str(key): setting for key, setting in self._sampler.items()}
        if settings.get("seed") is not None:
            settings["seed"] = settings["seed"] * 1_000_003 + number
        sampler: optuna.samplers.BaseSampler = instantiate(settings)
        return sampler

    def overrides_of(self, trial: FrozenTrial) -> list[str]:
        """Return the overrides of a trial's run.

        Args:
            trial: Trial of the study.

        Returns:
            The fixed overrides, the proposed ones, and ``ckpt_path`` if an interrupted training run can be resumed.
        """
        overrides = [*self.fixed, *(f"{key}={setting}" for key, setting in trial.params.items())]
        run_dir = self.folder / str(trial.number)
        is_trained = self.command == TRAINED and PRUNED not in trial.user_attrs
        if is_trained and any((path.parent / LAST).is_file() for path in run_dir.glob(f"*/{MANIFEST}")):
            overrides.append(f"ckpt_path={run_dir}")
        return overrides

    def tell(self, trial: FrozenTrial, score: object, *, is_failed: bool = False) -> None:
        """Store and log the result of a trial.

        Args:
            trial: Trial of the study.
            score: Validation score that the run returned.
            is_failed: Whether the run failed, so that it has no score.

        Raises:
            ValueError: If the run did not return a number.
        """
        pruned_at = self.study.get_trials(deepcopy=False)[trial.number].user_attrs.get(PRUNED)
        settings = " ".join(f"{key}={setting}" for key, setting in trial.params.items())
        if is_failed:
            self.study.tell(trial.number, state=TrialState.FAIL)
            result = "failed"
        elif not isinstance(score, float):
            self.study.tell(trial.number, state=TrialState.FAIL)
            raise UserError(f"the job of a search must return a validation score, got {score!r}")
        elif pruned_at is not None:
            self.study.tell(trial.number, state=TrialState.PRUNED)
            result = f"pruned after epoch {pruned_at}"
        else:
            self.study.tell(trial.number, score)
            result = f"{score:.4f}"
        LOGGER.info("trial %d (%d of %d): %s  %s", trial.number, trial.number + 1, self._n_trials, result, settings)

    def finish(self) -> None:
        """Write the best trial to ``optimization_results.yaml``, and log it."""
        finished = self.study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
        if not finished:
            LOGGER.warning("no trial was completed")
            return
        best = self.study.best_trial
        content = {
            "name": "optuna",
            "best_trial": best.number,
            "best_value": best.value,
            "best_params": dict(best.params),
            "trials": {
                state.name.lower(): len(self.study.get_trials(deepcopy=False, states=[state]))
                for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
            },
        }
        write_text(self.folder / BEST_TRIAL, OmegaConf.to_yaml(OmegaConf.create(content)))
        settings = shlex.join(f"{key}={setting}" for key, setting in best.params.items())
        LOGGER.info("best trial: %d, %.4f  %s", best.number, best.value, settings)
