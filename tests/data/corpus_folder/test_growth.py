"""A corpus folder that grew gives what one gives that was prepared with the same passages."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from graphrerank.data.corpus_folder.growth import NewEdge, compact_corpus, grow_corpus
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.files import sole_use
from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import HybridExpandRetriever
from tests.data.corpus_folder.conftest import MakeDataset, assert_same, encoder
from tests.support.encoders import HashEncoder


def with_nodes(dataset: Dataset, nodes: Sequence[int]) -> Dataset:
    """Build the data set anew with some passages, in some order, and the edges and judgements of them alone."""
    graph, number = dataset.graph, torch.full((dataset.graph.num_nodes,), -1)
    number[list(nodes)] = torch.arange(len(nodes))
    pairs, weight, types = graph.typed_edges()
    kept = (number[pairs] >= 0).all(1)
    ids, texts = [graph.node_ids[i] for i in nodes], [graph.texts[i] for i in nodes]
    rebuilt = CorpusGraph.from_edges(ids, texts, number[pairs[kept]], weight[kept], edge_type=types[kept])
    splits = {}
    for name, qrels in dataset.splits.items():
        judged = number[qrels.node] >= 0
        splits[name] = Qrels(qrels.query[judged], number[qrels.node[judged]], qrels.gain[judged])
    return Dataset(dataset.name, rebuilt, dataset.query_ids, dataset.query_texts, splits)


def new_edges(dataset: Dataset, new: Sequence[int], present: Sequence[int]) -> list[NewEdge]:
    """List the edges of new passages among them and to those that are there."""
    ids, (pairs, weight, types) = dataset.graph.node_ids, dataset.graph.typed_edges()
    return [
        NewEdge(ids[i], ids[j], w, kind)
        for (i, j), w, kind in zip(pairs.tolist(), weight.tolist(), types.tolist(), strict=True)
        if i in new and (j in present or (j in new and i < j))
    ]


def add(folder: Path, dataset: Dataset, new: Sequence[int], present: Sequence[int], **settings: object) -> None:
    ids, texts = ([strings[i] for i in new] for strings in (dataset.graph.node_ids, dataset.graph.texts))
    edges = new_edges(dataset, new, present)
    grow_corpus(folder, ids, texts, edges=edges, encoder=encoder(), **settings)  # type: ignore[arg-type]


def test_added_passages_against_a_rebuild(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset(entities=False)
    whole = with_nodes(dataset, range(90))
    base = with_nodes(dataset, range(60))
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder(), vectors="float32", part_size=17)
    old = open_corpus(folder)
    add(folder, dataset, range(60, 61), range(60))
    add(folder, dataset, range(61, 85), range(61))
    add(folder, dataset, range(85, 90), range(85))
    grown = open_corpus(folder, thorough=True)
    assert grown.fingerprint != old.fingerprint
    assert_same(grown, dataclasses.replace(whole, splits=grown.splits), tmp_path / "cache")
    assert old.graph.texts[59] == dataset.graph.texts[59]  # who mapped it before goes on
    assert old.graph.num_nodes == 60


def test_removed_passages_against_a_rebuild(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset(entities=False)
    base = with_nodes(dataset, range(70))
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder(), vectors="float32")
    ids = dataset.graph.node_ids
    assert grow_corpus(folder, remove=[ids[i] for i in range(0, 70, 7)]).num_removed == 10
    add(folder, dataset, range(70, 90), [i for i in range(70) if i % 7])
    done = grow_corpus(folder, remove=[ids[1], ids[75]])
    assert done == (0, 2, 78, False)
    kept = [i for i in range(90) if (i % 7 or i >= 70) and i not in (1, 75)]
    rebuilt = with_nodes(dataset, kept)
    grown = open_corpus(folder, thorough=True)
    assert_same(grown, dataclasses.replace(rebuilt, splits={}), tmp_path / "cache", exact=False)
    with pytest.raises(ValueError, match="must not have removed passages where all texts are indexed, got 12"):
        _ = grown.graph.all_texts
    compact_corpus(folder)
    compacted = open_corpus(folder, thorough=True)
    assert compacted.graph.passages.removed is None
    assert list(compacted.graph.texts) == list(rebuilt.graph.texts)
    assert_same(compacted, dataclasses.replace(rebuilt, splits={}), tmp_path / "compacted")
    stamp = (folder / "corpus.json").stat().st_mtime_ns
    compact_corpus(folder)
    assert (folder / "corpus.json").stat().st_mtime_ns == stamp


def test_a_passage_is_replaced_and_comes_back(make_dataset: MakeDataset, tmp_path: Path) -> None:
    base = with_nodes(make_dataset(entities=False), range(40))
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder(), index="ivf")
    with pytest.raises(ValueError, match="`node_ids` must be new, got 'd5'"):
        grow_corpus(folder, ["d5"], ["A zebra"], encoder=encoder())
    for text in ("A zebra", "A gnu"):
        assert grow_corpus(folder, ["d5"], [text], replace=True, encoder=encoder()) == (1, 1, 40, False)
    queries = Queries(["q"], ["gnu"], encoder().encode(["A gnu"]))
    graph = open_corpus(folder).graph
    for retriever in (BM25Retriever(graph, top_k=40), DenseRetriever(graph, top_k=40, index="ivf", num_probes=40)):
        nodes = retriever.retrieve(queries).nodes[0]
        assert graph.node_ids[int(nodes[0])] == "d5"
        assert sorted(graph.node_ids[node] for node in nodes.tolist()) == sorted(base.graph.node_ids)
    zebra = Queries(["q"], ["zebra"], encoder().encode(["A zebra"]))
    assert float(BM25Retriever(graph, top_k=1).retrieve(zebra).scores[0, 0]) == 0.0
    assert grow_corpus(folder, remove=["d5", "d5", "none"], ignore_absent=True) == (0, 1, 39, False)
    assert grow_corpus(folder, ["d5"], ["A zebra"], encoder=encoder()) == (1, 0, 40, False)


@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_added_vectors_are_found_next_to_an_index(make_dataset: MakeDataset, tmp_path: Path, index: str) -> None:
    """Against exact search, with all cells or, at this size, all nodes; compaction makes one index of all."""
    pytest.importorskip("faiss")
    dataset = make_dataset(entities=False)
    folder = prepare_corpus(with_nodes(dataset, range(60)), tmp_path / "corpus", encoder=encoder(), index=index)
    add(folder, dataset, range(60, 80), range(60))
    grow_corpus(folder, remove=["d5", "d65"])
    add(folder, dataset, range(80, 90), [i for i in range(80) if i not in (5, 65)])
    queries = Queries(dataset.query_ids, dataset.query_texts, encoder().encode(dataset.query_texts))
    for num_indexed in (60, 88):
        graph = open_corpus(folder, thorough=True).graph
        exact = DenseRetriever(graph, top_k=20).retrieve(queries)
        retriever = DenseRetriever(graph, top_k=20, index=index, num_probes=100)
        torch.testing.assert_close(retriever.retrieve(queries).scores, exact.scores)
        assert retriever._index[0].ntotal == num_indexed
        hybrid = HybridExpandRetriever(graph, top_k=20, base_k=8, num_seeds=4, proposals=300, index=index)
        assert (hybrid.retrieve(queries).nodes >= 0).all()
        compact_corpus(folder)


def test_a_type_of_edge_comes_to_a_corpus_without_types(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset(entities=False)
    bare = dataset.with_graph(dataclasses.replace(dataset.graph, weight_by_type=None))
    folder = prepare_corpus(bare, tmp_path / "corpus")
    grow_corpus(folder, ["new"], ["A zebra"], edges=[NewEdge("d9", "new", 0.5, 0), NewEdge("new", "d2")])
    graph = open_corpus(folder, thorough=True).graph
    _, weight, types = (part[-2:] for part in graph.with_types([0]).typed_edges())
    assert (weight.tolist(), types.tolist()) == ([0.5, 0.5], [0, 0])
    assert graph.with_types([4]).num_edges == dataset.graph.num_edges + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"node_ids": ["a"], "texts": []}, "`texts` must have one entry per id"),
        ({"node_ids": ["a", "a"], "texts": ["", ""]}, "`node_ids` must be unique, got 'a' twice"),
        ({"remove": ["x"]}, "`remove` must hold ids of the corpus, got 'x'"),
        ({"node_ids": ["a"], "texts": [""], "edges": [NewEdge("a", "x")]}, "'x' is of none"),
        ({"node_ids": ["a"], "texts": [""], "edges": [NewEdge("d1", "d2")]}, "neither is new"),
        ({"node_ids": ["a"], "texts": [""], "edges": [NewEdge("a", "a")]}, "join two different nodes"),
        ({"node_ids": ["a"], "texts": [""], "edges": [NewEdge("a", "d1", -1.0)]}, "have a positive, finite weight"),
        ({"node_ids": ["a"], "texts": [""], "encoder": None}, "`encoder` must be that of"),
        ({"node_ids": ["a"], "texts": [""], "encoder": HashEncoder(fingerprint="another")}, "`encoder` must be"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    make_dataset: MakeDataset, tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    folder = prepare_corpus(make_dataset(20, entities=False), tmp_path / "corpus", encoder=encoder())
    before = (folder / "corpus.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        grow_corpus(folder, **{"encoder": encoder(), **arguments})  # type: ignore[arg-type]
    assert (folder / "corpus.json").read_bytes() == before


def test_entities_without_their_names_and_a_second_writer_are_refused(
    make_dataset: MakeDataset, tmp_path: Path
) -> None:
    folder = prepare_corpus(make_dataset(20), tmp_path / "corpus")
    with pytest.raises(ValueError, match="does not name the entities of each passage"):
        grow_corpus(folder, ["a"], ["text"])
    with sole_use(folder):
        for write in (partial(grow_corpus, remove=["d1"]), compact_corpus, partial(prepare_corpus, make_dataset())):
            with pytest.raises(ValueError, match="another command writes to this folder now"):
                write(folder)


@pytest.mark.parametrize("writes", [4, 18])
def test_a_full_disk_leaves_the_last_corpus(
    make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    dataset = make_dataset(60, entities=False)
    base = with_nodes(dataset, range(40))
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder(), vectors="float32")
    add(folder, dataset, range(40, 50), range(40))
    before, done = open_corpus(folder), 0

    def fsync(_: int) -> None:
        nonlocal done
        done += 1
        if done >= writes:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("graphrerank.files.os.fsync", fsync)
        with pytest.raises(OSError, match="No space left"):
            add(folder, dataset, range(50, 60), range(50))
    after = open_corpus(folder, thorough=True)
    assert (after.fingerprint, after.graph.num_nodes) == (before.fingerprint, 50)
    add(folder, dataset, range(50, 60), range(50))
    whole = dataclasses.replace(with_nodes(dataset, range(60)), splits={})
    assert_same(open_corpus(folder, thorough=True), whole, tmp_path / "cache")


def test_preparation_of_the_first_passages_undoes_growth(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset(40, entities=False)
    folder = prepare_corpus(dataset, tmp_path / "corpus")
    grow_corpus(folder, ["new"], ["A zebra"])
    prepare_corpus(dataset, folder)
    assert open_corpus(folder, thorough=True).graph.num_nodes == 40
    (folder / "corpus.json").write_text('{"format": 1}')  # of an older version
    prepare_corpus(dataset, folder)
    assert open_corpus(folder, thorough=True).graph.num_nodes == 40
