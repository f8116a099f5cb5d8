"""Functions that the workers of a Ray cluster run together."""

import io
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
import torch.distributed as dist

from graphrerank.training.ray_workers import followed, interrupting, ray_trainer_arguments, run_workers
from graphrerank.utils.checks import UserError


def write_rank(folder: Path) -> None:
    """Write the rank and the size of the group, and refuse to go on."""
    rank = dist.get_rank()
    arguments = ray_trainer_arguments(num_workers=2)
    content = {"group": dist.get_world_size(), "rank": int(os.environ["RANK"]), "arguments": sorted(arguments)}
    print(f"rank {rank}")
    (folder / f"{rank}.json").write_text(json.dumps(content))
    dist.barrier()  # Ray ends the other process when one raises an error
    raise UserError("`features` must be known, got 'x'")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_workers_form_one_group_and_their_errors_are_raised_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"^`features` must be known, got 'x'$"):
        run_workers(partial(write_rank, tmp_path), num_workers=2, storage=tmp_path)
    for rank in (0, 1):
        content = json.loads((tmp_path / f"{rank}.json").read_text())
        assert content == {"group": 2, "rank": rank, "arguments": ["devices", "num_nodes", "plugins", "strategy"]}
    assert capsys.readouterr().out == "rank 0\n"
    assert not list(tmp_path.glob(".ray-*"))


def test_an_exit_after_an_interrupt_is_a_keyboard_interrupt() -> None:
    handler = signal.getsignal(signal.SIGINT)

    @interrupting()
    def exiting() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(0)

    with pytest.raises(KeyboardInterrupt):
        exiting()
    assert signal.getsignal(signal.SIGINT) is handler


def test_what_is_appended_to_a_file_is_printed(tmp_path: Path) -> None:
    stream = io.StringIO()
    with followed(tmp_path / "output.txt", stream), (tmp_path / "output.txt").open("a") as file:
        file.write("é 1\n")
        file.write("2")
    assert stream.getvalue() == "é 1\n2"


def test_the_number_of_workers_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`num_workers` must be .*, got 0"):
        run_workers(dist.barrier, num_workers=0, storage=tmp_path)
