import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch

from graphrerank.graphs import vector_index
from graphrerank.graphs.vector_index import (
    IndexSearch,
    fill_vector_index,
    map_vector_index,
    new_vector_index,
    write_ivf_file,
    write_vector_index,
)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_what_is_mapped_finds_what_was_written(kind: str, tmp_path: Path) -> None:
    vectors = torch.nn.functional.normalize(torch.randn(3000, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    half = kind == "hnsw"
    index = new_vector_index(8, kind, 3000, links=16, num_cells=12, half=half)
    fill_vector_index(index, vectors.half() if half else vectors)
    write_vector_index(tmp_path / "index", index)
    mapped = map_vector_index(tmp_path / "index")
    assert mapped.ntotal == 3000
    queries = vectors[:20].numpy()
    if kind == "ivf":
        index.nprobe = mapped.nprobe = 12  # all cells: exact
    for found, expected in zip(mapped.search(queries, 5), index.search(queries, 5), strict=True):
        assert (found == expected).all()
    assert (mapped.search(queries, 1)[1][:, 0] == torch.arange(20).numpy()).all()


def test_more_cells_than_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="`num_cells` must be at most the 3 nodes, got 4"):
        new_vector_index(8, "ivf", 3, links=16, num_cells=4, half=False)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_removed_vectors_are_not_found(kind: str) -> None:
    vectors = torch.nn.functional.normalize(torch.randn(600, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    index = new_vector_index(16, kind, 600, links=16, num_cells=20, half=False)
    fill_vector_index(index, vectors)
    removed = torch.zeros(900, dtype=torch.bool)  # the last 300 are not in the index
    removed[::2] = True  # all queries
    found = IndexSearch(index, kind, num_probes=4, ef_search=128, removed=removed).propose(vectors[::30], 50)
    assert (found % 2 != 0).all()
    assert (found >= 0).any()


DIM, CELLS = 16, 12


def vectors(count: int, *, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("size", [1, 13, 1000])
def test_against_an_index_that_faiss_fills_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(vector_index, "PART_CODES", 130)
    monkeypatch.setattr(vector_index, "BLOCK_CODES", 170)
    corpus, queries = vectors(500), vectors(20, seed=1)
    corpus[100:140] = corpus[3]

    def blocks() -> Iterator[Any]:
        yield from (corpus[start : start + size] for start in range(0, 500, size))

    sha256 = write_ivf_file(tmp_path / "a.ivf", blocks(), sample=corpus[::2].copy(), num_cells=CELLS)
    assert sha256 == hashlib.sha256((tmp_path / "a.ivf").read_bytes()).hexdigest()
    assert [file.name for file in tmp_path.iterdir()] == ["a.ivf"]
    kind = faiss.ScalarQuantizer.QT_8bit
    product: Any = faiss.METRIC_INNER_PRODUCT
    whole: Any = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(DIM), DIM, CELLS, kind, product, False)
    whole.cp.min_points_per_centroid = 1
    whole.train(corpus[::2].copy())
    whole.add(corpus)
    faiss.write_index(whole, str(tmp_path / "b.ivf"))
    assert (tmp_path / "a.ivf").read_bytes() == (tmp_path / "b.ivf").read_bytes()
    mapped = map_vector_index(tmp_path / "a.ivf")
    for probes in (1, CELLS):
        mapped.nprobe = whole.nprobe = probes
        for found, expected in zip(mapped.search(queries, 9), whole.search(queries, 9), strict=True):
            assert np.array_equal(found, expected)


def test_fewer_vectors_than_cells(tmp_path: Path) -> None:
    """Most lists are empty; FAISS then writes another form, which it maps as well."""
    corpus = vectors(6)
    write_ivf_file(tmp_path / "a.ivf", [corpus[:3]], sample=corpus, num_cells=6)
    mapped = map_vector_index(tmp_path / "a.ivf")
    mapped.nprobe = 6
    assert mapped.ntotal == 3
    assert mapped.search(corpus[:3], 1)[1].flatten().tolist() == [0, 1, 2]
