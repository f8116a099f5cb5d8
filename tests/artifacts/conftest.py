from collections.abc import Callable, Iterator

import pytest
import torch

from graphrerank.models.checkpoint import Checkpoint
from tests.support.models import small_checkpoint

SMALL = {"num_layers": 1, "restart_prob": 0.9}  # one step of smoothing less to trace for each step less
TYPED = {**SMALL, "edge_features": True, "num_edge_types": 5, "num_words": 1, "pair_head": True}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Checkpoint]:
    return small_checkpoint
