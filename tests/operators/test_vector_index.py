from pathlib import Path
from typing import Any

import faiss
import pytest
import torch
from torch import Tensor

from graphrerank.operators.vector_index import fill_vector_index, map_vector_index, new_vector_index, write_stored_index

DIM = 16


def vectors(count: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, DIM, generator=generator), dim=1)


def test_a_stored_hnsw_index_finds_what_one_in_memory_finds(tmp_path: Path) -> None:
    corpus = vectors(2000).half()
    write_stored_index(tmp_path / "index.hnsw", corpus)
    index = new_vector_index(corpus, "hnsw")
    fill_vector_index(index, corpus)
    queries = corpus[:20].float().numpy()
    found, expected = map_vector_index(tmp_path / "index.hnsw").search(queries, 5), index.search(queries, 5)
    assert all((one == other).all() for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_stored_ivf_index_against_one_that_faiss_fills_and_writes(tmp_path: Path, dtype: torch.dtype) -> None:
    corpus = vectors(800).to(dtype)
    corpus[100:140] = corpus[3]
    write_stored_index(tmp_path / "a.ivf", corpus)
    assert [file.name for file in tmp_path.iterdir()] == ["a.ivf"]
    kind, cells = faiss.ScalarQuantizer.QT_8bit, 12  # of 64 vectors each
    product: Any = faiss.METRIC_INNER_PRODUCT
    whole: Any = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(DIM), DIM, cells, kind, product, False)
    whole.cp.min_points_per_centroid = 1
    whole.train(corpus.float().numpy())
    whole.add(corpus.float().numpy())
    faiss.write_index(whole, str(tmp_path / "b.ivf"))
    assert (tmp_path / "a.ivf").read_bytes() == (tmp_path / "b.ivf").read_bytes()
    mapped, queries = map_vector_index(tmp_path / "a.ivf"), vectors(20, seed=1).numpy()
    for probes in (1, cells):
        mapped.nprobe = whole.nprobe = probes
        for found, expected in zip(mapped.search(queries, 9), whole.search(queries, 9), strict=True):
            assert (found == expected).all()


def test_mostly_empty_cells(tmp_path: Path) -> None:
    write_stored_index(tmp_path / "a.ivf", vectors(1).expand(400, -1))
    mapped = map_vector_index(tmp_path / "a.ivf")
    mapped.nprobe = mapped.nlist
    assert sorted(mapped.search(vectors(1).numpy(), 400)[1][0].tolist()) == list(range(400))
