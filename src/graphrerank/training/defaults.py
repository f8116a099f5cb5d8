"""Default arguments of ``lightning.Trainer`` and default callbacks.

``conf/trainer/default.yaml`` and the files of ``conf/callbacks`` are the equivalents for the command line.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint

from graphrerank.training.callbacks import AtomicCheckpoints, GradientNorm, LearningCurves, LearningRate

MONITOR = "val/ndcg@10"  # log key that selects the best epoch; higher is better
PANELS = (("train/loss_epoch", "val/loss"), ("val/pr@5", "val/pr@10", MONITOR))  # log keys per learning-curve panel


def default_trainer_arguments(folder: str | Path) -> dict[str, Any]:
    """Return the default arguments of ``lightning.Trainer``.

    Args:
        folder: Folder of the model, used as Lightning's ``default_root_dir``.

    Returns:
        Arguments by name.

    Example:
        >>> arguments = default_trainer_arguments("runs/mine/gatv2")
        >>> arguments["max_epochs"], arguments["gradient_clip_val"], arguments["devices"]
        (4, 1.0, 1)
    """
    return {
        "max_epochs": 4,
        "accelerator": "auto",
        "devices": 1,
        "strategy": "auto",
        "precision": "32-true",
        "gradient_clip_val": 1.0,
        "log_every_n_steps": 1,
        "num_sanity_val_steps": -1,
        "use_distributed_sampler": False,  # our sampler distributes the queries over the processes
        "enable_model_summary": False,
        "default_root_dir": str(folder),
        "plugins": [AtomicCheckpoints()],
    }


def mixed_precision(accelerator: str = "auto") -> str:
    """Return the fastest precision that trains well on a device.

    Args:
        accelerator: Type of device in Lightning's terms: ``auto``, ``cpu``, ``gpu`` or ``cuda``, or another one.

    Returns:
        ``bf16-mixed`` on a GPU with bfloat16 (compute capability 8.0 or higher), ``16-mixed`` on an older GPU, and
        ``32-true`` on all other devices.

    Example:
        >>> mixed_precision("cpu")
        '32-true'
    """
    if accelerator not in ("auto", "gpu", "cuda") or not torch.cuda.is_available():
        return "32-true"
    return "bf16-mixed" if torch.cuda.get_device_capability() >= (8, 0) else "16-mixed"


def with_precision(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Replace ``precision="auto"`` by :func:`mixed_precision`.

    Args:
        arguments: Arguments of ``lightning.Trainer``.

    Returns:
        The arguments, with a precision that Lightning accepts.
    """
    if arguments.get("precision") != "auto":
        return dict(arguments)
    return {**arguments, "precision": mixed_precision(arguments.get("accelerator", "auto"))}


def default_callbacks(folder: str | Path) -> dict[str, Callback]:
    """Return the default callbacks, for a training run that is validated after each epoch.

    ``best`` saves the epoch with the highest :data:`MONITOR`, and ``last`` saves the state that a resumed training run
    continues from. ``early_stopping`` stops after three epochs without improvement. ``curves`` plots learning curves.
    ``learning_rate`` and ``gradient_norm`` log their quantity at each optimiser step.

    Args:
        folder: Folder of the model. Checkpoints are written to its subfolder ``checkpoints``.

    Returns:
        Callbacks by name.

    Example:
        >>> list(default_callbacks("runs/mine/gatv2"))
        ['best', 'last', 'early_stopping', 'curves', 'learning_rate', 'gradient_norm']
    """
    checkpoints = Path(folder, "checkpoints")
    return {
        "best": ModelCheckpoint(
            dirpath=checkpoints, filename="best", monitor=MONITOR, mode="max", enable_version_counter=False
        ),
        "last": ModelCheckpoint(
            dirpath=checkpoints, filename="last", save_on_train_epoch_end=True, enable_version_counter=False
        ),
        "early_stopping": EarlyStopping(monitor=MONITOR, mode="max", patience=3),
        "curves": LearningCurves(Path(folder, "curves.png"), panels=[list(panel) for panel in PANELS]),
        **_step_curves(),
    }


def last_epoch_callbacks(folder: str | Path) -> dict[str, Callback]:
    """Return the callbacks of a training run without validation, whose result is the model of the last epoch.

    Args:
        folder: Folder of the model. The checkpoint is written to ``checkpoints/best.ckpt`` in this folder.

    Returns:
        Callbacks by name.

    Example:
        >>> list(last_epoch_callbacks("runs/mine/gatv2"))
        ['best', 'learning_rate', 'gradient_norm']
    """
    best = ModelCheckpoint(
        dirpath=Path(folder, "checkpoints"), filename="best", save_on_train_epoch_end=True, enable_version_counter=False
    )
    return {"best": best, **_step_curves()}


#: Functions that build the callbacks of files of ``conf/callbacks``, by name. Their argument is the model's folder.
#: Other files are composed from ``conf``.
CALLBACK_SETS: Mapping[str, Callable[[Path], dict[str, Callback]]] = {
    "default": default_callbacks,
    "last_epoch": last_epoch_callbacks,
}


def _step_curves() -> dict[str, Callback]:
    return {"learning_rate": LearningRate(), "gradient_norm": GradientNorm()}
