"""Settings that several commands have."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(kw_only=True)
class RunSettings:
    """Settings of a command that builds components and writes a run folder.

    Attributes:
        seed: Seed of random numbers.
        num_threads: Number of torch threads.
        device: Device of encoders and models. null is cuda where there is one, else cpu.
    """

    seed: int = 0
    num_threads: int = 1
    device: str | None = None


@dataclass(kw_only=True)
class TrackedSettings(RunSettings):
    """Settings of a command that reads checkpoints and can be tracked by a logger.

    Attributes:
        models: Model classes of your own, PACKAGE.CLASS, that checkpoints may name although no entry point registers
            them.
        system: Name of the run in loggers.
    """

    models: Sequence[str] = ()
    system: str
