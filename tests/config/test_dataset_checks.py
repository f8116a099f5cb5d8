from functools import partial
from pathlib import Path

import pytest

from graphrerank.config.dataset_checks import check_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from tests.support.folders import write_dataset

WORDS, VECTORS = partial(BM25Retriever), partial(DenseRetriever)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    corpus, queries = [{"_id": name, "title": "", "text": "a cat"} for name in "ab"], [{"_id": "q", "text": "cat?"}]
    return Dataset.from_folder(write_dataset(tmp_path / "cats", corpus=corpus, queries=queries, test=[("q", "a")]))


def test_vectors_are_read_by_models_and_retrievers(dataset: Dataset) -> None:
    assert not check_vectors(dataset, WORDS, has_encoder=True, model_reads_vectors=False)
    assert check_vectors(dataset, WORDS, has_encoder=True, model_reads_vectors=True)
    assert check_vectors(dataset, VECTORS, has_encoder=True, model_reads_vectors=False)


def test_vectors_need_an_encoder(dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="for a retriever that searches vectors, got none"):
        check_vectors(dataset, VECTORS, has_encoder=False, model_reads_vectors=False)
