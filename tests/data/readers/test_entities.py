import json
from pathlib import Path

import pytest

from graphrerank.data.readers.entities import PassageEntities, read_entities


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
