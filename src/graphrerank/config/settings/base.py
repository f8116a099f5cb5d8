"""Settings that are common to several commands."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(kw_only=True)
class RunSettings:
    """Settings of a command that builds components and writes a run folder.

    Attributes:
        seed: Random seed.
        num_threads: Number of torch threads.
        device: Device of encoders and models, such as cpu or cuda. null uses cuda if available, otherwise cpu.
    """

    seed: int = 0
    num_threads: int = 1
    device: str | None = None


@dataclass(kw_only=True)
class TrackedSettings(RunSettings):
    """Settings of a command that loads checkpoints and can report to a logger.

    Attributes:
        models: Your own model classes (PACKAGE.CLASS) that checkpoints may load. Only needed for classes that no entry
            point registers.
        system: Name of the run in the logger.
        name: Name of the run folder, such as `mine` for runs/train/mine, and of its row in tables of other commands. If
            the folder exists, a number is appended. null uses the date and time.
    """

    models: Sequence[str] = ()
    system: str
    name: str | None = None
