import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the commands that tests start as processes

import torch

from tests.support import ROOT

torch.set_num_threads(1)

pytest_plugins = [
    "tests.support.commands",
    "tests.support.corpora",
    "tests.support.encoders",
    "tests.support.extractors",
    "tests.support.folders",
    "tests.support.graphs",
    "tests.support.language_models",
    "tests.support.models",
    "tests.support.retag_index",
]


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
