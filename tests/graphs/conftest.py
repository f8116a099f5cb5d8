import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The folder of real data sets, or a skip."""
    named = os.environ.get("GRAPHRERANK_DATASETS")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no data sets: {folder} is no folder; set GRAPHRERANK_DATASETS")
    return folder
