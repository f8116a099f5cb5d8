"""How often the configuration of a command comes back to a file that it has left, on its way to the model."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from omegaconf import DictConfig

import graphrerank
from graphrerank.cli.command import CommandContext
from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.evaluation.loading import ResolvedComponent
from tests.support.commands import run_script
from tests.support.folders import write_dataset

PACKAGE = Path(graphrerank.__file__).parent
PREFIX = f"{PACKAGE}/"
CONFIGURATION = (DictConfig, CommandContext, ComponentFactory, ConfiguredComponent, ResolvedComponent)
WORDS = ("river", "stone", "metal", "cloud", "forest", "engine")
TRAIN = ("data=folder", "features=scores", "model=gatv2", "trainer.max_epochs=1", "callbacks=last_epoch", "logger=csv")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six passages in a ring, with two queries of each split."""
    number = range(len(WORDS))
    return write_dataset(
        tmp_path_factory.mktemp("data") / "ring",
        corpus=[{"_id": f"p{i}", "text": f"A text about {WORDS[i]}."} for i in number],
        queries=[{"_id": f"q{i}", "text": f"What is a {WORDS[i]}?"} for i in number],
        edges=[(f"p{i}", f"p{(i + 1) % 6}", "next") for i in number],
        train=[("q0", "p0"), ("q1", "p1")],
        val=[("q2", "p2"), ("q3", "p3")],
        test=[("q4", "p4"), ("q5", "p5")],
    )


@dataclass
class Walk:
    """Functions of the library that get a part of the configuration, from the job to the model's first forward pass.

    A function is entered at its first call; later calls of the same function are not part of the way.

    Attributes:
        job: File and name of the function at which the way begins.
        files: Files of the functions in the order of their first calls.
        before_data: Number of different files before a data set is read. None until it is.
        is_finished: Whether the model was called.
    """

    job: tuple[str, str]
    files: list[str] = field(default_factory=list)
    before_data: int | None = None
    is_finished: bool = False
    _entered: set[CodeType] = field(default_factory=set)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Follow a call; the function for ``sys.setprofile``."""
        if event != "call":
            return
        code = frame.f_code
        if code in self._entered or not code.co_filename.startswith(PREFIX):
            return
        path = Path(code.co_filename).relative_to(PACKAGE).as_posix()
        if not self.files and (path, code.co_name) != self.job:
            return
        if code.co_qualname == "Dataset.from_folder":
            self.before_data = len(set(self.files))
        self.is_finished = path.startswith("models/") and code.co_name == "forward"
        if self.is_finished:
            sys.setprofile(None)  # the rest of the command is no part of the way, and slow with it
        if any(map(is_configuration, arguments(frame))):
            self._entered.add(code)
            self.files.append(path)

    @property
    def num_returns(self) -> int:
        """Number of times that the way comes to a file that it has been in and left."""
        stays = [path for path, last in zip(self.files, [None, *self.files], strict=False) if path != last]
        return len(stays) - len(set(stays))


def arguments(frame: FrameType) -> list[Any]:
    """Return the arguments of a call."""
    code = frame.f_code
    return [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]


def is_configuration(argument: Any) -> bool:
    """Return whether an argument is a part of the configuration, or a list or mapping of such parts."""
    if type(argument) in (list, tuple, dict):
        argument = argument.values() if isinstance(argument, dict) else argument
        return any(isinstance(entry, CONFIGURATION) for entry in argument)
    return isinstance(argument, CONFIGURATION)


@pytest.fixture
def walk(cache: Path, tmp_path: Path) -> Callable[..., Walk]:
    def run(job: tuple[str, str], script: str, *overrides: str) -> Walk:
        walked = Walk(job)
        before = sys.getprofile()
        sys.setprofile(walked.profile)
        try:
            run_script(script, *overrides, folder=tmp_path, cache=cache)
        finally:
            sys.setprofile(before)
        assert walked.is_finished
        return walked

    return run


def test_returns_are_counted_by_stays_in_a_file() -> None:
    walked = Walk(("a.py", "job"), files=["a.py", "a.py", "b.py", "a.py", "c.py", "b.py"])
    assert walked.num_returns == 2
    assert Walk(("a.py", "job"), files=["a.py", "b.py"]).num_returns == 0


def test_training_reads_its_configuration_once(walk: Callable[..., Walk], dataset: Path) -> None:
    walked = walk(("cli/train.py", "train"), "train.py", *TRAIN, f"data.path={dataset}")
    assert walked.num_returns <= 2, walked.files
    assert walked.before_data in range(1, 7), walked.files


def test_an_evaluation_resolves_its_components_once(walk: Callable[..., Walk], dataset: Path) -> None:
    overrides = ("checkpoint=base", f"datasets=[{dataset}]", "resamples=100", "logger=csv")
    walked = walk(("cli/evaluate.py", "evaluate"), "evaluate.py", *overrides)
    assert walked.num_returns <= 3, walked.files
