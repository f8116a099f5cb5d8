from pathlib import Path

import pytest
import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.plan import SystemSpec
from graphrerank.evaluation.runners.base import RankingTask
from graphrerank.evaluation.runners.run_file import RunFileRunner, read_run_file
from graphrerank.utils.files import hash_files


def test_a_run_file_is_read_for_the_queries_of_the_task(prepared: PreparedDataset, tmp_path: Path) -> None:
    path = tmp_path / "toy.trec"
    path.write_text("z Q0 c 1 2.0 x\nz Q0 f 2 1.0 x\nx Q0 a 1 1.0 x\n")
    task = RankingTask(prepared.dataset, "val", torch.tensor([1, 2]))
    spec = SystemSpec("theirs", "run", "DIR/{dataset}.trec", f"{tmp_path}/{{dataset}}.trec")
    (row,) = RunFileRunner([spec]).run(task)["theirs"]
    assert (row.name, row.kind, row.source, row.cost) == ("theirs", "run", "DIR/{dataset}.trec", None)
    assert row.fingerprint == hash_files([path])
    assert row.ranking.nodes[:, :3].tolist() == [[-1, -1, -1], [2, 5, -1]]


def test_unknown_passages_are_errors_unless_a_filter_left_passages_out(
    prepared: PreparedDataset, tmp_path: Path
) -> None:
    path = tmp_path / "toy.trec"
    path.write_text("x Q0 a 1 2.0 x\nx Q0 other 2 1.0 x\n")
    spec = SystemSpec("theirs", "run", str(path), path)
    task = RankingTask(prepared.dataset, "val", torch.tensor([0]))
    with pytest.raises(ValueError, match=r"toy.trec, line 2"):
        RunFileRunner([spec]).run(task)
    filtered = RankingTask(prepared.dataset, "val", torch.tensor([0]), is_filtered=True)
    with pytest.warns(UserWarning, match="skipped 1 x unknown document"):
        (row,) = RunFileRunner([spec]).run(filtered)["theirs"]
    assert row.ranking.nodes[0, :2].tolist() == [0, -1]


def test_a_run_file_that_ranks_nothing_for_the_queries_is_refused(prepared: PreparedDataset, tmp_path: Path) -> None:
    path = tmp_path / "toy.trec"
    path.write_text("x Q0 a 1 2.0 x\n")
    with pytest.raises(ValueError, match="at least one of the 1 judged queries of split 'val' of 'toy', got none"):
        read_run_file(path, prepared.dataset, "val", torch.tensor([1]))
