"""Edge files with and without a header, row by row."""

from pathlib import Path

import pytest

from graphrerank.corpus.edge_types import OTHER, REFERENCE
from graphrerank.data.readers.edges import EdgeRow, header_columns, read_edge_rows, read_edges

IDS = {"a": 0, "b": 1, "c": 2, "left out": -1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\n", [EdgeRow(1, "a", "b", "other", "1", "")]),
        ("a\tb\tcites\n", [EdgeRow(1, "a", "b", "cites", "1", "")]),
        ("a b 0.5\nb c 2\n", [EdgeRow(1, "a", "b", "other", "0.5", ""), EdgeRow(2, "b", "c", "other", "2", "")]),
        ("a\tb\tcites\t3\n", [EdgeRow(1, "a", "b", "cites", "3", "")]),
        ("target,source\nb,a\n", [EdgeRow(2, "a", "b", "other", "1", "")]),
        (
            "Head\tTail\tRelation\tscore\tnote\tprincipals\na\tb\t\t\tx\t hr | it \n",
            [EdgeRow(2, "a", "b", "other", "1", "hr | it")],
        ),
        ("source\ttarget\n", []),
        ("", []),
    ],
)
def test_forms_of_files_by_hand(tmp_path: Path, text: str, expected: list[EdgeRow]) -> None:
    path = tmp_path / "edges.tsv"
    path.write_text(text)
    assert list(read_edge_rows(path)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n", "edges.tsv, line 1: expected columns source, target, and optionally type and weight"),
        ("a\tb\tx\t1\ty\n", "edges.tsv, line 1: expected columns source, target"),
        ("a\tb\nb\tc\tx\n", r"edges.tsv, line 2: expected 2 tab-separated columns \(source, target\)"),
        ("source\ttarget\tPrincipal\na\tb\thr\n", "edges.tsv, line 1: expected `principals` as the name of the column"),
    ],
)
def test_malformed_files_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "edges.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        list(read_edge_rows(path))


def test_rows_that_are_no_header() -> None:
    assert header_columns(["a", "b"]) is None
    assert header_columns(["source", "b"]) is None
    assert header_columns(["source", "target", "from"]) is None  # two sources
    assert header_columns([" TO ", "src"]) == ["target", "source"]


def test_columns_of_several_files(tmp_path: Path) -> None:
    public, guarded = tmp_path / "public.tsv", tmp_path / "guarded.tsv"
    public.write_text("a\tb\treference\na\tb\treference\nb\tb\treference\na\tleft out\treference\na\tgone\tother\n")
    guarded.write_text("source\ttarget\ttype\tprincipals\nb\tc\tsupersedes\t\na\tc\tsupersedes\thr|it\n")
    with (
        pytest.warns(UserWarning, match=r"skipped 1 x id not in the corpus \(line 5\)"),
        pytest.warns(UserWarning, match=r"self-loops.*: 1; .*: 1"),
    ):
        edges = read_edges([public, guarded], IDS, drop_unknown=True)
    assert edges.pairs.tolist() == [[0, 1], [0, 1], [1, 2]]
    assert edges.types.tolist()[:2] == [REFERENCE, REFERENCE]
    assert edges.relations == [("supersedes", "b", "c")]
    assert edges.guarded is not None
    assert edges.guarded.pairs.tolist() == [[0, 2]]
    assert edges.guarded.groups[int(edges.guarded.group[0])] == '["hr", "it"]'


def test_types_that_no_file_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "edges.tsv"
    path.write_text("a\tb\tknows\n")
    with pytest.raises(ValueError, match=r"`edge_types` must name types in .* got 'cites'; .* \['knows'\]"):
        read_edges([path], IDS, ["cites"])
    with pytest.raises(ValueError, match="`edge_meanings` must name types in"):
        read_edges([path], IDS, None, {"cites": "reference"})
    assert read_edges([path], IDS, None, {"knows": "reference"}).types.tolist() == [REFERENCE]
    with pytest.warns(UserWarning, match="edges of the types 'knows' are read as `other`"):
        assert read_edges([path], IDS).types.tolist() == [OTHER]
