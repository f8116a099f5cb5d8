"""One Ray cluster for all tests of a process. Starting one takes longer than most of these tests."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from graphrerank.task_engines.ray_cluster import ray_cluster


@pytest.fixture(scope="session")
def ray_session(cache: Path) -> Iterator[None]:
    """A cluster on this machine, which commands and engines use in place of one of their own."""
    for module in ("ray", "pandas", "pyarrow"):
        pytest.importorskip(module, reason="Ray Train is optional: pip install 'graphrerank[ray]'")
    with ExitStack() as stack:
        with patch.dict(os.environ, {"GRAPHRERANK_CACHE": str(cache), "WANDB_MODE": "offline"}):  # of the workers
            stack.enter_context(ray_cluster("a test", num_cpus=4, log_to_driver=False))
        yield
