"""A corpus folder that grew and was compacted is the one that is prepared with its passages."""

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.corpus_folder import growth
from graphrerank.data.corpus_folder.growth import NewEdge, compact_corpus, grow_corpus, start_compaction
from graphrerank.data.corpus_folder.opening import open_corpus, read_manifest
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.enrichment import mentions, shared_entities
from graphrerank.data.readers.documents import Document
from graphrerank.graphs import entity_incidence
from graphrerank.graphs.edge_types import ADJACENCY, REFERENCE
from graphrerank.knowledge.passage_knowledge import Knowledge
from tests.support.encoders import HashEncoder
from tests.support.graphs import named_edges

FIRST = ["Rome", "New", "Anna", "Bahrām", "The", "old", "A", "Metz", "Nero"]
LAST = ["York", "Rome", "Lee", "Beyzai", "Who", "Treaty", "Metz", "river", "AT&amp;T"]
ENDS = ["", "", " (film)", " (1976 film)", ", Lorraine"]


def passage(doc_id: str, title: str, text: str) -> Document:
    return Document(doc_id, title, text, {})


def draw_texts(count: int, seed: int) -> list[Document]:
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


def load(folder: Path, texts: Sequence[Document], stated: Sequence[tuple[str, str]] = (), **settings: Any) -> Any:
    folder.mkdir(parents=True)
    lines = (json.dumps({"_id": t.doc_id, "title": t.title, "text": t.text}) + "\n" for t in texts)
    (folder / "corpus.jsonl").write_text("".join(lines))
    if stated:
        rows = "".join(f"{source}\t{target}\tnext\t0.5\n" for source, target in stated)
        (folder / "edges.tsv").write_text(f"source\ttarget\ttype\tweight\n{rows}")
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
    monkeypatch.setattr(shared_entities, "MAX_NEIGHBOURS", 2)
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
        edges = [(new[0].doc_id, live[0].doc_id)]
        grow_corpus(
            folder,
            [text.doc_id for text in new],
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
        assert {i for i, _, _ in grown} <= kept
    rebuilt = load(tmp_path / "rebuilt", live, stated, **settings)
    fresh = read_manifest(prepare_corpus(rebuilt, tmp_path / "fresh", encoder=encoder, vectors="float32"))
    asked = len(encoder.asked)
    found = read_manifest(compact_corpus(folder))
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


def test_edges_in_texts_come_with_the_compaction(tmp_path: Path) -> None:
    base = load(
        tmp_path / "base", [passage("a", "Metz", "It fell to Rome."), passage("b", "Toul", "It met.")], edges="auto"
    )
    folder = prepare_corpus(base, tmp_path / "corpus")
    edges = [NewEdge("new", "b", 1.0, REFERENCE)]
    grow_corpus(folder, ["new"], ["Rome. Near Metz."], title_lengths=[4], edges=edges)
    explicit = {("new", "b", "reference"), ("b", "new", "reference")}
    assert named_edges(open_corpus(folder).graph).keys() == explicit
    found = named_edges(open_corpus(compact_corpus(folder)).graph).keys()
    assert found > explicit
    assert ("a", "new", "reference") in found
    assert ("new", "a", "entity") in found


def test_it_starts_by_itself_where_many_passages_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "COMPACT_LEAST", 2)
    base = load(tmp_path / "base", draw_texts(20, 0))
    folder = prepare_corpus(base, tmp_path / "corpus")
    done = [grow_corpus(folder, [f"n{i}"], ["A zebra"], compact=False).needs_compaction for i in range(6)]
    assert done == [False] * 4 + [True] * 2
    process = start_compaction(folder)
    assert process.wait(120) == 0
    assert not read_manifest(folder).has_grown()
    assert open_corpus(folder, thorough=True).graph.num_nodes == 26
    ids = [f"m{i}" for i in range(7)]
    assert grow_corpus(folder, ids, ["A zebra"] * 7) == (7, 0, 33, True)
    assert not read_manifest(folder).has_grown()
    open_files = open_corpus(folder).graph
    assert grow_corpus(folder, remove=ids).needs_compaction is False
    assert open_files.num_nodes == 33


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"title_lengths": []}, r"`title_lengths` must have one entry per id \(1\), got 0"),
        ({"entities": []}, r"`entities` must have one entry per id \(1\), got 0"),
        ({}, "`entities` must be given, as those of .* are by Capitals, got none"),
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
    for neighbours in ([2, 3], [1, 2, 3]):  # those of the first passage, after the compaction by other numbers
        graph = open_corpus(folder, thorough=True).graph
        assert graph.entities is not None
        assert sorted(graph.entities.partners(graph.indptr.new_tensor([0]))[1].tolist()) == neighbours
        compact_corpus(folder)


def test_a_damaged_column_is_not_copied(tmp_path: Path) -> None:
    texts = [passage(f"d{i}", "", "word " * 90_000) for i in range(2)]
    folder = prepare_corpus(load(tmp_path / "base", texts), tmp_path / "corpus")
    grow_corpus(folder, ["new"], ["A zebra"])
    (column,) = folder.glob("columns-*/texts.content")
    content = bytearray(column.read_bytes())
    content[len(content) // 2] ^= 1
    column.write_bytes(content)
    assert open_corpus(folder).graph.num_nodes == 3
    with pytest.raises(ValueError, match=r"texts\.content: is damaged"):
        compact_corpus(folder)


def test_what_an_older_version_wrote_opens_and_does_not_grow(tmp_path: Path) -> None:
    """It had no `num_prepared`, `knn` and `derived` of today; a folder that it had grown is refused."""
    folder = prepare_corpus(load(tmp_path / "base", draw_texts(20, 0)), tmp_path / "corpus")
    expected = open_corpus(folder)
    manifest = json.loads((folder / "corpus.json").read_text())
    old = {key: manifest[key] for key in manifest if key not in ("num_prepared", "knn", "knn_below")}
    old |= {"format": 2, "nearest": {"k": 3, "below": None}, "num_nodes": 20}
    old["derived"] = {"mention_type": 0, "entity_source": None, "max_entity_share": 1.0, "chooses": False}
    (folder / "corpus.json").write_text(json.dumps(old))
    found = open_corpus(folder, thorough=True)
    assert dataclasses.asdict(found)["fingerprint"] == expected.fingerprint
    assert list(found.graph.texts) == list(expected.graph.texts)
    for change in (grow_corpus, compact_corpus):
        with pytest.raises(ValueError, match=r"an older version wrote it.* prepare it again: graphrerank prepare"):
            change(folder)
    old["columns"]["removed"]["shape"] = [1]
    old["columns"]["removed"]["pieces"] = [[8, ""]]
    (folder / "corpus.json").write_text(json.dumps(old))
    with pytest.raises(ValueError, match="an older version wrote it"):
        open_corpus(folder)
