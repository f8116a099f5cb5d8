import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the doors that tests start as processes

import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def datasets_folder() -> Path:
    """The folder of real data sets, which only some machines have."""
    named = os.environ.get("GRAPHRERANK_DATASETS")
    return Path(named) if named else Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def datasets(datasets_folder: Path) -> Path:
    """The folder of real data sets, or a skip."""
    if not datasets_folder.is_dir():
        pytest.skip(f"no data sets: {datasets_folder} is no folder; set GRAPHRERANK_DATASETS")
    return datasets_folder
