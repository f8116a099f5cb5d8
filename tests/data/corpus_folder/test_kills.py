"""A change that is killed at any moment leaves the state before or after."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from graphrerank.data.corpus_folder.growth import NewEdge, compact_corpus, grow_corpus
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from tests.data.corpus_folder.conftest import MakeDataset
from tests.support.encoders import HashEncoder


@pytest.mark.parametrize("changes", [4, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", ["grow", "compact"])
def test_killed_at_random_moments(make_dataset: MakeDataset, tmp_path: Path, step: str, changes: int) -> None:
    rng, encoder = random.Random(0), HashEncoder()
    folder = prepare_corpus(make_dataset(60, entities=False), tmp_path / "corpus", encoder=encoder)
    texts = [f"word{i} river zebra{i}" for i in range(20)]
    killed, seconds = 0, 0.0
    for count in range(changes):
        ids = [f"n{count}-{i}" for i in range(20)]
        edges = [NewEdge(node_id, "d5") for node_id in ids]
        grow = partial(grow_corpus, folder, ids, texts, edges=edges, encoder=encoder)
        if step == "compact":
            grow()
        before = open_corpus(folder)
        change: Callable[[], object] = grow if step == "grow" else partial(compact_corpus, folder)
        process = multiprocessing.get_context("fork").Process(target=change)
        start = time.perf_counter()
        process.start()
        process.join(None if not count else seconds * rng.random())
        if process.is_alive():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        else:
            seconds = time.perf_counter() - start  # of the latest change that was let end
        killed += process.exitcode == -signal.SIGKILL
        after = open_corpus(folder, thorough=True)
        if after.fingerprint == before.fingerprint:
            assert list(after.graph.node_ids) == list(before.graph.node_ids)
        else:
            added = ids if step == "grow" else []
            assert list(after.graph.node_ids) == [*before.graph.node_ids, *added]
        assert before.graph.texts[5] == after.graph.texts[5]
    assert killed >= changes // 6
    compact_corpus(folder)
    assert open_corpus(folder, thorough=True).graph.num_nodes == after.graph.num_nodes
