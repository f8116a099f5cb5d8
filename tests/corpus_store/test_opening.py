"""A corpus on disk gives what the same corpus gives in memory; what does not fit, or is a link, is refused."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphrerank.core import Queries
from graphrerank.corpus.mapped_pages import RESIDENT, MappedPages
from graphrerank.corpus_store.growth import NewEdge, compact_corpus, grow_corpus
from graphrerank.corpus_store.opening import END_BYTES, WHOLE_BYTES, Column, Columns, ColumnWriter, open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.features.text_match import TextMatch
from graphrerank.operators import bm25, expand, hybrid
from tests.corpus_store.conftest import RETRIEVERS, MakeDataset, assert_same, encoder
from tests.support.encoders import HashEncoder


def mapped(dataset: Dataset, folder: Path, **settings: object) -> Dataset:
    return open_corpus(prepare_corpus(dataset, folder, part_size=17, **settings), thorough=True)  # type: ignore[arg-type]


def test_it_holds_what_the_data_set_holds(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset()
    opened = mapped(dataset, tmp_path / "corpus")
    for name in ("indptr", "indices", "weight", "weight_by_type"):
        assert torch.equal(getattr(opened.graph, name), getattr(dataset.graph, name))
    assert list(opened.graph.texts) == dataset.graph.texts
    assert list(opened.graph.node_ids) == dataset.graph.node_ids
    assert (opened.name, opened.query_ids, opened.query_texts) == (dataset.name, dataset.query_ids, dataset.query_texts)
    for split, qrels in dataset.splits.items():
        for field in dataclasses.fields(qrels):
            assert torch.equal(getattr(opened.split(split), field.name), getattr(qrels, field.name))
    assert opened.fingerprint == dataset.fingerprint
    assert opened.answers == dataset.answers
    assert opened.summary() == dataset.summary()
    nodes = torch.tensor([5, 0, 5, 89])
    for found, expected in zip(opened.graph.neighbours(nodes), dataset.graph.neighbours(nodes), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(opened.graph.count_neighbours(nodes), dataset.graph.num_neighbours[nodes])
    assert torch.equal(opened.graph.num_neighbours, dataset.graph.num_neighbours)
    assert list(opened.graph.entities.names) == list(dataset.graph.entities.names)


@pytest.mark.parametrize("entities", [True, False])
def test_rankings_features_and_graphs_are_those_in_memory(
    make_dataset: MakeDataset, tmp_path: Path, entities: bool
) -> None:
    dataset = make_dataset(entities=entities)
    opened = mapped(dataset, tmp_path / "corpus", encoder=encoder(), vectors="float32")
    assert_same(opened, dataset, tmp_path / "cache", grown=False)


@pytest.mark.parametrize("name", ["bm25", "hybrid", "hybrid_expand", "expand"])
def test_pages_that_are_given_back_between_questions_change_nothing(
    make_dataset: MakeDataset, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make_dataset()
    kept, released = (mapped(dataset, tmp_path / "corpus", encoder=encoder()).graph for _ in range(2))
    queries = Queries(dataset.query_ids, dataset.query_texts, encoder().encode(dataset.query_texts))
    for module in (bm25, expand, hybrid):
        monkeypatch.setattr(module, "BLOCK_SCORES", 1)  # one question at a time
    expected = RETRIEVERS[name](kept).retrieve(queries)
    given_back: list[bool] = []
    release = MappedPages.release
    monkeypatch.setattr(released.pages, "_most_bytes", -1)
    monkeypatch.setattr(MappedPages, "release", lambda pages: given_back.append(release(pages)))
    found = RETRIEVERS[name](released).retrieve(queries)
    assert torch.equal(found.nodes, expected.nodes)
    assert torch.equal(found.scores, expected.scores)
    assert len(given_back) >= len(queries)
    assert all(given_back) or not RESIDENT.is_file()


@pytest.mark.parametrize("name", ["dense", "hybrid", "hybrid_expand"])
def test_float16_vectors_rank_as_the_same_numbers_in_memory(
    make_dataset: MakeDataset, tmp_path: Path, name: str
) -> None:
    dataset = make_dataset()
    opened = mapped(dataset, tmp_path / "corpus", encoder=encoder())
    assert opened.graph.encoded.dtype == torch.float16
    assert opened.fingerprint != dataset.fingerprint  # other vectors, other candidates in the cache
    rounded = dataset.graph.with_embedding(encoder().encode(dataset.graph.texts).half().float())
    queries = Queries(dataset.query_ids, dataset.query_texts, encoder().encode(dataset.query_texts))
    here, there = (RETRIEVERS[name](graph).retrieve(queries) for graph in (rounded, opened.graph))
    assert torch.equal(there.nodes, here.nodes)
    torch.testing.assert_close(there.features, here.features)


def test_a_corpus_without_words(make_dataset: MakeDataset, tmp_path: Path) -> None:
    dataset = make_dataset()
    empty = dataset.with_graph(dataset.graph.with_passages(texts=["the of"] * 90))
    opened = mapped(empty, tmp_path / "corpus")
    ranking = RETRIEVERS["bm25"](opened.graph).retrieve(Queries(["q"], ["word1 river"]))
    assert ranking.nodes.tolist() == [list(range(20))]
    match = TextMatch.of(opened.graph).score(["word1"], torch.arange(3), torch.zeros(2, 0).long(), torch.tensor([0, 3]))
    assert match.tolist() == [[0.0] * 3] * 3


def test_only_its_encoder_or_none_is_taken(make_dataset: MakeDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`index` needs an encoder"):
        mapped(make_dataset(), tmp_path / "corpus", index="ivf")
    opened = mapped(make_dataset(), tmp_path / "corpus", encoder=HashEncoder())
    prepared = prepare(opened, encoder=None, build_retriever=RETRIEVERS["bm25"], cache=tmp_path)
    assert prepared.dataset.graph.embedding is None
    other = HashEncoder(fingerprint="another")
    with pytest.raises(ValueError, match="`encoder` must be the encoder that data set 'drawn' was prepared with"):
        prepare(opened, encoder=other, build_retriever=RETRIEVERS["dense"], cache=tmp_path)


def test_a_damaged_or_missing_manifest_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected corpus\.json, which `graphrerank prepare DIR` writes last"):
        open_corpus(tmp_path)
    for content in ("{", "[]", '{"format": 9}', '{"format": 2}'):
        (tmp_path / "corpus.json").write_text(content)
        with pytest.raises(ValueError, match=r"corpus\.json"):
            open_corpus(tmp_path)


def test_no_change_of_a_manifest_is_a_traceback(make_dataset: MakeDataset, tmp_path: Path) -> None:
    folder = prepare_corpus(make_dataset(20), tmp_path / "corpus")
    content = json.loads((folder / "corpus.json").read_text())

    def changed(entry: Any) -> Iterator[Any]:
        yield from (None, -1, 2**70, "../..", [], [5, 10**12], {})
        if isinstance(entry, dict):
            yield from (entry | {key: other} for key in list(entry)[-9:] for other in changed(entry[key]))
            yield from ({name: entry[name] for name in entry if name != key} for key in entry)

    refused = 0
    for other in changed(content):
        (folder / "corpus.json").write_text(json.dumps(other))
        try:
            open_corpus(folder)
        except ValueError:
            refused += 1
    assert refused > 400
    (folder / "corpus.json").write_text(json.dumps(content | {"derived": {"mention_type": 2**63}}))
    with pytest.raises(ValueError, match=r"corpus\.json is damaged .*mention_type"):
        open_corpus(folder)


@pytest.mark.parametrize("has_grown", [False, True])
def test_every_missing_truncated_or_foreign_file_is_refused_by_name(
    make_dataset: MakeDataset, tmp_path: Path, has_grown: bool
) -> None:
    folder = prepare_corpus(make_dataset(30, entities=not has_grown), tmp_path / "corpus", encoder=HashEncoder())
    if has_grown:
        grow_corpus(folder, ["new"], ["A zebra"], remove=["d3"], encoder=HashEncoder())
    (columns,) = folder.glob("columns-*")
    manifest = (folder / "corpus.json").read_bytes()
    for name in json.loads(manifest)["columns"]:
        content = (columns / name).read_bytes()
        foreign = bytes(255 - byte for byte in content)
        for changed in (content[:-1], foreign):
            (columns / name).write_bytes(changed)
            if content:  # else nothing was removed or added yet
                with pytest.raises(ValueError, match=f"{name} is damaged, truncated or from another corpus"):
                    open_corpus(folder)
        (columns / name).unlink()
        with pytest.raises(ValueError, match=f"{name} is missing"):
            open_corpus(folder)
        (columns / name).write_bytes(content + b"of a stopped command")
    assert (folder / "corpus.json").read_bytes() == manifest
    shutil.move(folder, tmp_path / "moved")
    assert open_corpus(tmp_path / "moved", thorough=True).graph.num_nodes == 30 + has_grown


def written(folder: Path, numbers: np.ndarray, dtype: str = "<i4") -> dict[str, Column]:
    writer = ColumnWriter(folder, {})
    writer.write("a", dtype, [numbers])
    return writer.entries


@pytest.mark.parametrize("size", [3 * END_BYTES, WHOLE_BYTES + 1])
def test_damage_in_the_middle_of_a_large_file_is_found_by_reading_all(tmp_path: Path, size: int) -> None:
    numbers = np.zeros(size, dtype=np.uint8)
    entries = written(tmp_path, numbers, "|u1")
    numbers[END_BYTES + 5] = 1
    (tmp_path / "a").write_bytes(numbers.tobytes())
    if size > WHOLE_BYTES:
        assert Columns(tmp_path, entries).array("a", "|u1")[END_BYTES + 5] == 1
    with pytest.raises(ValueError, match="a is damaged"):
        Columns(tmp_path, entries, thorough=size > WHOLE_BYTES)


def test_blocks_are_joined_and_rows_appended(tmp_path: Path) -> None:
    """The number of hashed pieces grows with the logarithm of what is appended."""
    blocks = [np.arange(6).reshape(3, 2), np.zeros((0, 2), dtype=np.int64), np.arange(2).reshape(1, 2)]
    writer = ColumnWriter(tmp_path, {})
    writer.write("a", "<i4", iter(blocks), (2,))
    assert (writer.entries["a"].shape, writer.entries["a"].num_bytes) == ((4, 2), 32)
    old = Columns(tmp_path, dict(writer.entries)).array("a", "<i4", (2,))
    for number in range(20):
        writer.append("a", np.full((1, 2), number))
    columns = Columns(tmp_path, writer.entries, thorough=True)
    found = columns.array("a", "<i4", (2,))
    assert found.tolist() == [*np.concatenate(blocks).tolist(), *([number] * 2 for number in range(20))]
    assert found[:4].tolist() == old.tolist()
    assert len(writer.entries["a"].pieces) <= 5
    private = columns.array("a", "<i4", (2,), private=True)
    private[0] = 7
    assert found[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    columns = Columns(tmp_path, written(tmp_path, np.arange(3)))
    with pytest.raises(ValueError, match="expected a column 'a' of type <i8"):
        columns.array("a", "<i8")
    with pytest.raises(ValueError, match="expected a column 'b' of type <i8, got None"):
        columns.array("b", "<i8")


Uses = dict[str, Callable[[Path], object]]
USES: Uses = {
    "open": open_corpus,
    "add": lambda folder: grow_corpus(folder, ["new"], ["touch owned"], encoder=HashEncoder()),
    "remove": lambda folder: grow_corpus(folder, remove=["d1"]),
    "compact": compact_corpus,
}


@pytest.fixture
def folder(make_dataset: MakeDataset, tmp_path: Path) -> Path:
    return prepare_corpus(make_dataset(20, entities=False), tmp_path / "corpus", encoder=HashEncoder())


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_column_that_is_a_link_is_refused_and_its_target_kept(
    folder: Path, tmp_path: Path, use: Callable[[Path], object]
) -> None:
    """Even one that leads to the very bytes; once an added text was written to a shell's start file."""
    (columns,) = folder.glob("columns-*")
    for number, column in enumerate(sorted(columns.iterdir())):
        target = tmp_path / f"target{number}"
        content = column.read_bytes()
        target.write_bytes(content)
        column.unlink()
        column.symlink_to(target)
        with pytest.raises(ValueError, match=rf"{column.name} must not be a symbolic link"):
            use(folder)
        assert target.read_bytes() == content
        column.unlink()
        column.write_bytes(content)
    column.unlink()
    os.mkfifo(column)
    with pytest.raises(ValueError, match=f"{column.name} must be a regular file"):
        use(folder)


@pytest.mark.parametrize(
    ("use", "names"),
    [("add", ("added.tokens", "edges.moved", "texts.content")), ("remove", ("edges.moved", "removed"))],
)
def test_a_column_that_is_a_hard_link_is_not_written_through(
    folder: Path, tmp_path: Path, use: str, names: Sequence[str]
) -> None:
    """A column of no bytes has the hash of any file's first 0 bytes, and additions were written over that file."""
    (columns,) = folder.glob("columns-*")
    for name in names:
        (tmp_path / name).write_bytes(content := (columns / name).read_bytes() or b"a file of the user")
        (columns / name).unlink()
        os.link(tmp_path / name, columns / name)
        with pytest.raises(ValueError, match=r"must have a single hard link to be written to, got 2"):
            USES[use](folder)
        assert (tmp_path / name).read_bytes() == content
        (columns / name).unlink()
        (columns / name).write_bytes(content if name == "texts.content" else b"")
    assert open_corpus(folder, thorough=True).graph.num_nodes == 20


def rewritten(folder: Path, name: str, change: Callable[[np.ndarray], object]) -> None:
    """Change a column of a corpus folder, and its hashes in the manifest."""
    (columns,) = folder.glob("columns-*")
    manifest = json.loads((folder / "corpus.json").read_text())
    column = Column.model_validate(manifest["columns"][name])
    numbers = np.fromfile(columns / name, dtype=column.dtype).reshape(column.shape)
    change(numbers)
    writer = ColumnWriter(columns, {})
    writer.write(name, column.dtype, [numbers], column.shape[1:])
    manifest["columns"][name] = writer.entries[name].model_dump()
    (folder / "corpus.json").write_text(json.dumps(manifest))


POINTERS = ("edges.indptr", "node_ids.offsets", "texts.offsets", "token.ptr", "stem.ptr", "metadata.ptr")
NUMBERS = ("edges.indices", "token.postings", "stem.stems", "split0.query", "split0.node", "entities.indices")


@pytest.fixture(scope="module")
def prepared(make_dataset: MakeDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus folder that tests copy before they change it."""
    return prepare_corpus(make_dataset(20), tmp_path_factory.mktemp("prepared") / "corpus")


@pytest.mark.parametrize("use", ["open", "remove"])
@pytest.mark.parametrize("number", [-1, 2**30])
@pytest.mark.parametrize("name", [*POINTERS, *NUMBERS])
def test_numbers_out_of_range_are_refused_by_the_name_of_their_file(
    prepared: Path, tmp_path: Path, name: str, number: int, use: str
) -> None:
    folder = shutil.copytree(prepared, tmp_path / "corpus")

    def change(numbers: np.ndarray) -> None:
        numbers.reshape(len(numbers), -1)[len(numbers) // 2, 0] = number

    rewritten(folder, name, change)
    with pytest.raises(ValueError, match=rf"{name}: must (have|contain) .*got .*; prepare the corpus again"):
        USES[use](folder)


def test_rows_that_go_back_or_end_elsewhere_are_refused(make_dataset: MakeDataset, tmp_path: Path) -> None:
    folder = prepare_corpus(make_dataset(20), tmp_path / "corpus")
    rewritten(folder, "edges.indptr", lambda numbers: numbers.__setitem__(-1, numbers[-1] - 1))
    with pytest.raises(ValueError, match=r"edges\.indptr: must have rows from 0 to"):
        open_corpus(folder)


def test_moved_rows_of_a_corpus_that_has_grown_are_checked(folder: Path) -> None:
    grow_corpus(folder, ["new"], ["A zebra"], edges=[NewEdge("new", "d1")], encoder=HashEncoder())
    rewritten(folder, "edges.moved", lambda numbers: numbers.__setitem__((0, 2), 2**40))
    with pytest.raises(ValueError, match=r"edges\.indptr: must have rows in ascending order, got"):
        open_corpus(folder)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("linked", ["columns-*", "corpus.json"])
def test_a_linked_folder_of_columns_or_manifest_is_refused(
    folder: Path, tmp_path: Path, linked: str, use: Callable[[Path], object]
) -> None:
    (path,) = folder.glob(linked)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{path.name} must not be a symbolic link"):
        use(folder)


@pytest.mark.parametrize("name", ["..", "../elsewhere", "/etc", "columns/x", ".hidden", ""])
def test_no_name_in_a_manifest_is_a_path(folder: Path, name: str) -> None:
    path = folder / "corpus.json"
    manifest = json.loads(path.read_text())
    entry = manifest["columns"]["vectors"]
    for changed in ({"columns_folder": name}, {"columns": {**manifest["columns"], name: entry}}):
        path.write_text(json.dumps(manifest | changed))
        for use in USES.values():
            with pytest.raises(ValueError, match=r"corpus\.json is damaged .*must be a plain name"):
                use(folder)


@pytest.mark.parametrize("name", ["columns-x", "parts", "corpus.json"])
def test_a_preparation_writes_to_no_linked_folder(make_dataset: MakeDataset, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=f"got a folder with the symbolic link '{name}'"):
        prepare_corpus(make_dataset(20), tmp_path / "corpus")
    assert not list((tmp_path / "mine").iterdir())
