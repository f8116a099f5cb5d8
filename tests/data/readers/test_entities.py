import json
from pathlib import Path

import pytest

from graphrerank.data.readers.entities import FileKnowledge, read_entities
from graphrerank.knowledge.passage_knowledge import Entity, Relation
from graphrerank_papers.knowledge.corpus_knowledge import merge_knowledge


def write(folder: Path, *lines: object) -> Path:
    (folder / "entities.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    return folder / "entities.jsonl"


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ({"_id": "z", "entities": []}, "a unique `_id` of the corpus, got 'z'"),
        ({"_id": "a", "entities": []}, "a unique `_id` of the corpus, got 'a'"),
        ({"_id": "b"}, "`entities`, a list of strings"),
        ({"_id": "b", "entities": [" "]}, "`entities.0`: String should match pattern"),
        ({"_id": "b", "entities": [], "triples": [["Metz", "is"]]}, "`triples.0.2`: Field required, got"),
        ({"_id": "b", "entities": [], "triples": {"Metz": 1}}, "`triples`: Input should be a valid list"),
    ],
)
def test_lines_of_another_form_are_refused_with_their_number(tmp_path: Path, line: object, needed: str) -> None:
    first = {"_id": "a", "entities": ["X", "Y"], "triples": [["X", "r", "Y"]], "other": 1}
    path = write(tmp_path, first, {"_id": "b"})
    read = [(entry.doc_id, entry.names, entry.triples) for entry in read_entities(path, ["a", "b", "c"])]
    assert read == [("a", ["X", "Y"], [("X", "r", "Y")]), ("b", [], [])]
    path = write(tmp_path, first, line)
    with pytest.raises(ValueError, match=rf"entities\.jsonl, line 2: expected {needed}"):
        list(read_entities(path, ["a", "b"], need_names=True))


DOCUMENTS = [
    {"_id": "a", "title": "Lothair II", "text": "He died in Piacenza."},
    {"_id": "b", "title": "Metz", "text": "A city."},
    {"_id": "c", "title": "Metz", "text": "A city."},
]


def knowledge_write(folder: Path, *lines: object) -> FileKnowledge:
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    (folder / "entities.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return FileKnowledge(folder)


def test_entities_and_triples_of_passages(tmp_path: Path) -> None:
    known = knowledge_write(
        tmp_path,
        {"_id": "a", "entities": ["Lothair II"], "triples": [["Lothair II", "died in", "Piacenza"]], "more": 1},
        {"_id": "c", "entities": ["Metz"]},
    )
    king, city = known.extract(["Lothair II. He died in Piacenza.", "Metz. A city."])
    assert king.entities == (Entity("Lothair II", "", ""), Entity("Piacenza", "", ""))
    assert king.relations == (Relation("Lothair II", "died in", "Piacenza", "Lothair II died in Piacenza."),)
    assert [entity.name for entity in city.entities] == ["Metz"]  # of the passage with the same text
    assert merge_knowledge([king, city]).facts == ["Lothair II died in Piacenza"]


def test_a_passage_without_a_line_says_nothing(tmp_path: Path) -> None:
    known = knowledge_write(tmp_path, {"_id": "a"})
    assert [told.entities for told in known.extract(["Metz. A city.", "Lothair II. He died in Piacenza."])] == [(), ()]
    assert known.extract([]) == []
    with pytest.raises(ValueError, match=r"expected texts of its passages, got 'Rome'"):
        known.extract(["Rome"])
    before = known.fingerprint
    assert knowledge_write(tmp_path, {"_id": "b"}).fingerprint != before
