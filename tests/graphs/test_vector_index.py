from pathlib import Path

import pytest
import torch

from graphrerank.graphs.vector_index import (
    IndexSearch,
    fill_vector_index,
    map_vector_index,
    new_vector_index,
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
