"""Progress of retrievers, which rank blocks of queries."""

import logging
from functools import partial
from pathlib import Path

import pytest

from graphrerank.core import Queries
from graphrerank.data.candidate_table import prepare_on_disk
from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.operators import bm25, dense, hybrid
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import ExpandRetriever, HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.training.training_data import TextMatchFeatures
from graphrerank.utils import progress
from graphrerank.utils.progress import parts_done, progress_bar
from tests.data.conftest import dataset  # noqa: F401  # a fixture
from tests.support.encoders import HashEncoder

SMALL = {"top_k": 8, "base_k": 4, "num_seeds": 4}


def test_blocks_are_steps_even_within_blocks() -> None:
    done = []
    with progress_bar("whole", 5):
        for block in Queries(list("abcde"), list("abcde")).blocks(2):
            list(block.blocks(1))  # a retriever that the retriever calls
            done.append(parts_done())
        done.append(parts_done())
    assert done == [0, 2, 4, 5]


@pytest.mark.parametrize(
    "build",
    [
        partial(BM25Retriever, top_k=5),
        partial(DenseRetriever, top_k=5),
        partial(HybridRetriever, top_k=5),
        partial(HybridRetriever, top_k=5, proposals=9),
        partial(HybridExpandRetriever, **SMALL),
        partial(ExpandRetriever, base=partial(BM25Retriever), **SMALL),
    ],
)
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_a_long_retrieval_logs_lines(
    build: partial, is_on_disk: bool, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The queries are counted once, although texts are encoded and retrievers call each other."""
    for module in (bm25, hybrid):
        monkeypatch.setattr(module, "BLOCK_SCORES", 60 * 4)
    monkeypatch.setattr("graphrerank.operators.expand.BLOCK_SCORES", 60 * 4)
    monkeypatch.setattr(dense, "BLOCK_QUERIES", 4)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    caplog.set_level(logging.INFO, logger="graphrerank.utils.progress")
    if is_on_disk:
        features = TextMatchFeatures({"text_match": True, "num_words": 0})
        prepare_on_disk(
            dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path, add_features=features, block_size=16
        )
        expected = [0, 0, 16, 32, 40]
    else:
        prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path)
        size = 2 if build.func is ExpandRetriever else 4
        expected = list(range(size, 41, size))
    lines = [line for line in caplog.messages if "ring: " in line]
    assert [int(line.split("ring: ")[1].split(" of ")[0]) for line in lines] == expected
    assert all("queries of ring: " in line for line in lines)
