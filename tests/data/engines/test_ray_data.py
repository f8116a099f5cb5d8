"""The workers of a Ray cluster of this machine do what this process does; one may die."""

import importlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.engines import ray_data
from graphrerank.data.engines.local import LOCAL, Block, Engine, Work
from graphrerank.data.engines.ray_data import RayEngine
from graphrerank.data.enrichment import mentions, neighbours
from tests.support.encoders import HashEncoder
from tests.support.folders import write_dataset

index_folder = importlib.import_module("graphrerank.data.documents.index_folder")  # the function has its name


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    """Two workers."""
    pytest.importorskip("ray", reason="Ray is optional: pip install 'graphrerank[ray]'")
    engine = RayEngine(workers=2)
    yield engine
    engine.close()


class Shout:
    """Writes texts in capitals; dies some times at one block, and refuses another."""

    def __init__(self, folder: Path, *, dies_at: int = -1, times: int = 1, refuses: int = -1) -> None:
        self.folder, self.dies_at, self.times, self.refuses = folder, dies_at, times, refuses

    def __call__(self, block: Block) -> Block:
        number = int(block["number"][0])
        with (self.folder / "started").open("a") as log:
            log.write(f"{number}\n")
        if number == self.refuses:
            raise ValueError(f"passage p{number} is not for me")
        deaths = (self.folder / "started").read_text().split().count(str(self.dies_at))
        if number == self.dies_at and deaths <= self.times:
            time.sleep(1)  # until the previous block's answer has arrived: Ray repeats a block whose answer is lost
            os.kill(os.getpid(), signal.SIGKILL)
        return {"number": np.asarray(block["number"]), "texts": [text.upper() for text in block["texts"]]}


def blocks(count: int) -> Iterator[Block]:
    return ({"number": np.array([number]), "texts": [f"text {number}", "é", ""]} for number in range(count))


def plain(results: Iterator[Block]) -> list[tuple[int, list[str]]]:
    return [(int(block["number"][0]), list(block["texts"])) for block in results]


@pytest.mark.slow
def test_a_killed_worker_costs_its_block_alone(
    engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_data, "TRIES", 2)
    found = plain(engine.map(Shout(tmp_path, dies_at=4), blocks(9)))
    started = sorted(map(int, (tmp_path / "started").read_text().split()))
    assert started == sorted([*range(9), 4])  # one once more
    assert found == plain(LOCAL.map(Shout(tmp_path), blocks(9)))
    with pytest.raises(ValueError, match="2 workers died at one block"):
        list(engine.map(Shout(tmp_path, dies_at=1, times=99), blocks(3)))
    with pytest.raises(ValueError, match=r"^passage p2 is not for me$"):
        list(engine.map(Shout(tmp_path, refuses=2), blocks(3)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set whose texts give mentions, shared entities and passages with few neighbours."""
    names = ["Metz", "Nancy", "Trier", "Verdun", "Lothair II", "Waldrada", "Cologne", "Aachen", "Toul", "Prüm"]
    titles = [f"{names[i % 10]} {i}" if i > 9 else names[i] for i in range(40)]
    corpus = [
        {"_id": f"p{i}", "title": title, "text": f"Of {names[-i % 7]} and {names[i % 3]}, word{i}."}
        for i, title in enumerate(titles)
    ]
    queries = [{"_id": "q", "text": "What is Metz?"}]
    return write_dataset(tmp_path / "data", corpus=corpus, queries=queries, edges=[], test=[("q", "p0")])


def prepared(folder: Path, path: Path, engine: Engine) -> dict[str, bytes]:
    """Prepare a corpus folder and return its files."""
    dataset = Dataset.from_folder(folder, edges="auto", cache=path.with_suffix(".cache"), engine=engine)
    assert all(dataset.edge_counts[source] for source in ("mentions", "entities by spelling"))
    prepare_corpus(dataset, path, encoder=HashEncoder(), part_size=16, engine=engine)
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_the_corpus_folder_is_the_local_one(
    engine: RayEngine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for mentions and the parts with their vectors, in three blocks each; the rest is one block."""
    local = prepared(folder, tmp_path / "local", LOCAL)
    monkeypatch.setattr(mentions, "BLOCK_TEXTS", 16)
    assert prepared(folder, tmp_path / "ray", engine) == local


class PickledWork:
    """An engine without Ray, which pickles work and blocks."""

    workers = 2
    calls = 0

    def map(self, work: Work, blocks: Iterable[Block]) -> Iterator[Block]:
        copy = pickle.loads(pickle.dumps(work))
        for block in blocks:
            self.calls += 1
            yield pickle.loads(pickle.dumps(copy(pickle.loads(pickle.dumps(block)))))

    def close(self) -> None:
        pass


def test_all_work_can_be_pickled_and_gives_the_same_in_any_blocks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mentions, entities, shared entities, nearest neighbours and parts."""
    monkeypatch.setattr(neighbours, "BLOCK_SCORES", 400)
    local = prepared(folder, tmp_path / "local", LOCAL)
    assert b'"nearest"' in local["corpus.json"]
    monkeypatch.setattr(mentions, "BLOCK_TEXTS", 16)
    monkeypatch.setattr(neighbours, "BLOCK_TEXTS", 16)
    monkeypatch.setattr(neighbours, "BLOCK_NODES", 16)
    engine = PickledWork()
    assert prepared(folder, tmp_path / "pickled", engine) == local
    assert engine.calls == 4 * 4


@pytest.mark.slow
def test_documents_are_read_by_workers_as_here(
    engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files a block; also where work is pickled."""
    monkeypatch.setattr(index_folder, "BLOCK_FILES", 2)
    source = tmp_path / "docs"
    source.mkdir()
    for number in range(7):
        text = f"# Page {number}\n\nSee [next](p{(number + 1) % 7}.md#more).\n\n## More\n\n" + "wörter " * 30
        (source / f"p{number}.md").write_text(text, encoding="utf-8")
    engines: dict[str, Engine] = {"local": LOCAL, "pickled": PickledWork(), "ray": engine}
    for name, each in engines.items():
        made = index_folder.index_folder(source, tmp_path / name, max_words=20, engine=each)
        assert (made.documents, made.edges) == (7, 7)
        for file in ("corpus.jsonl", "edges.tsv"):
            assert (tmp_path / name / file).read_bytes() == (tmp_path / "local" / file).read_bytes()


def test_one_block_starts_no_worker(tmp_path: Path) -> None:
    assert plain(RayEngine().map(Shout(tmp_path), blocks(1))) == [(0, ["TEXT 0", "É", ""])]


def test_without_ray_or_a_cluster_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def init(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ValueError, match=r"engine=ray: no cluster of this machine .*timed out.*`ray start --head`"):
        list(RayEngine().map(Shout(tmp_path), blocks(2)))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"engine=ray needs ray, .*: pip install 'graphrerank\[ray\]'"):
        list(RayEngine().map(Shout(tmp_path), blocks(2)))
