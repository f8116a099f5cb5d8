"""The core of all builders: what is written, what is refused, and that nothing is left after an error."""

import json
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from graphrerank.installation.plugins import BUILDERS, find_builder
from graphrerank.utils.files import hash_files
from graphrerank_papers.builders.builder import Builder, DatasetWriter
from graphrerank_papers.builders.raw_files import RawFiles
from tests.papers.builders import test_beir, test_conversations, test_multi_hop, test_stark, test_tables
from tests.support.raw import Content, build, jsonl


def write_set(files: RawFiles, writer: DatasetWriter, *, note: str = "A note.") -> None:
    files.one("raw.json").json()
    for i, text in enumerate(["one", " ", "three"]):
        writer.document(f"d{i}", "", text, place=None)
    writer.query("q0", "?", answer="a")
    writer.query("q1", "")
    for query, doc in (("q0", "d0"), ("q0", "d1"), ("q1", "d2")):
        writer.judge("dev", query, doc)
    writer.judge("test", "q1", "d2")
    writer.edge("d0", "d2", "link")
    writer.edge("d1", "d2", "link")
    writer.notes.append(note)


def run(folder: Path, read: Callable[..., None], out: str = "out", **options: str) -> dict[str, object]:
    (folder / "raw.json").write_text("[]")
    build = Builder("set", "Set", "CC0", "https://host/page", read)
    return build([str(folder / "raw.json")], folder / out, downloads=folder, **options)


def test_a_folder_and_its_card(tmp_path: Path) -> None:
    out = tmp_path / "out"
    card = run(tmp_path, write_set)
    assert card == json.loads((out / "dataset.json").read_text())
    assert card["counts"] == {
        "documents": 2, "queries": 1, "qrels": {"dev": {"queries": 1, "rows": 1}}, "edges": 1,
    }  # fmt: skip
    assert card["dropped"] == {"document: no text": 1, "query: no text": 1}
    assert card["sha256"] == {
        name: hash_files([out / name])
        for name in ("corpus.jsonl", "dropped.jsonl", "edges.tsv", "qrels/dev.tsv", "queries.jsonl")
    }
    page = (out / "README.md").read_text()
    assert all(
        text in page for text in ("# Set", "CC0", "- A note.", "raw.json", str(card["hash"]), "| documents | 2 |")
    )
    again = run(tmp_path, write_set, "again", note="Another.")
    assert again["hash"] == card["hash"]
    assert str(again["built_by"]).endswith("build set --option note=Another.")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda writer: writer.document("d0", "", "y"), r"d0 \(duplicate\)"),
        (lambda writer: writer.judge("dev", "q0", "d9"), "expected an id of the corpus .*, got 'd9'"),
        (
            lambda writer: writer.document("d0", "", "half \ud800"),
            r"raw\.json: not in the format of Set: .* surrogates not allowed",
        ),
        (lambda writer: writer.edge("d0", "d9", "link"), "expected an id of the corpus"),
    ],
)
def test_a_folder_that_cannot_be_read_is_not_left(
    tmp_path: Path, spoil: Callable[[DatasetWriter], None], message: str
) -> None:
    def read(files: RawFiles, writer: DatasetWriter) -> None:
        write_set(files, writer)
        spoil(writer)

    with pytest.raises(ValueError, match=message):
        run(tmp_path, read)
    assert [path.name for path in tmp_path.iterdir()] == ["raw.json"]


def test_arguments_are_checked_before_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`build` must be one of"):
        find_builder("spyder")
    beaver = find_builder("beaver")
    with pytest.raises(ValueError, match=r"`options` of beaver must be among \['dialect'\], got 'dialekt'"):
        beaver(["x"], tmp_path / "out", downloads=tmp_path, dialekt="x")
    with pytest.raises(ValueError, match=r"`from` must contain exactly one file \*tables\*\.json, got no match"):
        beaver([], tmp_path / "out", downloads=tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"`out` must be a new or empty folder, got .* not overwritten"):
        beaver(["x"], tmp_path / "out", downloads=tmp_path)


@pytest.mark.parametrize(
    "name", sorted(entry.name for entry in entry_points(group=BUILDERS) if "papers" in entry.value)
)
def test_every_builder_refuses_a_folder_of_other_files(tmp_path: Path, name: str) -> None:
    builder = find_builder(name)
    assert isinstance(builder, Builder)
    assert builder.name == name
    (tmp_path / "notes.txt").write_text("nothing of it")
    with pytest.raises(ValueError, match=r"`from` must contain"):
        builder([str(tmp_path / "notes.txt")], tmp_path / "out", downloads=tmp_path)
    assert not (tmp_path / "out").exists()


HOTPOT, MUSIQUE = test_multi_hop.HOTPOT[0], test_multi_hop.MUSIQUE[0]
LOCOMO, LONGMEMEVAL = test_conversations.LOCOMO, test_conversations.FIRST


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("beir", test_beir.FILES | {"set/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t1\tx\n"},
         r"test\.tsv, line 2: not in the format of A data set of BEIR: invalid literal for int"),
        ("beir", test_beir.FILES | {"set/corpus.jsonl": '{"_id": 1, "text": "x"}\n'},
         r"corpus\.jsonl, line 1: .* `_id`, `title` and `text` must be strings"),
        ("locomo", {"locomo10.json": [LOCOMO | {"conversation": {"session_1": [{"speaker": "Ann"}]}}]},
         r"locomo10\.json, entry 0: not in the format of LoCoMo: KeyError"),
        ("longmemeval", {"longmemeval_s.json": [LONGMEMEVAL | {"haystack_session_ids": ["s1"]}]},
         r"longmemeval_s\.json, entry 0: not in the format of LongMemEval"),
        ("stark", test_stark.FILES | {"qa/prime/stark_qa/stark_qa.csv": "id,query,answer_ids\n0,?,__import__('os')\n"},
         r"stark_qa\.csv, line 2: not in the format of STaRK"),
        ("hotpotqa", {"hotpot_dev.json": [HOTPOT | {"context": [["Ant"]]}]}, r"hotpot_dev\.json, entry 0: not in"),
        ("musique", {"musique_ans_dev.jsonl": jsonl(MUSIQUE | {"paragraphs": [1]})},
         r"musique_ans_dev\.jsonl, line 1: not in the format of MuSiQue: TypeError"),
        ("spider", test_tables.SPIDER | {"spider/tables.json": [test_tables.PETS | {"column_types": ["text"]}]},
         r"tables\.json, entry 0: not in the format of Spider"),
        ("spider", test_tables.SPIDER | {"spider/train_spider.json": [{"question": "?"}]},
         r"train_spider\.json, entry 0: .* KeyError\('db_id'\)"),
        ("spider", test_tables.SPIDER | {"spider/test_tables.json": [test_tables.CARS | {"db_id": "pet_shop"}]},
         r"test_tables\.json, entry 0: .* got two different ones for 'pet_shop'"),
    ],
)  # fmt: skip
def test_files_of_another_format_are_named_by_place(
    tmp_path: Path, name: str, files: dict[str, Content], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(tmp_path, name, files)
    assert not (tmp_path / "out").exists()
