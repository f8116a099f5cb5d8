"""A corpus on disk gives what the same corpus gives in memory."""

import dataclasses
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data.candidates import prepare
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.features.text_match import TEXT_MATCH_FEATURES, TextMatch
from graphrerank.graphs import Queries
from graphrerank.graphs.mapped_pages import RESIDENT, MappedPages
from graphrerank.operators import bm25, expand, hybrid
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import HybridExpandRetriever
from tests.data.corpus_folder.conftest import INPUTS, RETRIEVERS, MakeDataset
from tests.support.encoders import HashEncoder


def mapped(dataset: Dataset, folder: Path, **settings: object) -> Dataset:
    return open_corpus(prepare_corpus(dataset, folder, part_size=17, **settings), thorough=True)  # type: ignore[arg-type]


def test_it_holds_what_the_data_set_holds(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset()
    opened = mapped(dataset, tmp_path / "corpus")
    for name in ("indptr", "indices", "weight", "weight_by_type"):
        assert torch.equal(getattr(opened.graph, name), getattr(dataset.graph, name))
    assert list(opened.graph.texts) == dataset.graph.texts
    assert list(opened.graph.node_ids) == dataset.graph.node_ids
    assert (opened.name, opened.query_ids, opened.query_texts) == (dataset.name, dataset.query_ids, dataset.query_texts)
    for split, qrels in dataset.splits.items():
        for field in dataclasses.fields(qrels):
            assert torch.equal(getattr(opened.split(split), field.name), getattr(qrels, field.name))
    assert opened.fingerprint == dataset.fingerprint
    assert opened.answers == dataset.answers
    assert opened.summary() == dataset.summary()
    assert dataset.graph.entities is not None
    assert opened.graph.entities is not None
    nodes = torch.tensor([5, 0, 5, 89])
    for found, expected in zip(opened.graph.neighbours(nodes), dataset.graph.neighbours(nodes), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(opened.graph.count_neighbours(nodes), dataset.graph.num_neighbours[nodes])
    assert torch.equal(opened.graph.num_neighbours, dataset.graph.num_neighbours)
    assert list(opened.graph.entities.names) == list(dataset.graph.entities.names)


@pytest.mark.parametrize("entities", [True, False])
@pytest.mark.parametrize("name", RETRIEVERS)
def test_retrievers_rank_as_in_memory(make_dataset: MakeDataset, tmp_path: Path, name: str, entities: bool) -> None:
    encoder = HashEncoder(dim=32, by_word=True)
    dataset = make_dataset(entities=entities)
    opened = mapped(dataset, tmp_path / "corpus", encoder=encoder, vectors="float32")
    retrieve = partial(prepare, encoder=encoder, build_retriever=RETRIEVERS[name])
    here, there = retrieve(dataset, cache=tmp_path / "a"), retrieve(opened, cache=tmp_path / "b")
    assert torch.equal(there.ranking.nodes, here.ranking.nodes)
    assert torch.equal(there.ranking.scores, here.ranking.scores)
    assert here.ranking.features is not None
    assert there.ranking.features is not None
    assert torch.equal(there.ranking.features, here.ranking.features)


@pytest.mark.parametrize("name", ["bm25", "hybrid", "hybrid_expand", "expand"])
def test_pages_that_are_given_back_between_questions_change_nothing(
    make_dataset: MakeDataset, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = HashEncoder(dim=32, by_word=True)
    dataset = make_dataset()
    kept, released = (mapped(dataset, tmp_path / "corpus", encoder=encoder).graph for _ in range(2))
    queries = Queries(dataset.query_ids, dataset.query_texts, encoder.encode(dataset.query_texts))
    for module in (bm25, expand, hybrid):
        monkeypatch.setattr(module, "BLOCK_SCORES", 1)  # one question at a time
    expected = RETRIEVERS[name](kept).retrieve(queries)
    given_back: list[bool] = []
    release = MappedPages.release
    monkeypatch.setattr(released.pages, "_most_bytes", -1)
    monkeypatch.setattr(MappedPages, "release", lambda pages: given_back.append(release(pages)))
    found = RETRIEVERS[name](released).retrieve(queries)
    assert torch.equal(found.nodes, expected.nodes)
    assert torch.equal(found.scores, expected.scores)
    assert len(given_back) >= len(queries)
    assert all(given_back) or not RESIDENT.is_file()


@pytest.mark.parametrize("name", ["dense", "hybrid", "hybrid_expand"])
def test_float16_vectors_rank_as_the_same_numbers_in_memory(
    make_dataset: MakeDataset, tmp_path: Path, name: str
) -> None:
    encoder = HashEncoder(dim=32, by_word=True)
    dataset = make_dataset()
    opened = mapped(dataset, tmp_path / "corpus", encoder=encoder)
    assert opened.graph.encoded.dtype == torch.float16
    assert opened.fingerprint != dataset.fingerprint  # other vectors, other candidates in the cache
    rounded = dataset.graph.with_embedding(encoder.encode(dataset.graph.texts).half().float())
    queries = Queries(dataset.query_ids, dataset.query_texts, encoder.encode(dataset.query_texts))
    here, there = (RETRIEVERS[name](graph).retrieve(queries) for graph in (rounded, opened.graph))
    assert torch.equal(there.nodes, here.nodes)
    assert here.features is not None
    assert there.features is not None
    torch.testing.assert_close(there.features, here.features)


def test_candidate_graphs_and_features_are_those_in_memory(make_dataset: MakeDataset, tmp_path: Path) -> None:
    encoder = HashEncoder(dim=16)
    dataset = make_dataset()
    opened = mapped(dataset, tmp_path / "corpus", encoder=encoder, vectors="float32")
    queries = torch.arange(12)
    graphs = []
    for data in (dataset, opened):
        build = RETRIEVERS["hybrid_expand"]
        prepared = prepare(data, encoder=encoder, build_retriever=build, cache=tmp_path / "candidates")
        prepared = prepared.with_features(("base_score", *TEXT_MATCH_FEATURES))
        graphs.append(prepared.graphs(queries, split=None, inputs=INPUTS))
    here, there = graphs
    for name in ("x", "edge_index", "edge_attr", "ptr", "nodes"):
        assert torch.equal(getattr(there, name), getattr(here, name))
    assert torch.equal(there.inputs["node_vectors"], here.inputs["node_vectors"])


def test_a_corpus_without_words(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset()
    empty = dataset.with_graph(dataset.graph.with_passages(texts=["the of"] * 90))
    opened = mapped(empty, tmp_path / "corpus")
    ranking = RETRIEVERS["bm25"](opened.graph).retrieve(Queries(["q"], ["word1 river"]))
    assert ranking.nodes.tolist() == [list(range(20))]
    match = TextMatch.of(opened.graph).score(["word1"], torch.arange(3), torch.zeros(2, 0).long(), torch.tensor([0, 3]))
    assert match.tolist() == [[0.0] * 3] * 3


def test_vectors_of_another_encoder_are_refused(make_dataset: MakeDataset, tmp_path: Path) -> None:
    opened = mapped(make_dataset(), tmp_path / "corpus", encoder=HashEncoder())
    other = HashEncoder(fingerprint="another")
    with pytest.raises(ValueError, match="`encoder` must be the one that data set 'drawn' was prepared with"):
        prepare(opened, encoder=other, build_retriever=RETRIEVERS["dense"], cache=tmp_path)


def test_without_an_encoder_its_vectors_are_left_out(make_dataset: MakeDataset, tmp_path: Path) -> None:
    opened = mapped(make_dataset(), tmp_path / "corpus", encoder=HashEncoder())
    prepared = prepare(opened, encoder=None, build_retriever=RETRIEVERS["bm25"], cache=tmp_path)
    assert prepared.dataset.graph.embedding is None


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 9}', '{"format": 1}'])
def test_a_damaged_manifest_is_refused_by_name(make_dataset: MakeDataset, tmp_path: Path, content: str) -> None:
    folder = prepare_corpus(make_dataset(), tmp_path / "corpus")
    (folder / "corpus.json").write_text(content)
    with pytest.raises(ValueError, match=r"corpus\.json: "):
        open_corpus(folder)


def test_no_change_of_a_manifest_is_a_traceback(make_dataset: MakeDataset, tmp_path: Path) -> None:
    folder = prepare_corpus(make_dataset(20), tmp_path / "corpus")
    content = json.loads((folder / "corpus.json").read_text())

    def changed(entry: Any) -> Iterator[Any]:
        yield from (None, -1, 2**70, "../..", [], [5, 10**12], {})
        if isinstance(entry, dict):
            yield from (entry | {key: other} for key in list(entry)[-9:] for other in changed(entry[key]))
            yield from ({name: entry[name] for name in entry if name != key} for key in entry)

    refused = 0
    for other in changed(content):
        (folder / "corpus.json").write_text(json.dumps(other))
        try:
            open_corpus(folder)
        except ValueError:
            refused += 1
    assert refused > 400


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needed corpus\.json, which `graphrerank prepare DIR` writes last"):
        open_corpus(tmp_path)


@pytest.mark.parametrize("vectors", ["float16", "float32"])
@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_an_index_of_vectors_is_mapped(make_dataset: MakeDataset, tmp_path: Path, index: str, vectors: str) -> None:
    encoder = HashEncoder(dim=16, by_word=True)
    dataset = make_dataset(num_nodes=300)
    opened = mapped(dataset, tmp_path / "corpus", encoder=encoder, vectors=vectors, index=index)
    assert opened.graph.vectors.index is not None
    assert opened.graph.vectors.index.name == f"vectors.{index}"
    queries = Queries(dataset.query_ids, dataset.query_texts, encoder.encode(dataset.query_texts))
    exact = DenseRetriever(opened.graph, top_k=10).retrieve(queries)
    found = DenseRetriever(opened.graph, top_k=10, index=index, num_probes=100).retrieve(queries)
    same = (found.scores - exact.scores).abs() < 1e-4
    assert same.all() if index == "ivf" else same.float().mean() > 0.95  # all cells; nodes may tie
    hybrid = HybridExpandRetriever(opened.graph, top_k=20, base_k=8, num_seeds=4, proposals=300, index=index)
    assert (hybrid.retrieve(queries).nodes >= 0).all()


def test_an_index_without_vectors_is_refused(make_dataset: MakeDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`index` needs an encoder"):
        mapped(make_dataset(), tmp_path / "corpus", index="ivf")
