import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from graphrerank.graphs import ivf_file
from graphrerank.graphs.ivf_file import write_ivf_file
from graphrerank.graphs.vector_index import map_vector_index

DIM, CELLS = 16, 12


def vectors(count: int, *, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("size", [1, 13, 1000])
def test_against_an_index_that_faiss_fills_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(ivf_file, "PART_CODES", 130)
    monkeypatch.setattr(ivf_file, "BLOCK_CODES", 170)
    corpus, queries = vectors(500), vectors(20, seed=1)
    corpus[100:140] = corpus[3]

    def blocks() -> Iterator[Any]:
        yield from (corpus[start : start + size] for start in range(0, 500, size))

    sha256 = write_ivf_file(tmp_path / "a.ivf", blocks, sample=corpus[::2].copy(), num_cells=CELLS)
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
    write_ivf_file(tmp_path / "a.ivf", lambda: [corpus[:3]], sample=corpus, num_cells=6)
    mapped = map_vector_index(tmp_path / "a.ivf")
    mapped.nprobe = 6
    assert mapped.ntotal == 3
    assert mapped.search(corpus[:3], 1)[1].flatten().tolist() == [0, 1, 2]
