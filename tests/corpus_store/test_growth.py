"""A folder that grew or was compacted gives the same results as one that was prepared with the same passages."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph, entity_incidence
from graphrerank.corpus.edge_types import ADJACENCY
from graphrerank.corpus_store import growth, opening
from graphrerank.corpus_store.growth import NewEdge, compact_corpus, grow_corpus, start_compaction
from graphrerank.corpus_store.opening import open_corpus, read_corpus_manifest
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.enrichment import mentions, neighbours
from graphrerank.data.readers.documents import CorpusRecord
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.utils.files import sole_use
from tests.corpus_store.conftest import MakeDataset, assert_same, encoder
from tests.support.damage import flip_bit
from tests.support.encoders import HashEncoder
from tests.support.folders import write_dataset
from tests.support.graphs import named_edges
from tests.support.killing import run_until_file_operation


def with_nodes(dataset: Dataset, nodes: Sequence[int]) -> Dataset:
    """Build the data set of the given passages, in the given order, with their edges and judgements."""
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
    """List the edges of new passages, to each other and to the passages that are present."""
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


def test_added_and_removed_passages_against_a_rebuild(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset(entities=False)
    base, ids = with_nodes(dataset, range(60)), dataset.graph.node_ids
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder(), vectors="float32", part_size=17)
    old = open_corpus(folder)
    for start, stop in ((60, 61), (61, 80), (80, 85)):
        add(folder, dataset, range(start, stop), range(start))
    grown = open_corpus(folder, thorough=True)
    assert grown.fingerprint != old.fingerprint
    whole = with_nodes(dataset, range(85))
    assert_same(grown, dataclasses.replace(whole, splits=grown.splits), tmp_path / "cache")
    assert old.graph.texts[59] == dataset.graph.texts[59]  # a process that mapped it before is not affected
    assert old.graph.num_nodes == 60
    assert grow_corpus(folder, remove=[ids[i] for i in range(0, 85, 7)]).num_removed == 13
    add(folder, dataset, range(85, 90), [i for i in range(85) if i % 7])
    assert grow_corpus(folder, remove=[ids[1], ids[75]]) == (0, 2, 75, False)
    rebuilt = with_nodes(dataset, [i for i in range(90) if (i % 7 or i >= 85) and i not in (1, 75)])
    grown = open_corpus(folder, thorough=True)
    assert_same(grown, dataclasses.replace(rebuilt, splits={}), tmp_path / "removed", exact=False)
    with pytest.raises(ValueError, match="must not have removed passages for an index of all texts, got 15"):
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
    grow_corpus(folder, ["d20"], ["Another zebra"], replace=True)  # its id is stored twice
    graph = open_corpus(folder, thorough=True).graph
    _, weight, types = (part[-2:] for part in graph.with_types([0]).typed_edges())
    assert (weight.tolist(), types.tolist()) == ([0.5, 0.5], [0, 0])
    assert graph.with_types([4]).num_edges == dataset.graph.num_edges + 2 - 2 * int(dataset.graph.degree[20])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"node_ids": ["a"], "texts": []}, "`texts` must have one entry per id"),
        ({"node_ids": ["a", "a"], "texts": ["", ""]}, "`node_ids` must be unique, got 'a' twice"),
        ({"remove": ["x"]}, "`remove` must contain ids of the corpus, got 'x'"),
        ({"node_ids": ["a"], "texts": [""], "edges": [NewEdge("a", "x")]}, "'x' is unknown"),
        ({"node_ids": ["a"], "texts": [""], "edges": [NewEdge("d1", "d2")]}, "neither passage is new"),
        ({"node_ids": ["a"], "texts": [""], "edges": [NewEdge("a", "d1", -1.0)]}, "have a positive, finite weight"),
        ({"node_ids": ["a"], "texts": [""], "encoder": None}, "`encoder` must be"),
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
    with pytest.raises(ValueError, match="does not contain the entities of each passage"):
        grow_corpus(folder, ["a"], ["text"])
    with sole_use(folder):
        for write in (partial(grow_corpus, remove=["d1"]), compact_corpus, partial(prepare_corpus, make_dataset())):
            with pytest.raises(ValueError, match="another command is writing to this folder"):
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
        patch.setattr("graphrerank.utils.files.os.fsync", fsync)
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


FIRST = ["Rome", "New", "Anna", "Bahrām", "The", "old", "A", "Metz", "Nero"]
LAST = ["York", "Rome", "Lee", "Beyzai", "Who", "Treaty", "Metz", "river", "AT&amp;T"]
ENDS = ["", "", " (film)", " (1976 film)", ", Lorraine"]


def passage(doc_id: str, title: str, text: str) -> CorpusRecord:
    return CorpusRecord(doc_id, title, text, {})


def draw_texts(count: int, seed: int) -> list[CorpusRecord]:
    """Draw passages whose titles occur in each other, are borne by several, lie inside others and are common."""
    rng = random.Random(seed)

    def name() -> str:
        return " ".join([*rng.choices(FIRST, k=rng.choice([0, 0, 1])), rng.choice(LAST)]) + rng.choice(["", "", " II"])

    names = [name() for _ in range(count // 2)]
    texts = []
    for place in range(count):
        title = "" if rng.random() < 0.1 else rng.choice(names) + rng.choice(ENDS)
        opening = f"{title.split(' (')[0].split(',')[0]} Smith (born 1921) wrote. " if rng.random() < 0.3 else ""
        words = [rng.choice([rng.choice(names), rng.choice(names).lower(), "met", "and", "in"]) for _ in range(6)]
        texts.append(passage(f"d{seed}-{place}", title, f"{opening}He {' '.join(words)} there.".strip()))
    return texts


def load(folder: Path, texts: Sequence[CorpusRecord], stated: Sequence[tuple[str, str]] = (), **settings: Any) -> Any:
    corpus = [{"_id": t.doc_id, "title": t.title, "text": t.text} for t in texts]
    rows = "".join(f"{source}\t{target}\tnext\t0.5\n" for source, target in stated)
    write_dataset(folder, corpus=corpus, edges=rows or None)
    return Dataset.from_folder(folder, keep_derived=True, name="drawn", **settings)


SETTINGS = {
    "auto": {"edges": "auto", "max_entity_share": 0.1},
    "mentions": {"mentions": True, "entities": "spelling", "max_entity_share": 0.1},
    "nearest": {"knn": 3},
    "stated": {},
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_random_changes_against_a_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, settings: dict[str, Any]
) -> None:
    """Names become ambiguous, common and rare again; entities become too common; all columns are equal bytes."""
    monkeypatch.setattr(mentions, "MIN_COMMON", 3)
    monkeypatch.setattr(entity_incidence, "MIN_COMMON", 5)
    monkeypatch.setattr(neighbours, "MAX_NEIGHBOURS", 2)
    rng, encoder = random.Random(seed), HashEncoder(dim=16, by_word=True)
    live, further = draw_texts(60, seed), draw_texts(120, 100 + seed)
    stated = [(live[i].doc_id, live[i + 1].doc_id) for i in range(0, 30, 3)]
    base = load(tmp_path / "base", live, stated, **settings)
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=encoder, vectors="float32")
    for _ in range(4):
        count = rng.choice([1, 7, 30])
        new, further = further[:count], further[count:]
        gone = rng.sample(live, rng.choice([0, 1, 5]))
        live = [text for text in live if text not in gone] + new
        edges, ids = [(new[0].doc_id, live[0].doc_id)], [text.doc_id for text in new]
        grow_corpus(
            folder,
            ids,
            [text.passage for text in new],
            edges=[NewEdge(*pair, 0.5, ADJACENCY) for pair in edges],
            title_lengths=[len(text.title) for text in new],
            remove=[text.doc_id for text in gone],
            encoder=encoder,
        )
        kept = {text.doc_id for text in live}
        stated = [pair for pair in [*stated, *edges] if {*pair} <= kept]
        grown = named_edges(open_corpus(folder, thorough=True).graph)
        assert {(i, j) for i, j, _ in grown} >= {*stated}
        assert {(i, j) for i, j, _ in grown if i in ids or j in ids} == {*edges, *(pair[::-1] for pair in edges)}
        assert {i for i, _, _ in grown} <= kept
    rebuilt = load(tmp_path / "rebuilt", live, stated, **settings)
    fresh = read_corpus_manifest(prepare_corpus(rebuilt, tmp_path / "fresh", encoder=encoder, vectors="float32"))
    asked = len(encoder.asked)
    found = read_corpus_manifest(compact_corpus(folder))
    assert len(encoder.asked) == asked
    names = {name for name in fresh.columns if not name.startswith("stated.")}
    assert {name: found.columns[name] for name in names} == {name: fresh.columns[name] for name in names}
    assert found.fingerprint == fresh.fingerprint
    one = further[0]
    grow_corpus(folder, [one.doc_id], [one.passage], title_lengths=[len(one.title)], encoder=encoder)
    again = load(tmp_path / "again", [*live, one], stated, **settings)
    assert named_edges(open_corpus(compact_corpus(folder)).graph) == named_edges(
        open_corpus(prepare_corpus(again, tmp_path / "fresh", encoder=encoder, vectors="float32")).graph
    )


def test_it_starts_by_itself_where_many_passages_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "COMPACT_LEAST", 2)
    base = load(tmp_path / "base", draw_texts(20, 0))
    folder = prepare_corpus(base, tmp_path / "corpus")
    done = [grow_corpus(folder, [f"n{i}"], ["A zebra"], compact=False).needs_compaction for i in range(6)]
    assert done == [False] * 4 + [True] * 2
    process = start_compaction(folder)
    assert process.wait(120) == 0
    assert not read_corpus_manifest(folder).has_grown()
    assert open_corpus(folder, thorough=True).graph.num_nodes == 26
    ids = [f"m{i}" for i in range(7)]
    assert grow_corpus(folder, ids, ["A zebra"] * 7) == (7, 0, 33, True)
    assert not read_corpus_manifest(folder).has_grown()
    open_files = open_corpus(folder).graph
    assert grow_corpus(folder, remove=ids).needs_compaction is False
    assert open_files.num_nodes == 33


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"title_lengths": []}, r"`title_lengths` must have one entry per id \(1\), got 0"),
        ({"entities": []}, r"`entities` must have one entry per id \(1\), got 0"),
        ({}, "`entities` is required, because those of .* were extracted by Capitals, got None"),
    ],
)
def test_entities_of_another_extractor_are_given(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    class Capitals:
        fingerprint = "capitals"

        def extract(self, texts: Sequence[str]) -> list[Knowledge]:
            return [Knowledge.from_names([text.split()[0]]) for text in texts]

    base = load(tmp_path / "base", [passage("a", "Metz", "It fell.")], edges="auto", entities=Capitals())
    folder = prepare_corpus(base, tmp_path / "corpus")
    before = (folder / "corpus.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        grow_corpus(folder, ["b"], ["Rome. It stands."], **arguments)
    assert (folder / "corpus.json").read_bytes() == before
    assert grow_corpus(folder, ["b"], ["Rome. It stands."], entities=[["Metz."]]).num_added == 1
    assert ("b", "a", "entity") in named_edges(open_corpus(compact_corpus(folder)).graph)


def test_removed_passages_share_no_entity(tmp_path: Path) -> None:
    texts = [passage(f"d{i}", "", f"In Metz, number{i}.") for i in range(4)]
    folder = prepare_corpus(load(tmp_path / "base", texts, entities="spelling"), tmp_path / "corpus")
    grow_corpus(folder, ["new"], ["In Metz, too."], remove=["d1"])
    for joined in ([2, 3], [1, 2, 3]):  # those of the first passage, after the compaction by other numbers
        graph = open_corpus(folder, thorough=True).graph
        assert sorted(graph.entities.shared(graph.indptr.new_tensor([0]))[1].tolist()) == joined
        compact_corpus(folder)


def test_a_damaged_column_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "WHOLE_BYTES", 0)
    texts = [passage(f"d{i}", "", "word " * 30_000) for i in range(2)]
    folder = prepare_corpus(load(tmp_path / "base", texts), tmp_path / "corpus")
    grow_corpus(folder, ["new"], ["A zebra"])
    (column,) = folder.glob("columns-*/texts.content")
    flip_bit(column)
    assert open_corpus(folder).graph.num_nodes == 3
    with pytest.raises(ValueError, match=r"texts\.content is damaged"):
        compact_corpus(folder)


@pytest.mark.parametrize("changes", [4, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", ["grow", "compact"])
def test_killed_at_random_moments(make_dataset: MakeDataset, tmp_path: Path, step: str, changes: int) -> None:
    rng, encoder = random.Random(0), HashEncoder()
    folder = prepare_corpus(make_dataset(60, entities=False), tmp_path / "corpus", encoder=encoder)
    texts = [f"word{i} river zebra{i}" for i in range(20)]
    killed = 0
    operations = 0  # of the latest change that was let end
    for count in range(changes):
        ids = [f"n{count}-{i}" for i in range(20)]
        edges = [NewEdge(node_id, "d5") for node_id in ids]
        grow = partial(grow_corpus, folder, ids, texts, edges=edges, encoder=encoder)
        if step == "compact":
            grow()
        before = open_corpus(folder)
        change: Callable[[], object] = grow if step == "grow" else partial(compact_corpus, folder)
        end = run_until_file_operation(change, rng.randint(1, operations) if count else None)
        killed += end.killed
        if not end.killed:
            operations = end.operations
        after = open_corpus(folder, thorough=True)
        if after.fingerprint == before.fingerprint:
            assert list(after.graph.node_ids) == list(before.graph.node_ids)
        else:
            added = ids if step == "grow" else []
            assert list(after.graph.node_ids) == [*before.graph.node_ids, *added]
        assert before.graph.texts[5] == after.graph.texts[5]
    assert killed >= changes // 2
    compact_corpus(folder)
    assert open_corpus(folder, thorough=True).graph.num_nodes == after.graph.num_nodes
