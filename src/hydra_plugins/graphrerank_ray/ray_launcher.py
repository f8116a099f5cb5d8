"""Run the jobs of a Hydra sweep as tasks of a Ray cluster, with ``hydra/launcher=ray``.

The launcher is in ``hydra_plugins`` because Hydra discovers plugins only there. ``hydra-ray-launcher`` is not used
because it needs the AWS client and an older cloudpickle than joblib does.
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

from graphrerank.task_engines.ray_cluster import ray_cluster


class RayLauncher(Launcher):
    """Launcher that runs each job of a sweep in a separate process on a Ray cluster.

    All machines of the cluster must share one file system.

    Args:
        address: Address of a running cluster, or ``auto`` for the cluster running on this machine. If None, a local
            cluster is started and stopped after the sweep.
        num_cpus: Number of processors of a local cluster. If None, all processors.
        remote: Options of each Ray task, such as ``{num_cpus: 1, num_gpus: 1}``.
    """

    def __init__(self, *, address: str | None, num_cpus: int | None, remote: Mapping[str, Any]) -> None:
        self.address = address
        self.num_cpus = num_cpus
        self.remote = {str(key): setting for key, setting in remote.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store the context of the sweep. Called by Hydra.

        Args:
            hydra_context: Hydra's configuration loader and callbacks.
            task_function: Function that runs one job.
            config: Configuration of the sweep.
        """
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs, in parallel as far as the cluster's resources allow.

        Args:
            job_overrides: Configuration overrides of each job.
            initial_job_idx: Number of the first job.

        Returns:
            Results in the order of the jobs.

        Raises:
            MissingExtraError: If Ray is not installed.
            UserError: If the cluster cannot be started or reached.
        """
        setup_globals()
        Path(self.config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
        with ray_cluster("hydra/launcher=ray", num_cpus=self.num_cpus, address=self.address) as ray:
            task = ray.remote(**self.remote, max_calls=1)(_run)  # max_calls=1 ends the worker process after each job
            location, state = (str(Path.cwd()), sys.path, sys.argv), Singleton.get_state()
            waiting = []
            for number, overrides in enumerate(job_overrides, initial_job_idx):
                config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
                with open_dict(config):
                    config.hydra.job.id, config.hydra.job.num = str(number), number
                waiting.append(task.remote(self.hydra_context, self.task_function, config, state, location))
            ray.wait(waiting, num_returns=len(waiting))  # let the other jobs finish even if the process of one dies
            return list(ray.get(waiting))


def _run(
    hydra_context: HydraContext,
    task_function: TaskFunction,
    config: DictConfig,
    state: Any,
    location: tuple[str, list[str], list[str]],
) -> JobReturn:
    """Run one job in a worker process, with the working directory, module path and arguments of the main process."""
    folder, sys.path[:], sys.argv = location
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
