"""Records of JSON and tables as people have them: ids, titles and texts under any of the usual names, or none."""

import io
import json
import random

import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.records import (
    DAMAGED,
    OTHER_FIELDS,
    read_json_documents,
    read_jsonl_documents,
    read_parquet_documents,
    read_table_documents,
)
from graphrerank_documents.reading import read_content


def _shown(documents: list[Document]) -> list[tuple[str, str, str]]:
    return [(d.name, d.title, "\n".join(b.text for s in d.sections for b in s.blocks)) for d in documents]


def _json(content: object) -> list[tuple[str, str, str]]:
    return _shown(read_json_documents(json.dumps(content).encode(), "a.json"))


def _table(text: str, name: str = "a.csv") -> list[tuple[str, str, str]]:
    return _shown(read_table_documents(text.encode(), name))


def test_json_and_json_lines():
    rows = [{"_id": "x", "title": "T", "text": "one"}, {"content": "two"}]
    lines = "\n".join(map(json.dumps, rows)).encode()
    for read, name, content in (
        (read_json_documents, "a.json", json.dumps(rows, indent=1).encode("utf-16")),
        (read_json_documents, "a.json", lines),
        (read_jsonl_documents, "a.jsonl", b"\xef\xbb\xbf" + lines),
    ):
        assert _shown(read(content, name)) == [(f"{name}#x", "T", "one"), (f"{name}#2", "", "two")]
    assert [(d.sections[0].line, d.sections[0].end) for d in read_jsonl_documents(b"\n" + lines, "a.jsonl")] == [
        (2, 2),
        (3, 3),
    ]
    with pytest.raises(UnreadableError, match="not JSON in line 2"):
        read_jsonl_documents(b'{"text": "a"}\n{', "b.jsonl")
    (document,) = read_jsonl_documents('{"text": "a\u2028b"}\n'.encode(), "c.jsonl")  # U+2028 ends no line of JSONL
    assert document.sections[0].blocks[0].text == "a\u2028b"
    assert _json([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}, "c", 4]) == [
        ("a.json#1", "", "a"), ("a.json#1:2", "", "b"), ("a.json#3", "", "c"), ("a.json#4", "", ""),
    ]  # fmt: skip


ROW = {"ID": "x\n1", "Name": "Saw", "Body": "Cuts wood."}


@pytest.mark.parametrize(
    "content",
    [
        {"items": [ROW, {"id": 2, "text": "b"}], "count": 2, "next": None},
        {"status": "ok", "data": {"rows": [ROW, {"id": 2, "text": "b"}], "page": {"size": 10}}},
        {"took": 3, "hits": {"hits": [{"_source": ROW}, {"_id": 2, "_source": {"text": "b"}}]}},
        {"data": {"saws": {"edges": [{"node": ROW}, {"node": {"id": 2, "text": "b"}}]}}},
        {"type": "FeatureCollection", "features": [{"type": "Feature", "properties": ROW}, {"id": 2, "text": "b"}]},
    ],
)
def test_the_one_list_of_objects_below_a_key(content):
    assert _json(content) == [("a.json#x 1", "Saw", "Cuts wood."), ("a.json#2", "", "b")]


def test_objects_by_ids_articles_with_paragraphs_and_lists_of_words():
    assert _json({"a": {"text": "one", "n": float("nan")}, "b": {"text": "two"}}) == [
        ("a.json#a", "", "one"), ("a.json#b", "", "two"),
    ]  # fmt: skip
    questions = [{"id": 1, "question": "Who?"}]
    paragraphs = [{"context": "One.", "qas": questions}, {"context": "Two.", "qas": questions}]
    articles = [{"title": "Saws", "paragraphs": paragraphs}, {"title": "Axes", "paragraphs": paragraphs[:1]}]
    assert _json({"version": "1", "data": articles}) == [
        ("a.json#1", "Saws", "One."), ("a.json#2", "Saws", "Two."), ("a.json#3", "Axes", "One."),
    ]  # fmt: skip
    assert _json(["a", "the", "of"]) == [("a.json", "a", "a\nthe\nof")]


def test_objects_without_a_text_say_what_they_have():
    row = {"id": 7, "name": "Saw", "size": {"width": 2, "unit": "cm"}, "tags": ["a", "b"]}
    row |= {"vector": [1.5], "sold": None, "new": True, "price": float("nan")}
    said = "size.width: 2\nsize.unit: cm\ntags: a, b\nnew: true"
    assert _json(row) == [("a.json", "Saw", said)]
    assert _json([row, row]) == [("a.json#7", "Saw", said), ("a.json#7:2", "Saw", said)]
    assert read_json_documents(json.dumps([row, row]).encode(), "a.json")[0].sections[0].blocks[0].is_whole
    package = {"name": "saw", "description": "Cuts wood.", "scripts": {"test": "make"}}
    assert _json(package) == [("a.json", "saw", "Cuts wood.\nscripts.test: make")]
    (document,) = read_json_documents(
        json.dumps({"text": f"a data:image/png;base64,{'A' * 2000} b"}).encode(), "a.json"
    )
    assert document.dropped == {"data URIs": 1}
    assert _json({"k" * 5000: {"a": 1, "b": 2}})[0][2] == f"{'k' * 100}: 1\n{'k' * 100}: 2"
    assert len(_json([{"id": "i" * 5000, "text": "t"}, "u"])[0][0]) < 1010


def test_tables():
    found = read_table_documents('\ufeffid;name;text\r\n x ;Foo;"a; b\nc"\r\ny;Bar;\r\n;;\n'.encode(), "a.csv")
    assert _shown(found) == [("a.csv#x", "Foo", "a; b\nc"), ("a.csv#y", "Bar", "")]
    assert [(d.sections[0].line, d.sections[0].end) for d in found] == [(2, 3), (4, 4)]
    assert _table('what\t"size"\nsaw\t5"\n', "a.tsv") == [("a.tsv#2", "", 'what: saw\nsize: 5"')]
    assert _table("a,b\n") == _table("") == []
    assert _table('sep=|\nID|TEXT\n1|"one ""two"""\n') == [("a.csv#1", "", 'one "two"')]
    assert _table("id,text\n1,first,extra\n2,second\n3\n") == [
        ("a.csv#1", "", "first\ncolumn 3: extra"), ("a.csv#2", "", "second"), ("a.csv#3", "", ""),
    ]  # fmt: skip
    assert _table("Name;Preis;Name\nPumpe;12,50;P1\nVentil;3,20;\n") == [
        ("a.csv#2", "Pumpe", "Preis: 12,50\nName 3: P1"), ("a.csv#3", "Ventil", "Preis: 3,20"),
    ]  # fmt: skip
    assert _table("Name\nPump\nValve\n") == [("a.csv#2", "Pump", "Pump"), ("a.csv#3", "Valve", "Valve")]
    long = "word " * 50_000
    assert _table(f"id,text\n1,{long}\n") == [("a.csv#1", "", long.strip())]


@pytest.mark.parametrize(("encoding", "mark"), [("utf-16", "\t"), ("cp1252", ";"), ("utf-8-sig", ",")])
def test_encodings_and_separators(encoding, mark):
    text = f"Name{mark}Text\nPumpe{mark}Fördert Wasser über Tage\n"
    assert _shown(read_table_documents(text.encode(encoding), "a.csv")) == [
        ("a.csv#2", "Pumpe", "Fördert Wasser über Tage")
    ]


def test_tables_without_names_of_columns_and_with_open_quotes():
    texts = [f'{n}\t"The {n} presence of communication amid scientific minds was important.' for n in range(3)]
    assert _table("\n".join(texts), "a.tsv") == [(f"a.tsv#{n}", "", texts[n][2:]) for n in range(3)]
    assert _table("2000-01-01,1.5\n2000-01-02,2") == [
        ("a.csv#1", "", "column 1: 2000-01-01\ncolumn 2: 1.5"), ("a.csv#2", "", "column 1: 2000-01-02\ncolumn 2: 2"),
    ]  # fmt: skip
    assert _table("Country,2019,2020\nPeru,1,2\n") == [("a.csv#2", "", "Country: Peru\n2019: 1\n2020: 2")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "not JSON in line 1"),
        ("a.json", b'{"text": "a", "n": ' + b"9" * 5000 + b"}", "not JSON in line 1"),  # more digits than Python reads
        ("a.json", b"[" * 100_000, "RecursionError"),
        ("a.jsonl", b"1\n" + b'{"a":' * 100_000, "RecursionError"),
        ("a.csv", (f"{'k' * 100}," * 900 + f"\n{'a,' * 900}" * 900).encode(), "the records repeat long names"),
    ],
)
def test_what_is_not_read(name, content, message):
    assert message in read_content(content, name).reason


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv"])
def test_damaged_files_are_read_or_refused(kind):
    rng = random.Random(7)
    whole = json.dumps({"data": {"rows": [ROW, {"n": [1, [2, "x"]], "t\ud800": {"text": [None]}}] * 3}}).encode()
    table = 'id;name,"text"\n1;"a\n""b",c;\t|\nsep=;\n'.encode("utf-16")
    for _ in range(400):
        content = bytearray(rng.choice([whole, table, rng.randbytes(60)]))
        for _ in range(rng.randrange(4)):
            content[rng.randrange(len(content))] = rng.choice(b'{}[]",:;\n\0\xff\t' + rng.randbytes(1))
        file = read_content(bytes(content[: rng.randrange(len(content) + 1)]), f"a.{kind}")
        assert "cannot be parsed" not in file.reason
        assert len({document.name for document in file.documents}) == len(file.documents)


@pytest.mark.parametrize("content", [b'"' * 1_000_000, b'a"' * 500_000, b'"\n' * 300_000, b";" * 1_000_000])
def test_a_long_line_is_read_to_the_end(content):
    assert not read_content(content, "a.csv").reason


def _links(documents: list[Document]) -> dict[str, list[str]]:
    """The targets of the links of each document, without the name of the file."""
    return {
        d.name.partition("#")[2]: [
            link.target.partition("#")[2] for s in d.sections for b in s.blocks for link in b.links
        ]
        for d in documents
    }


def test_damaged_lines_of_json_lines_are_counted():
    documents = read_jsonl_documents(b'{"text": "a"}\n{"text": "b"}\n{"text": "c', "a.jsonl")
    assert [text for *_, text in _shown(documents)] == ["a", "b"]
    assert documents[0].dropped == {DAMAGED: 1}


def test_json_with_comments_and_trailing_commas():
    text = b'// settings\n{ /* c */ "name": "x", "url": "http://a.org//b", }\n'
    assert _shown(read_json_documents(text, "a.json")) == [("a.json", "x", "url: http://a.org//b")]


def test_fields_beside_the_text_are_counted():
    rows = [{"id": 1, "title": "T", "text": "one", "author": "A", "tags": ["x", "y"], "empty": None}, {"text": "two"}]
    assert [document.dropped for document in read_json_documents(json.dumps(rows).encode(), "a.json")] == [
        {OTHER_FIELDS: 3},
        {},
    ]
    nested = {"license": "free", "rows": [{"text": "a long text " * 9}, {"text": "another text " * 9}]}
    assert read_json_documents(json.dumps(nested).encode(), "a.json")[0].dropped == {OTHER_FIELDS: 1}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"id": "1", "text": "a"}, {"id": "2", "text": "b", "parent_id": "1"}], {"1": [], "2": ["1"]}),
        ([{"id": 1, "text": "a"}, {"id": 2, "text": "b", "inReplyTo": 1}], {"1": [], "2": ["1"]}),
        ([{"id": "x", "text": "a"}, {"id": "y", "text": "b", "parent_id": "t1_x"}], {"x": [], "y": ["x"]}),
        ([{"title": "A", "text": "a"}, {"title": "B", "text": "b", "related": ["A", "C"]}], {"1": [], "2": ["1"]}),
        ([{"id": "1", "text": "a", "parent": "1"}, {"id": "2", "text": "b", "parent": "9"}], {"1": [], "2": []}),
    ],
)
def test_fields_that_name_other_records_are_links(rows, expected):
    assert _links(read_json_documents(json.dumps(rows).encode(), "a.json")) == expected


def test_parquet():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional")
    table = {"id": ["a", "b"], "title": ["A", "B"], "text": ["one", "two"], "parent_id": [None, "a"], "n": [1, 2]}
    file = io.BytesIO()
    parquet.write_table(arrow.table(table), file)
    documents = read_parquet_documents(file.getvalue(), "x.parquet")
    assert _shown(documents) == [("x.parquet#a", "A", "one"), ("x.parquet#b", "B", "two")]
    assert _links(documents) == {"a": [], "b": ["a"]}
    with pytest.raises(UnreadableError, match="not Parquet"):
        read_parquet_documents(b"PAR1", "x.parquet")
