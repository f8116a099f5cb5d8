from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphrerank.graphs.ivf_file import write_ivf_file
from graphrerank.graphs.vector_index import (
    IndexSearch,
    StoredIndex,
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


faiss: Any = pytest.importorskip("faiss")
VECTORS = torch.nn.functional.normalize(torch.randn(900, 16, generator=torch.Generator().manual_seed(0)), dim=1)
QUERIES = VECTORS[::30]
FIRST = 600
SETTINGS: dict[str, Any] = {"num_probes": 4, "ef_search": 128}


def stored(folder: Path, kind: str) -> StoredIndex:
    """Write an index of the first vectors."""
    path = folder / f"vectors.{kind}"
    first = VECTORS[:FIRST]
    if kind == "ivf":
        write_ivf_file(path, lambda: iter([first.numpy()]), sample=first.numpy(), num_cells=20)
    else:
        index = new_vector_index(16, kind, FIRST, links=16, num_cells=None, half=True)
        fill_vector_index(index, first.half())
        write_vector_index(path, index)
    return StoredIndex(path)


def grown(folder: Path, kind: str, step: int) -> StoredIndex:
    """Add the other vectors, ``step`` at a time."""
    index = stored(folder, kind)
    for number, stop in enumerate(range(FIRST + step, 901, step)):
        path = folder / f"vectors.{kind}.{number}"
        index.write_added(path, VECTORS[:stop])
        index = StoredIndex(index.path, path)
    return index


@pytest.mark.parametrize("step", [300, 50, 1])
def test_cells_and_codes_against_faiss_add(tmp_path: Path, step: int) -> None:
    index = grown(tmp_path, "ivf", step)
    reference = faiss.read_index(str(index.path))
    reference.add(VECTORS[FIRST:].numpy())
    reference.nprobe = 4
    search = IndexSearch(index.open(), "ivf", **SETTINGS)
    assert search.num_vectors == 900
    found = search.propose(QUERIES, 900)  # all of the cells that are visited
    expected = reference.search(QUERIES.numpy(), 900)[1]
    assert (np.sort(expected, axis=1)[:, -1] >= FIRST).all()
    for row, wanted in zip(found.tolist(), expected.tolist(), strict=True):
        assert sorted(node for node in row if node >= 0) == sorted(node for node in wanted if node >= 0)


@pytest.mark.parametrize("step", [300, 1])
def test_added_vectors_are_found_by_hnsw(tmp_path: Path, step: int) -> None:
    index = grown(tmp_path, "hnsw", step)
    search = IndexSearch(index.open(), "hnsw", **SETTINGS)
    found, exact = search.propose(QUERIES, 10), torch.topk(QUERIES @ VECTORS.T, 10, dim=1).indices.tolist()
    recall = np.mean([len({*row} & {*wanted}) / 10 for row, wanted in zip(found.tolist(), exact, strict=True)])
    assert recall > 0.98
    levels = faiss.vector_to_array(index.open()[1].hnsw.levels)
    assert levels.max() > levels.min()  # layers, though each vector came alone


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_removed_vectors_are_not_found(tmp_path: Path, kind: str) -> None:
    index = grown(tmp_path, kind, 150)
    removed = torch.zeros(900, dtype=torch.bool)
    removed[::2] = True  # all queries
    found = IndexSearch(index.open(), kind, removed=removed, **SETTINGS).propose(QUERIES, 50)
    assert (found % 2 != 0).all()
    assert (found >= FIRST).any()
    assert (found < FIRST).any()
