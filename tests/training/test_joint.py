import os

import pytest
import torch
import torch.distributed as dist

from graphrerank.training.joint import shared_processes, wait_for_all


def test_the_environment_of_a_launcher_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "7")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with shared_processes():
        assert os.environ["OMP_NUM_THREADS"] == str(torch.get_num_threads())
        os.environ |= {"WORLD_SIZE": "2", "MASTER_PORT": "1"}
    assert os.environ["WORLD_SIZE"] == "7"
    assert "MASTER_PORT" not in os.environ
    assert "OMP_NUM_THREADS" not in os.environ


def test_a_process_that_trains_alone_does_not_wait() -> None:
    assert not dist.is_initialized()
    wait_for_all()
