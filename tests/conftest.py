import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the commands that tests start as processes
os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default, which leaves Ray no time next to other tests

import numpy as np
import torch

from tests.support import ROOT

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background jobs ignore Ctrl+C

pytest_plugins = [
    "tests.support.browser",
    "tests.support.commands",
    "tests.support.composition",
    "tests.support.corpora",
    "tests.support.encoders",
    "tests.support.exports",
    "tests.support.extractors",
    "tests.support.folders",
    "tests.support.graphs",
    "tests.support.language_models",
    "tests.support.models",
    "tests.support.ray_session",
    "tests.support.retag_index",
]


REAL = {"datasets", "stanza_en"}  # fixtures of real data and models
LONG = ("test_pages.py", "test_permissions.py", "test_reranker_module.py")  # files of 10 s and more, late in the order


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests on real data as slow, and start with slow ones and long files, so that the workers end together."""
    for item in items:
        if REAL.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, item.path.name not in LONG))


@pytest.fixture(scope="session", autouse=True)
def _syncs_nothing() -> Iterator[None]:
    """Leave files in the memory of the operating system, which only a power failure would lose.

    Tests of what is synced, and when, replace ``os.fsync`` themselves.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Let no test depend on what another one drew."""
    random.seed(0)
    np.random.seed(0)
    # `torch.manual_seed` also formats a traceback for CUDA's first use, a third of a millisecond for each test
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(scope="session")
def datasets_folder() -> Path:
    """The folder of real data sets, which only some machines have."""
    named = os.environ.get("GRAPHRERANK_DATASETS")
    return Path(named) if named else ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def datasets(datasets_folder: Path) -> Path:
    """The folder of real data sets, or a skip."""
    if not datasets_folder.is_dir():
        pytest.skip(f"no data sets: {datasets_folder} is no folder; set GRAPHRERANK_DATASETS")
    return datasets_folder
