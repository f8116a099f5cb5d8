"""Distributed training by the workers of a Ray cluster, with Ray Train."""

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import Any, TextIO

from graphrerank.installation.extras import importing, require_extra
from graphrerank.task_engines.ray_cluster import ray_cluster
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.processes import is_first_process

# Ray's own `print` writes to Ray's log instead of standard output.
WORKER_ENVIRONMENT = {"RAY_TRAIN_ENABLE_PRINT_PATCH": "0"}
OUTPUT, ERRORS = "output.txt", "errors.txt"  # files with the output of the first process
FOLLOW_SECONDS = 0.5  # time between two reads of the output


def run_workers(
    work: Callable[[], None],
    *,
    num_workers: int,
    storage: str | Path,
    use_gpu: bool = False,
    address: str | None = None,
) -> None:
    """Run a function in several processes of a Ray cluster, which form one group for distributed training.

    Within the function, :func:`~graphrerank.fit` with the arguments of :func:`ray_trainer_arguments` trains one model
    jointly. The output of the first process is printed here. All machines of the cluster must share one file system.

    Args:
        work: Function to run in each process. It is pickled.
        num_workers: Number of processes.
        storage: Folder on the shared file system. Ray writes its state into a temporary subfolder, which is removed at
            the end.
        use_gpu: Whether each process gets a GPU.
        address: Address of a running cluster, or ``auto`` for the cluster on this machine. If None, a cluster is
            started on this machine and stopped at the end.

    Raises:
        MissingExtraError: If Ray Train is not installed.
        UserError: If the cluster cannot be reached, or the function raises a UserError in a process.
        KeyboardInterrupt: After Ctrl+C, when the processes have ended.

    Example:
        >>> from graphrerank import fit
        >>> def work():
        ...     fit("my_data", trainer=ray_trainer_arguments(num_workers=2), run_dir="/shared/run")
        >>> run_workers(work, num_workers=2, storage="/shared")  # doctest: +SKIP
    """
    check_counts(num_workers=num_workers)
    require_extra("ray", "trainer=ray")
    from ray.train import RunConfig, ScalingConfig, WorkerGroupError
    from ray.train.torch import TorchTrainer

    Path(storage).mkdir(parents=True, exist_ok=True)
    with (
        # Ray would print the log of its controller, too.
        ray_cluster("trainer=ray", num_cpus=num_workers, address=address, log_to_driver=False),
        tempfile.TemporaryDirectory(prefix=".ray-", dir=Path(storage).absolute()) as folder,
        followed(Path(folder) / OUTPUT, sys.stdout),
        followed(Path(folder) / ERRORS, sys.stderr),
    ):
        trainer = TorchTrainer(
            partial(run_with_output, work, Path(folder)),
            scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
            run_config=RunConfig(
                storage_path=folder, name="train", worker_runtime_env={"env_vars": WORKER_ENVIRONMENT}
            ),
        )
        try:
            with interrupting():
                trainer.fit()
        except WorkerGroupError as error:
            for failure in error.worker_failures.values():
                if isinstance(failure, UserError):
                    raise UserError(str(failure)) from error
            raise


@contextmanager
def interrupting() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl+C, for which Ray Train replaces the handler and exits the process.

    Yields:
        None.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, handler)


def run_with_output(work: Callable[[], None], folder: Path) -> None:
    """Run a function, and write the output of the first process to files.

    Args:
        work: Function to run.
        folder: Folder of the files.
    """
    if not is_first_process():
        work()
        return
    with (
        (folder / OUTPUT).open("a", buffering=1, encoding="utf-8") as output,
        (folder / ERRORS).open("a", buffering=1, encoding="utf-8") as errors,
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        work()


@contextmanager
def followed(path: Path, stream: TextIO) -> Iterator[None]:
    """Print what other processes append to a file, during a ``with`` block.

    Args:
        path: File, which is created.
        stream: Stream to print to.

    Yields:
        None.
    """
    path.touch()
    ended = Event()

    def follow() -> None:
        with path.open(encoding="utf-8", errors="replace") as file:
            while not ended.wait(FOLLOW_SECONDS):
                stream.write(file.read())
                stream.flush()
            stream.write(file.read())
            stream.flush()

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def ray_trainer_arguments(*, num_workers: int) -> dict[str, Any]:
    """Return the arguments of ``lightning.Trainer`` for a training in the processes of :func:`run_workers`.

    Args:
        num_workers: Number of processes.

    Returns:
        Value of the argument ``trainer`` of :func:`~graphrerank.fit`.

    Raises:
        MissingExtraError: If Ray Train is not installed.
    """
    with importing("ray", "trainer=ray"):
        from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment
    from graphrerank.training.callbacks import AtomicCheckpoints

    return {
        "strategy": RayDDPStrategy(),
        "devices": "auto",
        "num_nodes": num_workers,
        "plugins": [AtomicCheckpoints(), RayLightningEnvironment()],
    }
