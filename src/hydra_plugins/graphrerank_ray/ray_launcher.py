"""``hydra/launcher=ray``: the runs of a sweep as tasks of a Ray cluster.

Hydra takes plugins from this package alone. ``hydra-ray-launcher`` is not used: it needs a cloudpickle older than
joblib's, and the client of AWS.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from graphrerank.utils.checks import UserError


class RayLauncher(Launcher):
    """Run each job of a sweep in a separate process on a Ray cluster, which all see one file system.

    Args:
        address: Of a running cluster, ``auto`` for this machine's; None starts one here that ends with the sweep.
        num_cpus: Processors of a cluster that is started here; None: all.
        remote: Options of each task, such as ``{num_cpus: 1, num_gpus: 1}``.
    """

    def __init__(self, *, address: str | None, num_cpus: int | None, remote: Mapping[str, Any]) -> None:
        self.address = address
        self.num_cpus = num_cpus
        self.remote = {str(key): setting for key, setting in remote.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra gives a launcher."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs, as many at once as the cluster has room for, and return their results in order.

        Raises:
            ValueError: If Ray is not installed.
        """
        try:
            import ray
        except ImportError as error:
            raise UserError("hydra/launcher=ray needs Ray: pip install 'graphrerank[ray]'") from error
        setup_globals()
        Path(self.config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
        own = {} if self.address else {"num_cpus": self.num_cpus, "include_dashboard": False}
        ray.init(address=self.address or "local", **own)
        try:
            task = ray.remote(**self.remote, max_calls=1)(_run)  # max_calls: what a run leaves behind ends with it
            place, state = (str(Path.cwd()), sys.path, sys.argv), Singleton.get_state()
            waiting = []
            for number, overrides in enumerate(job_overrides, initial_job_idx):
                config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
                with open_dict(config):
                    config.hydra.job.id, config.hydra.job.num = str(number), number
                waiting.append(task.remote(self.hydra_context, self.task_function, config, state, place))
            ray.wait(waiting, num_returns=len(waiting))  # one whose process dies does not end the others
            returned: list[JobReturn] = ray.get(waiting)
        finally:
            ray.shutdown()
        return returned


def _run(
    hydra_context: HydraContext,
    task_function: TaskFunction,
    config: DictConfig,
    state: Any,
    place: tuple[str, list[str], list[str]],
) -> JobReturn:
    """Run one job in a worker, where the command was given."""
    folder, sys.path[:], sys.argv = place
    os.chdir(folder)
    setup_globals()
    Singleton.set_state(state)
    HydraConfig.instance().set_config(config)
    returned: JobReturn = run_job(
        hydra_context=hydra_context,
        task_function=task_function,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    return returned
