"""Preparation of corpus folders: interrupted, repeated, by two at once."""

import dataclasses
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.task_engines.base import Result, Task, TaskEngine
from graphrerank.task_engines.ray_engine import RayEngine
from tests.corpus_store.conftest import MakeDataset
from tests.support.damage import flip_bit
from tests.support.encoders import HashEncoder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class _Killed(HashEncoder):
    """Kills its process at a part, as ``kill -9`` does."""

    def encode(self, texts):  # type: ignore[no-untyped-def]
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(texts)


@pytest.mark.parametrize("stop_after", [0, 30, 80])
def test_a_killed_preparation_continues(make_dataset: MakeDataset, tmp_path: Path, stop_after: int) -> None:
    dataset = make_dataset()
    whole = prepare_corpus(dataset, tmp_path / "whole", encoder=HashEncoder(), part_size=10)
    arguments = {"encoder": _Killed(stop_after=stop_after), "part_size": 10}
    process = multiprocessing.get_context("fork").Process(
        target=prepare_corpus, args=(dataset, tmp_path / "corpus"), kwargs=arguments
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with pytest.raises(ValueError, match=r"expected corpus\.json"):
        open_corpus(tmp_path / "corpus")
    encoder = HashEncoder()
    prepare_corpus(dataset, tmp_path / "corpus", encoder=encoder, part_size=10)
    assert len(encoder.asked) == 90 - stop_after
    assert content(tmp_path / "corpus") == content(whole)


def test_until_the_new_manifest_the_old_corpus_is_there(
    make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, new = prepare_corpus(make_dataset(), tmp_path / "corpus"), make_dataset(num_nodes=40, seed=1)
    old = open_corpus(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("graphrerank.corpus_store.preparation.write_json", full)
        with pytest.raises(OSError, match="No space left"):
            prepare_corpus(new, folder)
    assert open_corpus(folder, thorough=True).fingerprint == old.fingerprint
    prepare_corpus(new, folder)
    assert open_corpus(folder, thorough=True).graph.num_nodes == 40
    assert old.graph.texts[5] == make_dataset().graph.texts[5]  # who mapped it before goes on
    assert sorted(path.name.split("-")[0] for path in folder.iterdir()) == ["columns", "corpus.json"]


def test_other_types_of_the_same_edges_are_another_corpus(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset()
    folder = prepare_corpus(dataset, tmp_path / "corpus")
    types: Any = dataset.graph.weight_by_type
    other = dataset.with_graph(dataclasses.replace(dataset.graph, weight_by_type=types.roll(1, dims=1)))
    assert other.fingerprint == dataset.fingerprint
    found: Any = open_corpus(prepare_corpus(other, folder)).graph.weight_by_type
    assert torch.equal(found, types.roll(1, dims=1))


def test_the_size_of_parts_changes_nothing_and_nothing_is_written_again(
    make_dataset: MakeDataset, tmp_path: Path
) -> None:
    encoder, dataset = HashEncoder(), make_dataset()
    whole = prepare_corpus(dataset, tmp_path / "whole", encoder=encoder)
    for part_size in (1, 13, 90):
        parts = prepare_corpus(dataset, tmp_path / str(part_size), part_size=part_size, encoder=encoder)
        assert content(parts) == content(whole)
    stamp, asked = (whole / "corpus.json").stat().st_mtime_ns, len(encoder.asked)
    prepare_corpus(dataset, whole, encoder=encoder)
    assert (whole / "corpus.json").stat().st_mtime_ns == stamp
    assert len(encoder.asked) == asked


def test_a_folder_with_other_files_is_refused(make_dataset: MakeDataset, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"must be a new folder or a corpus folder, got a folder with 'letter\.txt'"):
        prepare_corpus(make_dataset(), tmp_path)


def test_a_damaged_part_is_written_again(make_dataset: MakeDataset, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(make_dataset(), tmp_path / "corpus", encoder=HashEncoder(stop_after=20), part_size=10)
    part = min((tmp_path / "corpus" / "parts").glob("*.safetensors"))
    flip_bit(part)
    with pytest.warns(UserWarning, match=rf"{part.name}: damaged cache .*; the entry is computed again"):
        prepare_corpus(make_dataset(), tmp_path / "corpus", encoder=HashEncoder(), part_size=10)
    whole = prepare_corpus(make_dataset(), tmp_path / "whole", encoder=HashEncoder(), part_size=10)
    assert content(tmp_path / "corpus") == content(whole)


class PicklingEngine(TaskEngine):
    """Engine without Ray, which pickles functions, tasks and results, and reads tasks ahead as Ray does."""

    workers = 2
    num_tasks = 0

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        copy, ahead = pickle.loads(pickle.dumps(function)), list(tasks)
        self.num_tasks += len(ahead)
        return (pickle.loads(pickle.dumps(copy(pickle.loads(pickle.dumps(task))))) for task in ahead)

    def close(self) -> None:
        pass


def test_an_engine_writes_the_same_folder(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset, engine = make_dataset(), PicklingEngine()
    whole = prepare_corpus(dataset, tmp_path / "whole", encoder=HashEncoder(), part_size=13)
    by_engine = prepare_corpus(dataset, tmp_path / "engine", encoder=HashEncoder(), part_size=13, engine=engine)
    assert engine.num_tasks == 7
    assert content(by_engine) == content(whole)


def test_an_engine_resumes_with_the_missing_parts(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset, engine = make_dataset(), PicklingEngine()
    whole = prepare_corpus(dataset, tmp_path / "whole", encoder=HashEncoder(), part_size=10)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(dataset, tmp_path / "corpus", encoder=HashEncoder(stop_after=50), part_size=10)
    prepare_corpus(dataset, tmp_path / "corpus", encoder=HashEncoder(), part_size=10, engine=engine)
    assert engine.num_tasks == 4
    assert content(tmp_path / "corpus") == content(whole)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_the_workers_of_ray_write_the_same_folder(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset()
    whole = prepare_corpus(dataset, tmp_path / "whole", encoder=HashEncoder(), part_size=10)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(dataset, tmp_path / "corpus", encoder=HashEncoder(stop_after=20), part_size=10)
    with RayEngine(workers=2) as engine:
        prepare_corpus(dataset, tmp_path / "corpus", encoder=HashEncoder(), part_size=10, engine=engine)
    assert content(tmp_path / "corpus") == content(whole)
