"""Search hyperparameters with Optuna, with ``hydra/sweeper=optuna`` or ``hparams_search=optuna``.

The sweeper is in ``hydra_plugins`` because Hydra discovers plugins only there. ``hydra-optuna-sweeper`` is not used
because it requires Optuna 2, which neither resumes a study with current versions of SQLAlchemy nor prunes trials.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from graphrerank.installation.extras import require_extra
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative
from graphrerank.utils.files import sole_use

Direction = Literal["maximize", "minimize"]
#: Direction of a study for each mode of a checkpoint callback.
DIRECTIONS: dict[object, Direction] = {"max": "maximize", "min": "minimize"}


class OptunaSweeper(Sweeper):
    """Sweeper that proposes the settings of each trial with Optuna, and continues an interrupted search.

    Each trial is a run of the command in the subfolder with its number. The study is stored in the folder of the sweep,
    so the same command continues an interrupted search there. The proposals depend only on the finished trials, the
    seed of the sampler and the number of the trial, so a continued search equals an uninterrupted one if ``n_jobs`` is
    1.

    Args:
        params: Search space: a sweep of Hydra (``interval``, ``range`` or ``choice``) for each setting, with nested
            keys. Sweeps on the command line are added and replace sweeps of the same setting. A fixed value on the
            command line removes a setting from the search space.
        n_trials: Total number of trials, including those of earlier commands in the same folder.
        n_jobs: Number of trials that are proposed and launched together. More than 1 only helps with a launcher that
            runs jobs in parallel, such as ``hydra/launcher=ray``.
        max_failures: Number of failed trials of this command after which the search stops.
        direction: ``maximize`` or ``minimize``. If None, the mode of the callback ``best``.
        sampler: Sampler of Optuna, as settings with ``_target_``. Its ``seed`` is increased by the number of the trial.

    Raises:
        ValueError: If a number is out of range, or ``direction`` is unknown.
    """

    def __init__(
        self,
        *,
        params: Mapping[str, Any] | None,
        n_trials: int,
        n_jobs: int,
        max_failures: int,
        direction: Direction | None,
        sampler: Mapping[str, Any],
    ) -> None:
        check_counts(n_trials=n_trials, n_jobs=n_jobs)
        check_not_negative(max_failures=max_failures)
        if direction is not None:
            check_choice(tuple(DIRECTIONS.values()), direction=direction)
        self.params = params or {}
        self.n_trials = n_trials
        self.n_jobs = n_jobs
        self.max_failures = max_failures
        self.direction = direction
        self.sampler = sampler

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store the context of the sweep and build the launcher. Called by Hydra.

        Args:
            hydra_context: Hydra's configuration loader and callbacks.
            task_function: Function that runs one job.
            config: Configuration of the sweep.
        """
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run trials until the study has ``n_trials``, and write the best one to ``optimization_results.yaml``.

        Args:
            arguments: Overrides of the command line.

        Raises:
            ValueError: If Optuna is not installed, the search space is empty or invalid, or the folder has a search
                with other settings. Errors of failed trials are raised at the end of the search.
        """
        require_extra("search", "hydra/sweeper=optuna")
        from graphrerank.cli.search import HyperparameterSearch, read_search_space  # imports Optuna

        assert self.hydra_context is not None
        assert self.config is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        space, fixed = read_search_space(parser.parse_overrides, self.params, arguments)
        folder = Path(str(self.config.hydra.sweep.dir))
        folder.mkdir(parents=True, exist_ok=True)
        with sole_use(folder):
            OmegaConf.save(self.config, folder / "multirun.yaml")
            search = HyperparameterSearch(
                folder,
                space,
                fixed,
                direction=self._direction(),
                sampler=self.sampler,
                command=str(self.config.hydra.job.config_name),
            )
            self._run_trials(search)
            search.finish()

    def _run_trials(self, search: Any) -> None:
        """Launch trials in batches until the study is complete or too many trials failed."""
        assert self.launcher is not None
        failed: list[JobReturn] = []
        while len(failed) <= self.max_failures and (trials := search.next_trials(self.n_trials, self.n_jobs)):
            overrides = [search.overrides_of(trial) for trial in trials]
            self.validate_batch_is_legal(overrides)
            results = self.launcher.launch(overrides, initial_job_idx=trials[0].number)
            for trial, result in zip(trials, results, strict=True):
                is_failed = result.status != JobStatus.COMPLETED
                failed += [result] if is_failed else []
                search.tell(trial, None if is_failed else result.return_value, is_failed=is_failed)
        if failed:
            search.finish()
            _ = failed[0].return_value  # raises the error of the trial

    def _direction(self) -> Direction:
        """Return the direction of the study: the setting, or the mode of the callback that selects the best epoch."""
        if self.direction is not None:
            return self.direction
        assert self.config is not None
        mode = OmegaConf.select(self.config, "callbacks.best.mode")
        if mode not in DIRECTIONS:
            raise UserError(f"`hydra.sweeper.direction` must be set if `callbacks.best.mode` is not, got {mode}")
        return DIRECTIONS[mode]
