"""Each step from a data set folder to a data set, by hand."""

from pathlib import Path

import pytest
import torch

from graphrerank.corpus.edge_types import ENTITY, OTHER, REFERENCE
from graphrerank.data.folder import (
    CHUNKS,
    FILE_EDGES,
    MENTIONS,
    RANDOM,
    EdgeSettings,
    FolderEdges,
    build_graph,
    build_passages,
    check_edge_settings,
    chunk_edges,
    derive_edges,
    edge_files,
    edges_to_find_again,
    entity_source,
    mention_type,
    nearest_neighbours,
    number_documents,
    read_or_draft_questions,
)
from graphrerank.data.readers.documents import EMPTY, FILTERED, CorpusRecord
from graphrerank.data.readers.edges import FileEdges, GuardedEdges

PARIS = CorpusRecord("p", "Paris", "It lies on the Seine.", {"doc_id": "x", "chunk_id": 0, "lang": "en"})
SEINE = CorpusRecord("s", "Seine", "A river.", {"doc_id": "x", "chunk_id": 1, "lang": "fr"})
ROME = CorpusRecord("r", "Rome", "It has hills.", {"doc_id": "y", "chunk_id": 0, "principals": ["it"]})
NOTHING = CorpusRecord("n", "", "", {"lang": "en"})
CITIES = [PARIS, SEINE, ROME]


def file_edges(*pairs: tuple[int, int], edge_type: int = OTHER, guarded: GuardedEdges | None = None) -> FileEdges:
    ends = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    return FileEdges(ends, torch.ones(len(pairs)), torch.full((len(pairs),), edge_type), guarded, [])


def derive(folder: Path, stated: FileEdges, settings: EdgeSettings) -> FolderEdges:
    return derive_edges(folder, number_documents(CITIES), stated, settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"language": "klingon"}, "`language` must be"),
        ({"num_random": -1}, "`random_edges` must"),
        ({"knn": -2}, "`knn` must"),
    ],
)
def test_settings_are_refused_by_name(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_edge_settings(**{"language": "auto", "num_random": 0, "knn": None, **settings})


def test_documents_are_numbered_filtered_and_counted() -> None:
    corpus = number_documents([NOTHING, *CITIES], {"lang": ["fr", "de"]})
    assert corpus.node_number == {"n": EMPTY, "p": FILTERED, "s": 0, "r": FILTERED}
    assert corpus.documents == [SEINE]
    assert number_documents([NOTHING, *CITIES]).node_number == {"n": EMPTY, "p": 0, "s": 1, "r": 2}


def test_edge_files(tmp_path: Path) -> None:
    assert edge_files(tmp_path, None) == edge_files(tmp_path, "auto") == []
    (tmp_path / "edges.tsv").touch()
    assert edge_files(tmp_path, None) == edge_files(tmp_path, "auto") == [tmp_path / "edges.tsv"]
    assert edge_files(tmp_path, ["a.tsv", "b.csv"]) == [tmp_path / "a.tsv", tmp_path / "b.csv"]
    with pytest.raises(ValueError, match=r"`edges` must be a list of files in .*, got 'edges.tsv'"):
        edge_files(tmp_path, "edges.tsv")


@pytest.mark.parametrize(
    ("stated_type", "settings", "expected"),
    [
        (OTHER, EdgeSettings(False), None),
        (OTHER, EdgeSettings(False, mentions=True), REFERENCE),
        (OTHER, EdgeSettings(True), REFERENCE),
        (REFERENCE, EdgeSettings(True), ENTITY),
        (OTHER, EdgeSettings(True, mentions=False), None),
    ],
)
def test_type_of_mentions(stated_type: int, settings: EdgeSettings, expected: int | None) -> None:
    assert mention_type(CITIES, file_edges((0, 1), edge_type=stated_type), settings) == expected


def test_neighbouring_chunks(tmp_path: Path) -> None:
    assert chunk_edges(tmp_path, CITIES, EdgeSettings(False)) is None
    for settings in (EdgeSettings(False, adjacency=True), EdgeSettings(True)):
        edges = chunk_edges(tmp_path, CITIES, settings)
        assert edges is not None
        assert edges[0].tolist() == [[0, 1]]
    assert chunk_edges(tmp_path, [PARIS, NOTHING], EdgeSettings(True)) is None  # one does not say its place
    assert chunk_edges(tmp_path, CITIES, EdgeSettings(True, adjacency=False)) is None
    with pytest.raises(ValueError, match=r"`adjacency` needs .* got {'lang': 'en'} in 'n'"):
        chunk_edges(tmp_path, [PARIS, NOTHING], EdgeSettings(False, adjacency=True))


def test_source_of_entities(tmp_path: Path) -> None:
    assert entity_source(tmp_path, EdgeSettings(False, entities="auto")) is None
    assert entity_source(tmp_path, EdgeSettings(True, entities="auto")) == "spelling"
    (tmp_path / "entities.jsonl").touch()
    assert entity_source(tmp_path, EdgeSettings(True, entities="auto")) == "file"
    assert entity_source(tmp_path, EdgeSettings(True, entities="spacy")) == "spacy"
    assert entity_source(tmp_path, EdgeSettings(True, entities=None)) is None


def test_edges_to_nearest_neighbours() -> None:
    assert nearest_neighbours(EdgeSettings(False), 5) == (0, None)
    assert nearest_neighbours(EdgeSettings(False, knn=3), 5) == (3, None)
    assert nearest_neighbours(EdgeSettings(True), 5) == (10, 5)
    assert nearest_neighbours(EdgeSettings(True, knn=0), 5) == (0, None)
    assert nearest_neighbours(EdgeSettings(True, knn=2), 1 << 18) == (2, 3)


def test_edges_by_source(tmp_path: Path) -> None:
    edges = derive(tmp_path, file_edges((0, 1), (1, 0)), EdgeSettings(False, mentions=True, adjacency=True))
    assert {source: pairs.tolist() for source, (pairs, _, _) in edges.by_source.items()} == {
        FILE_EDGES: [[0, 1], [1, 0]],
        CHUNKS: [[0, 1]],
        MENTIONS: [[0, 1]],
    }
    assert edges.counts() == {FILE_EDGES: 1, MENTIONS: 1, CHUNKS: 1}
    assert list(edges.counts()) == [FILE_EDGES, MENTIONS, CHUNKS]
    assert edges.derived.stated[0].tolist() == [[0, 1], [1, 0], [0, 1]]


def test_random_edges_count_as_stated(tmp_path: Path) -> None:
    edges = derive(tmp_path, file_edges((0, 1)), EdgeSettings(False, num_random=1))
    drawn = {frozenset(pair) for pair in edges.by_source[RANDOM][0].tolist()}
    assert drawn == {frozenset((0, 2)), frozenset((1, 2))}  # no others are free
    assert len(edges.derived.stated[0]) == 3


def test_passages_and_their_graph(tmp_path: Path) -> None:
    passages = build_passages(CITIES, [("supersedes", "s", "p")], language="german")
    assert list(passages.ids) == ["p", "s", "r"]
    assert passages.texts[0] == "Paris. It lies on the Seine."
    assert [passages.title(number) for number in range(3)] == ["Paris", "Seine", "Rome"]
    assert passages.language == "german"
    assert passages.metadata is not None
    assert passages.metadata.record(1)["supersedes"] == ["p"]
    edges = derive(tmp_path, file_edges((0, 2)), EdgeSettings(False))
    graph = build_graph(passages, file_edges((0, 2)), edges)
    assert graph.degree.tolist() == [1, 0, 1]
    assert build_passages([PARIS._replace(metadata={})], [], language="auto").metadata is None


def test_what_is_found_again_for_restricted_passages(tmp_path: Path) -> None:
    passages = build_passages(CITIES, [], language="auto")
    settings = EdgeSettings(False, mentions=True, knn=1)
    edges = derive(tmp_path, file_edges((0, 1)), settings)
    graph = build_graph(passages, file_edges((0, 1)), edges)
    fields = edges_to_find_again(graph, edges, keep_derived=False)
    assert fields["derived"] is edges.derived
    assert (fields["edge_recipe"].rule, fields["edge_recipe"].knn) == (edges.derived.rule, 1)
    public = build_graph(build_passages([PARIS, SEINE], [], language="auto"), file_edges((0, 1)), edges)
    assert edges_to_find_again(public, edges, keep_derived=False) == {}
    assert list(edges_to_find_again(public, edges, keep_derived=True)) == ["derived"]
    plain = derive(tmp_path, file_edges((0, 1)), EdgeSettings(False))
    assert edges_to_find_again(graph, plain, keep_derived=True) == {}


def test_drafts_of_the_folder_come_first(tmp_path: Path) -> None:
    corpus = number_documents(CITIES)
    edges = derive(tmp_path, file_edges((0, 1)), EdgeSettings(False))
    graph = build_graph(build_passages(CITIES, [], language="auto"), file_edges((0, 1)), edges)
    (tmp_path / "drafted.jsonl").write_text(
        '{"text": "first?", "relevant": ["r"]}\n{"text": "second?", "relevant": ["p", "s"]}\n'
    )
    (draft,) = read_or_draft_questions(tmp_path, corpus, graph, 1, None)
    assert (draft.text, draft.nodes) == ("first?", [2])
