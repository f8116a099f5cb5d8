"""Mentions and shared entities of passages that are added and removed, against a preparation of the same passages."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphrerank.data.corpus_folder.compaction import compact_corpus
from graphrerank.data.corpus_folder.growth import grow_corpus
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import DerivedEdges
from graphrerank.data.enrichment import mentions, shared_entities
from graphrerank.data.enrichment.shared_entities import choose_neighbours, shared_weight
from graphrerank.data.readers import folder as folder_reader
from graphrerank.graphs import CorpusGraph, EntityIncidence, entity_incidence
from graphrerank.graphs.edge_types import ENTITY, SIMILARITY
from graphrerank.knowledge.passage_knowledge import Knowledge
from tests.support.encoders import HashEncoder

FIRST = ["Rome", "New", "Anna", "Bahrām", "The", "old", "A", "Metz", "Nero"]
LAST = ["York", "Rome", "Lee", "Beyzai", "Who", "Treaty", "Metz", "river", "AT&amp;T"]
ENDS = ["", "", " (film)", " (1976 film)", ", Lorraine"]
Edge = tuple[str, str, int, float]


class Text(NamedTuple):
    doc_id: str
    title: str
    text: str

    @property
    def passage(self) -> str:
        return f"{self.title}. {self.text}" if self.title else self.text


def draw_texts(count: int, seed: int) -> list[Text]:
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
        texts.append(Text(f"d{seed}-{place}", title, f"{opening}He {' '.join(words)} there."))
    return texts


def load(folder: Path, texts: Sequence[Text], stated: Sequence[tuple[str, str]] = (), **settings: Any) -> Any:
    folder.mkdir(parents=True)
    lines = (json.dumps({"_id": t.doc_id, "title": t.title, "text": t.text}) + "\n" for t in texts)
    (folder / "corpus.jsonl").write_text("".join(lines))
    if stated:
        rows = "".join(f"{source}\t{target}\tcites\t0.5\n" for source, target in stated)
        (folder / "edges.tsv").write_text(f"source\ttarget\ttype\tweight\n{rows}")
    return Dataset.from_folder(folder, keep_derived=True, name="drawn", **settings)


def edges_of(graph: CorpusGraph) -> dict[tuple[str, str, int], float]:
    pairs, weight, types = graph.typed_edges()
    ids = graph.node_ids
    rows = zip(pairs.tolist(), types.tolist(), weight.tolist(), strict=True)
    return {(ids[i], ids[j], kind): w for (i, j), kind, w in rows}


def expected_edges(rebuilt: Dataset, measured_against: int) -> dict[tuple[str, str, int], float]:
    """Return the edges of a preparation whose rarity of an entity is measured against another number of passages."""
    derived = rebuilt.derived
    assert isinstance(derived, DerivedEdges)
    chosen = None
    if derived.chosen is not None:
        incidence = EntityIncidence.from_names(derived.entity_names or (), max_share=derived.max_entity_share)
        pairs, total = choose_neighbours(incidence, num_passages=measured_against)
        chosen = (pairs, shared_weight(total, measured_against))
    parts = DerivedEdges(derived.stated, derived.mention_type, derived.mentions, chosen=chosen).joined()
    graph = rebuilt.graph
    return edges_of(CorpusGraph.from_edges(graph.node_ids, graph.texts, parts[0], parts[1], edge_type=parts[2]))


def entities_of(graph: CorpusGraph) -> dict[str, tuple[set[str], int]] | None:
    """Return the names of the shared entities of each passage that was not removed, and its size."""
    if graph.entities is None:
        return None
    found, ptr, held = graph.entities, graph.entities.indptr.tolist(), graph.entities.indices.tolist()
    assert (
        found.holders.tolist()
        == EntityIncidence(found.names, found.indptr, found.indices, found.sizes).holders.tolist()
    )
    return {
        node_id: ({found.names[entity] for entity in held[ptr[node] : ptr[node + 1]]}, int(found.sizes[node]))
        for node, node_id in enumerate(graph.node_ids)
        if graph.passages.removed is None or not graph.passages.removed[node]
    }


SETTINGS = {
    "auto": {"edges": "auto", "max_entity_share": 0.1},
    "mentions": {"mentions": True, "entities": "spelling", "max_entity_share": 0.1},
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_random_changes_against_a_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, settings: dict[str, Any]
) -> None:
    """Names become ambiguous, common and rare again, are taken over and given back; entities become too common."""
    monkeypatch.setattr(mentions, "MIN_COMMON", 3)
    monkeypatch.setattr(entity_incidence, "MIN_COMMON", 5)
    monkeypatch.setattr(shared_entities, "MAX_NEIGHBOURS", 2)
    rng = random.Random(seed)
    texts, further = draw_texts(60, seed), draw_texts(120, 100 + seed)
    stated = [(texts[i].doc_id, texts[i + 1].doc_id) for i in range(0, 12, 3)]
    base = load(tmp_path / "base", texts, stated if seed % 2 else (), **settings)
    folder = prepare_corpus(base, tmp_path / "corpus")
    assert edges_of(open_corpus(folder).graph) == edges_of(base.graph)
    live = list(texts)
    for step in range(5):
        count = rng.choice([1, 7, 30])
        new, further = further[:count], further[count:]
        gone = rng.sample(live, rng.choice([0, 1, 5]))
        grow_corpus(
            folder,
            [text.doc_id for text in new],
            [text.passage for text in new],
            title_lengths=[len(text.title) for text in new],
            remove=[text.doc_id for text in gone],
        )
        live = [text for text in live if text not in gone] + new
        kept = {text.doc_id for text in live}
        there = [pair for pair in stated if {*pair} <= kept] if seed % 2 else []
        rebuilt = load(tmp_path / f"rebuilt{step}", live, there, **settings)
        grown = open_corpus(folder, thorough=True)
        expected = expected_edges(rebuilt, len(texts))
        assert edges_of(grown.graph) == pytest.approx(expected, abs=1e-6)
        assert entities_of(grown.graph) == entities_of(rebuilt.graph)
    compact_corpus(folder)
    compacted = open_corpus(folder, thorough=True)
    assert edges_of(compacted.graph) == pytest.approx(edges_of(rebuilt.graph), abs=1e-6)
    assert entities_of(compacted.graph) == entities_of(rebuilt.graph)
    one = draw_texts(20, 999)[0]
    grow_corpus(folder, [one.doc_id], [one.passage], title_lengths=[len(one.title)])
    rebuilt = load(tmp_path / "last", [*live, one], there, **settings)
    expected = expected_edges(rebuilt, len(live))
    assert edges_of(open_corpus(folder).graph) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("all_nearest", "of_many"), [(1, False), (100, True)])
def test_nearest_neighbours_of_a_large_corpus_are_for_passages_that_mentions_leave_with_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_nearest: int, of_many: bool
) -> None:
    monkeypatch.setattr(folder_reader, "ALL_NEAREST", all_nearest)
    monkeypatch.setattr(folder_reader, "NEAREST", 3)
    base = load(tmp_path / "base", [Text(f"d{i}", f"Zebra{i}", f"It met okapi{i}.") for i in range(8)], edges="auto")
    folder = prepare_corpus(base, tmp_path / "corpus", encoder=HashEncoder(dim=32, by_word=True))
    new = [Text("many", "", "A Zebra1, a Zebra2 and a Zebra3."), Text("few", "", "A Zebra1 met okapi4.")]
    ids, passages = [text.doc_id for text in new], [text.passage for text in new]
    grow_corpus(folder, ids, passages, encoder=HashEncoder(dim=32, by_word=True))
    kinds: dict[str, list[int]] = {}
    for source, _, kind in edges_of(open_corpus(folder).graph):
        kinds.setdefault(source, []).append(kind)
    assert (SIMILARITY in kinds["many"]) == of_many
    assert SIMILARITY in kinds["few"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"title_lengths": []}, r"`title_lengths` must have one entry per id \(1\), got 0"),
        ({"entities": []}, r"`entities` must have one entry per id \(1\), got 0"),
        ({}, "`entities` must be given, as those of .* are by Capitals, got none"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    class Capitals:
        fingerprint = "capitals"

        def extract(self, texts: Sequence[str]) -> list[Knowledge]:
            return [Knowledge.from_names([text.split()[0]]) for text in texts]

    base = load(tmp_path / "base", [Text("a", "Metz", "It fell.")], edges="auto", entities=Capitals())
    folder = prepare_corpus(base, tmp_path / "corpus")
    before = (folder / "corpus.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        grow_corpus(folder, ["b"], ["Rome. It stands."], **arguments)
    assert (folder / "corpus.json").read_bytes() == before
    assert grow_corpus(folder, ["b"], ["Rome. It stands."], entities=[["Metz"]]).num_added == 1
    assert entities_of(open_corpus(folder).graph) is None
    assert ("b", "a", ENTITY) in edges_of(open_corpus(folder).graph)
