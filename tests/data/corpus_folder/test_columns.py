"""Files of a corpus folder: each that is not what was written is refused by name."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from graphrerank.data.corpus_folder.growth import grow_corpus
from graphrerank.data.corpus_folder.opening import END_BYTES, Column, Columns, ColumnWriter, open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from tests.data.corpus_folder.conftest import MakeDataset
from tests.support.encoders import HashEncoder


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
        for changed, message in ((content[:-1], "must have"), (foreign, "is damaged or another corpus's")):
            (columns / name).write_bytes(changed)
            if content:  # else nothing was removed or added yet
                with pytest.raises(ValueError, match=f"{name}: {message}"):
                    open_corpus(folder)
        (columns / name).unlink()
        with pytest.raises(ValueError, match=f"{name}: is missing"):
            open_corpus(folder)
        (columns / name).write_bytes(content + b"of a stopped command")
    open_corpus(folder, thorough=True)
    assert (folder / "corpus.json").read_bytes() == manifest


def written(folder: Path, numbers: np.ndarray, dtype: str = "<i4") -> dict[str, Column]:
    writer = ColumnWriter(folder, {})
    writer.write("a", dtype, [numbers])
    return writer.entries


def test_damage_in_the_middle_is_found_by_reading_all(tmp_path: Path) -> None:
    numbers = np.zeros(3 * END_BYTES, dtype=np.uint8)
    entries = written(tmp_path, numbers, "|u1")
    numbers[END_BYTES + 5] = 1
    (tmp_path / "a").write_bytes(numbers.tobytes())
    assert Columns(tmp_path, entries).array("a", "|u1")[END_BYTES + 5] == 1
    with pytest.raises(ValueError, match="a: is damaged"):
        Columns(tmp_path, entries, thorough=True)


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


@pytest.mark.parametrize(
    "changed", [{"dtype": "<f8"}, {"shape": [-1]}, {"shape": []}, {"shape": None}, {"shape": [4]}, {"ends": 3}], ids=str
)
def test_malformed_entries_are_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    entry = written(tmp_path, np.arange(3))["a"].model_dump()
    with pytest.raises(ValidationError, match="pieces must have 16 bytes" if changed == {"shape": [4]} else ""):
        Column.model_validate(entry | changed)


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    columns = Columns(tmp_path, written(tmp_path, np.arange(3)))
    with pytest.raises(ValueError, match="needed a column 'a' of type <i8"):
        columns.array("a", "<i8")
    with pytest.raises(ValueError, match="needed a column 'b' of type <i8, found None"):
        columns.array("b", "<i8")


def test_the_folder_may_be_moved(make_dataset: MakeDataset, tmp_path: Path) -> None:
    folder = prepare_corpus(make_dataset(), tmp_path / "corpus")
    shutil.move(folder, tmp_path / "moved")
    assert open_corpus(tmp_path / "moved").graph.num_nodes == 90
