"""The interface of a job's command; ``graphrerank.cli`` implements it and documents the arguments.

A job is a class. Hydra calls its constructor with the plain numbers and built parts of ``job`` in an experiment's YAML
file, where each setting is described; the command then calls the job with its session, and the job returns the folder
that it wrote to.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.systems import System
from graphrerank.pipelines.pipeline import Pipeline

Group = MutableMapping[str, Any]  # a file of conf as it is written: settings, and the classes to build
PipelineFactory = Callable[..., Pipeline]  # (group of conf/pipeline, corpus graph = the data set's) -> pipeline


class JobSession(Protocol):
    """A run of ``train.py`` or ``evaluate.py``, as its job sees it."""

    run_dir: Path  # folder that the job writes to
    cache: Path  # folder that keeps vectors, candidate lists and answers
    device: torch.device  # where models run
    num_threads: int  # torch threads

    @property
    def command(self) -> str:
        """The command that was given, without folders of this machine."""

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as it is written, without folders of this machine."""

    def group(self, group: str, choice: str, **settings: Any) -> Group:
        """Compose a file of ``conf/<group>``, or a data set folder by its path, with some other settings."""

    def chosen(self, group: str) -> Group | None:
        """Return a copy of the command's choice of ``conf/<group>``, or None."""

    def build(self, group: Mapping[str, Any]) -> Any:
        """Build the object that a group describes."""

    def dataset_names(self) -> list[str]:
        """Name the data sets to judge on."""

    def data(self, name: str) -> Group:
        """Return the data set that the command chose, with its settings; else compose the one of a name."""

    def reads_files(self, name: str, files: Sequence[Path]) -> None:
        """Note for loggers that the job reads a data set from files by itself."""

    def prepare_for_pipelines(
        self, data: Group, *, retriever: Group | None = None, pair_encoder: Group | None = None
    ) -> tuple[PreparedDataset, PipelineFactory]:
        """Load and encode a data set, and return a factory of pipelines over it."""


class TrainingSession(JobSession, Protocol):
    """A run of ``train.py``, as its job sees it."""

    resumed: Path | None  # folder of the run that is resumed; None for a new one

    @property
    def training_names(self) -> list[str]:
        """Names of the data sets to train on: ``data``, then those of ``mix``."""

    @property
    def candidates_key(self) -> str:
        """All settings that decide the candidates of a data set, in one string."""

    @property
    def top_k(self) -> int:
        """Candidates of a query."""

    def variant(self, overrides: Sequence[str], *, system: str, mix: Sequence[str]) -> "TrainingSession":
        """Compose the same command with more overrides, for one model and some data sets of ``mix``."""

    def dataset(self, name: str, *, splits: Sequence[str] | None = None) -> PreparedDataset:
        """Load and encode a data set, with candidates and features as models are trained on; ``splits`` are read."""

    def tune_operators(self, prepared: PreparedDataset, split: str) -> dict[str, float]:
        """Choose the frozen operators' restart probabilities on a split, except those that are set."""

    def trainer(self, folder: Path) -> Any:
        """Build the Lightning trainer that the command chose, with its callbacks and loggers, for a run folder."""

    def train(self, folder: Path, parts: Mapping[str, PreparedDataset], operators: Mapping[str, float]) -> Path:
        """Train the model, or resume where its training stopped, and return the best checkpoint."""

    def systems(self, models: Mapping[str, torch.nn.Module], operators: Mapping[str, float]) -> list[System]:
        """List the base ranking, the frozen operators ``ppr`` and ``gcs``, and trained models by name."""
