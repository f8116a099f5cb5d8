"""Records of JSON, JSONL and tables as documents."""

import json

import pytest

from graphrerank.data.documents.document import UnreadableError


def test_json_and_jsonl(read):
    rows = [{"_id": "x", "title": "T", "text": "one"}, {"content": "two"}]
    for name, content in (("a.json", json.dumps(rows)), ("a.jsonl", "\n".join(map(json.dumps, rows)))):
        found = read(name, content)
        assert [document.name for document in found] == [f"{name}#x", f"{name}#2"]
        assert [(document.title, document.sections[0].text) for document in found] == [("T", "one"), ("", "two")]
    with pytest.raises(UnreadableError, match="not JSON in line 2"):
        read("b.jsonl", '{"text": "a"}\n{')
    (document,) = read("c.jsonl", '{"text": "a\u2028b"}\n')  # U+2028 ends no line of JSONL
    assert document.sections[0].text == "a\u2028b"
    with pytest.raises(UnreadableError, match="not JSON"):
        read("e.json", f'{{"text": "a", "n": {"9" * 5000}}}')  # more digits than Python reads
    twice = read("d.json", '[{"id": 1, "text": "a"}, {"id": 1, "text": "b"}, "c", 4]')
    assert [document.name for document in twice] == ["d.json#1", "d.json#1:2", "d.json#3", "d.json#4"]
    assert [document.sections[0].text for document in twice] == ["a", "b", "c", ""]


def test_objects_without_a_text_say_what_they_have(read):
    row = {
        "id": 7,
        "name": "Saw",
        "size": {"width": 2, "unit": "cm"},
        "tags": ["a", "b"],
        "vector": [1.5],
        "sold": None,
        "new": True,
    }
    (document,) = read("a.json", json.dumps(row))
    assert (document.name, document.title) == ("a.json", "Saw")
    assert document.sections[0].text == "size.width: 2\nsize.unit: cm\ntags: a, b\nnew: true"


def test_tables(read):
    found = read("a.csv", '\ufeffid;name;text\r\n x ;Foo;"a; b\nc"\r\ny;Bar;\r\n')
    assert [(d.name, d.title, d.sections[0].text) for d in found] == [
        ("a.csv#x", "Foo", "a; b\nc"),
        ("a.csv#y", "Bar", ""),
    ]
    found = read("a.tsv", 'what\t"size"\nsaw\t5"\n')
    assert [(d.name, d.sections[0].text) for d in found] == [("a.tsv#2", 'what: saw\n"size": 5"')]
    assert read("b.csv", "a,b\n") == read("c.csv", "") == []
    with pytest.raises(UnreadableError, match="line 2 has more columns than the 2 that the first one names"):
        read("d.csv", "a,b\n1,2,3\n")
