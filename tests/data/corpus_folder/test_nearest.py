"""Passages that are added to a corpus folder are joined with their nearest neighbours."""

import dataclasses
from pathlib import Path

import pytest
import torch

from graphrerank.data.candidates import with_vectors
from graphrerank.data.corpus_folder.compaction import compact_corpus
from graphrerank.data.corpus_folder.growth import NewEdge, grow_corpus
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.enrichment.knn import nearest_neighbor_edges
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import OTHER, SIMILARITY
from tests.data.corpus_folder.conftest import MakeDataset
from tests.data.corpus_folder.test_growth import assert_same, encoder, with_nodes


@pytest.mark.parametrize("index", [None, "ivf", "hnsw"])
def test_added_passages_against_nearest_neighbor_edges(
    make_dataset: MakeDataset, tmp_path: Path, index: str | None
) -> None:
    """In two additions, after a removal; at this size the indexes propose all passages."""
    if index is not None:
        pytest.importorskip("faiss")
    dataset = make_dataset(entities=False)
    graph = dataset.graph.without_edges()
    dataset = dataclasses.replace(dataset, graph=graph, knn=3)
    base = dataclasses.replace(with_nodes(dataset, range(60)), knn=3)
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder(), vectors="float32", index=index)
    grow_corpus(folder, remove=[graph.node_ids[i] for i in (4, 20)])
    expected = {
        (i, j): weight for i, j, weight in edges_of(with_vectors(base, encoder(), tmp_path).graph) if i not in (4, 20)
    }
    expected = {(i, j): weight for (i, j), weight in expected.items() if j not in (4, 20)}
    kept = [i for i in range(60) if i not in (4, 20)]
    for new in (range(60, 75), range(75, 90)):
        grow_corpus(
            folder, *([strings[i] for i in new] for strings in (graph.node_ids, graph.texts)), encoder=encoder()
        )
        kept += new
        vectors = encoder().encode([graph.texts[i] for i in kept])
        pairs, weight = nearest_neighbor_edges(vectors, k=3, nodes=torch.arange(len(kept) - 15, len(kept)))
        expected |= {(kept[i], kept[j]): w for (i, j), w in zip(pairs.tolist(), weight.tolist(), strict=True)}
    found = {(i, j): weight for i, j, weight in edges_of(open_corpus(folder, thorough=True).graph)}
    assert found == pytest.approx(expected, abs=1e-6)


def test_passages_with_few_neighbours_against_a_rebuild(make_dataset: MakeDataset, tmp_path: Path) -> None:
    """Where those that were there have enough neighbours, a rebuild gives the same; so after compaction."""
    drawn = make_dataset(entities=False)
    isolated = torch.nonzero(drawn.graph.degree < 2).flatten().tolist()
    ids, texts = (
        [strings[i] for i in range(90) if i not in isolated] for strings in (drawn.graph.node_ids, drawn.graph.texts)
    )
    base = with_nodes(drawn, [i for i in range(90) if i not in isolated])
    base = dataclasses.replace(base, knn=2, knn_below=1)
    assert int(base.graph.degree.min()) >= 1
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder(), vectors="float32")
    new = {"far": "word1 word2", "near": "word1 word2 word3", "joined": "word8", "last": "word7 river"}
    grow_corpus(folder, list(new)[:3], list(new.values())[:3], edges=[NewEdge("joined", ids[5])], encoder=encoder())
    compact_corpus(folder)
    grow_corpus(folder, ["last"], [new["last"]], encoder=encoder())
    pairs, weight, types = base.graph.typed_edges()
    pairs = torch.cat([pairs, torch.tensor([[len(ids) + 2, 5]])])
    weight, types = torch.cat([weight, torch.ones(1)]), torch.cat([types, torch.tensor([OTHER])])
    whole = CorpusGraph.from_edges([*ids, *new], [*texts, *new.values()], pairs, weight, edge_type=types)
    rebuilt = with_vectors(dataclasses.replace(base, graph=whole), encoder(), tmp_path)
    grown = open_corpus(folder, thorough=True)
    assert grown.graph.degree[-4:].tolist() == rebuilt.graph.degree[-4:].tolist()
    assert int(grown.graph.degree[-2]) == 1
    assert_same(grown, dataclasses.replace(rebuilt, knn=0, knn_below=None), tmp_path / "cache", exact_weights=False)


def edges_of(graph: CorpusGraph) -> list[tuple[int, int, float]]:
    """List the edges, each once, the smaller number first."""
    pairs, weight, types = graph.typed_edges()
    assert set(types.tolist()) == {SIMILARITY}
    return [(i, j, w) for (i, j), w in zip(pairs.tolist(), weight.tolist(), strict=True) if i < j]
