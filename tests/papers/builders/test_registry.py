"""The one call: what is written, what is refused, and that nothing is left of what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphrerank.files import hash_files
from graphrerank_papers.builders.draft import Draft, Edge, Judgement, Origin, document, query, write_dataset
from graphrerank_papers.builders.raw_files import RawFiles
from graphrerank_papers.builders.registry import BUILDERS, build_dataset

ORIGIN = Origin("Set", "CC0", "https://host/page", "graphrerank 1 build=set")


def files_in(folder: Path) -> RawFiles:
    (folder / "raw.json").write_text("[]")
    return RawFiles([str(folder / "raw.json")], downloads=folder)


def draft(**parts: Any) -> Draft:
    whole: dict[str, Any] = {
        "documents": (document(f"d{i}", "", text, place=None) for i, text in enumerate(["one", " ", "three"])),
        "queries": [query("q0", "?", answer="a"), query("q1", "")],
        "qrels": {"dev": [Judgement("q0", "d0"), Judgement("q0", "d1"), Judgement("q1", "d2")], "test": []},
        "edges": [Edge("d0", "d2", "link"), Edge("d1", "d2", "link")],
    }
    return Draft(**whole | parts)


def test_a_folder_and_its_card(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.one("raw.json").json()
    out = tmp_path / "out"
    card = write_dataset(draft(notes=["A note."]), out, ORIGIN, files)
    assert card == json.loads((out / "dataset.json").read_text())
    assert card["counts"] == {
        "documents": 2, "queries": 1, "qrels": {"dev": {"queries": 1, "rows": 1}}, "edges": 1,
    }  # fmt: skip
    assert card["dropped"] == {"document: no text": 1, "query: no text": 1}
    assert card["sha256"] == {
        name: hash_files([out / name])
        for name in ("corpus.jsonl", "dropped.jsonl", "edges.tsv", "qrels/dev.tsv", "queries.jsonl")
    }
    assert card["files"][0]["name"] == "raw.json"
    page = (out / "README.md").read_text()
    assert all(text in page for text in ("# Set", "CC0", "- A note.", "raw.json", card["hash"], "| documents | 2 |"))
    again = write_dataset(draft(notes=["Another."]), tmp_path / "again", ORIGIN, files)
    assert again["hash"] == card["hash"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"documents": [document("d0", "", "x"), document("d0", "", "y")]}, "d0 a second time"),
        ({"qrels": {"dev": [Judgement("q0", "d9")]}}, "needed a corpus-id of the corpus, found 'd9'"),
        ({"documents": [document("d0", "", "half \ud800")]}, "needed whole characters"),
        ({"edges": [Edge("d0", "d0", "link")]}, "not a self-loop"),
    ],
)
def test_what_no_reader_takes_is_not_left(tmp_path: Path, part: dict[str, Any], message: str) -> None:
    files = files_in(tmp_path)
    with pytest.raises(ValueError, match=message):
        write_dataset(draft(**part), tmp_path / "out", ORIGIN, files)
    assert [path.name for path in tmp_path.iterdir()] == ["raw.json"]


def test_arguments_are_checked_before_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`build` must be one of"):
        build_dataset("spyder", ["x"], tmp_path / "out", downloads=tmp_path)
    with pytest.raises(ValueError, match=r"`options` of beaver must be of \['dialect', 'join_keys'\], got 'dialekt'"):
        build_dataset("beaver", ["x"], tmp_path / "out", downloads=tmp_path, options={"dialekt": "x"})
    with pytest.raises(ValueError, match="`from` must name the files"):
        build_dataset("beaver", [], tmp_path / "out", downloads=tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"`out` must be a new folder, got .*; nothing is overwritten"):
        build_dataset("beaver", ["x"], tmp_path / "out", downloads=tmp_path)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_every_builder_refuses_a_folder_of_other_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("nothing of it")
    with pytest.raises(ValueError, match=r"`from` must hold"):
        build_dataset(name, [str(tmp_path / "notes.txt")], tmp_path / "out", downloads=tmp_path)
    assert not (tmp_path / "out").exists()
