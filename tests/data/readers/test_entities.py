import gzip
import json
from pathlib import Path

import pytest

from graphrerank.data.readers.entities import FileKnowledge, PassageEntities, read_entities
from graphrerank.knowledge.passage_knowledge import Entity, Relation
from graphrerank_papers.hipporag.facts import merge_knowledge


def write(folder: Path, *lines: object) -> Path:
    (folder / "entities.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    return folder / "entities.jsonl"


def test_names_and_triples_in_the_order_of_the_file(tmp_path: Path) -> None:
    line = {"_id": "b", "entities": ["X", "Y"], "triples": [["X", "r", "Y"]], "other": 1}
    assert list(read_entities(write(tmp_path, line, {"_id": "a"}), ["a", "b", "c"])) == [
        PassageEntities("b", ["X", "Y"], [("X", "r", "Y")]),
        PassageEntities("a", [], []),
    ]


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ({"_id": "z", "entities": []}, "an `_id` of the corpus that did not come before, found 'z'"),
        ({"_id": "a", "entities": []}, "an `_id` of the corpus that did not come before, found 'a'"),
        ({"entities": []}, "an `_id` of the corpus"),
        ({"_id": "b"}, r'"entities": \[...\] of strings that are not blank, found None'),
        ({"_id": "b", "entities": None}, r'"entities": \[...\] of strings'),
        ({"_id": "b", "entities": "Metz"}, r'"entities": \[...\] of strings'),
        ({"_id": "b", "entities": [1]}, r'"entities": \[...\] of strings'),
        ({"_id": "b", "entities": [" "]}, r'"entities": \[...\] of strings'),
        ({"_id": "b", "entities": [], "triples": [["Metz", "is"]]}, r'"triples": \[\["head", "relation", "tail"\]'),
        ({"_id": "b", "entities": [], "triples": [["", "is", "a"]]}, r'"triples": \[\["head", "relation", "tail"\]'),
        ({"_id": "b", "entities": [], "triples": {"Metz": 1}}, r'"triples": \[\["head", "relation", "tail"\]'),
        ({"_id": "b", "entities": [], "triples": None}, r'"triples": \[\["head", "relation", "tail"\]'),
    ],
)
def test_lines_of_another_form_are_refused_with_their_number(tmp_path: Path, line: object, needed: str) -> None:
    path = write(tmp_path, {"_id": "a", "entities": []}, line)
    with pytest.raises(ValueError, match=rf"entities\.jsonl, line 2: needed {needed}"):
        list(read_entities(path, ["a", "b"], need_names=True))


def test_what_is_not_json_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "entities.jsonl").write_text('{"_id": "b", "entities": []}\n{', encoding="utf-8")
    with pytest.raises(ValueError, match=r"entities\.jsonl, line 2: needed JSON"):
        list(read_entities(tmp_path / "entities.jsonl", ["b"]))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: no such file"):
        list(read_entities(tmp_path / "nowhere.jsonl", []))


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
    assert merge_knowledge([king, city]).texts == ["Lothair II died in Piacenza"]


def test_a_passage_without_a_line_says_nothing(tmp_path: Path) -> None:
    known = knowledge_write(tmp_path, {"_id": "a"})
    assert [told.entities for told in known.extract(["Metz. A city.", "Lothair II. He died in Piacenza."])] == [(), ()]
    assert known.extract([]) == []


def test_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    before = knowledge_write(tmp_path, {"_id": "a", "entities": ["Metz"]}).fingerprint
    assert knowledge_write(tmp_path, {"_id": "a", "entities": ["Metz"]}).fingerprint == before
    assert knowledge_write(tmp_path, {"_id": "a", "entities": ["Nancy"]}).fingerprint != before


def test_a_corpus_of_another_form(tmp_path: Path) -> None:
    known = knowledge_write(tmp_path, {"_id": "b", "entities": ["Metz"]})
    content = (tmp_path / "corpus.jsonl").read_bytes()
    (tmp_path / "corpus.jsonl").unlink()
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(content))
    assert known.fingerprint
    assert [entity.name for entity in known.extract(["Metz. A city."])[0].entities] == ["Metz"]


def test_a_text_that_is_no_passage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needed texts of its passages, got 'Rome'"):
        knowledge_write(tmp_path, {"_id": "a"}).extract(["Rome"])


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ({"_id": "z"}, "an `_id` of the corpus that did not come before"),
        ({"_id": "a"}, "an `_id` of the corpus that did not come before"),
        ({"entities": []}, "an `_id` of the corpus"),
        ({"_id": "b", "entities": "Metz"}, r'"entities": \[...\] of strings'),
        ({"_id": "b", "entities": [" "]}, r'"entities": \[...\] of strings'),
        ({"_id": "b", "triples": [["Metz", "is"]]}, r'"triples": \[\["head", "relation", "tail"\], ...\]'),
        ({"_id": "b", "triples": {"Metz": 1}}, r'"triples": \[\["head", "relation", "tail"\], ...\]'),
    ],
)
def test_knowledge_lines_of_another_form_are_refused_with_their_number(tmp_path: Path, line: dict, needed: str) -> None:
    known = knowledge_write(tmp_path, {"_id": "a"}, line)
    with pytest.raises(ValueError, match=rf"entities\.jsonl, line 2: needed {needed}"):
        known.extract(["Metz. A city."])
