"""Files of a corpus folder: each that is not what was written is refused by name."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from graphrerank.data.corpus_folder.columns import END_BYTES, Columns, write_column
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from tests.data.corpus_folder.conftest import MakeDataset
from tests.support.encoders import HashEncoder


def columns_of(folder: Path) -> dict[str, Path]:
    (columns,) = folder.glob("columns-*")
    return {file.name: file for file in columns.iterdir()}


def test_every_missing_or_truncated_file_is_refused_by_name(make_dataset: MakeDataset, tmp_path: Path) -> None:
    folder = prepare_corpus(make_dataset(), tmp_path / "corpus", encoder=HashEncoder())
    files = columns_of(folder)
    assert len(files) == len(json.loads((folder / "corpus.json").read_text())["columns"])
    for name, file in files.items():
        content = file.read_bytes()
        if content:  # nothing was removed or added yet
            file.write_bytes(content[:-1])
            needed = rf"{name}: must have {len(content):,} bytes, has {len(content) - 1:,}"
            with pytest.raises(ValueError, match=needed):
                open_corpus(folder)
        file.unlink()
        with pytest.raises(ValueError, match=f"{name}: is missing"):
            open_corpus(folder)
        file.write_bytes(content)
    open_corpus(folder)


def test_every_file_of_another_corpus_is_refused_by_name(make_dataset: MakeDataset, tmp_path: Path) -> None:
    folder = prepare_corpus(make_dataset(), tmp_path / "corpus", encoder=HashEncoder())
    for name, file in columns_of(folder).items():
        if not (content := file.read_bytes()):
            continue
        foreign = bytes(255 - byte for byte in content)
        file.write_bytes(foreign)
        with pytest.raises(ValueError, match=f"{name}: is damaged or another corpus's"):
            open_corpus(folder)
        file.write_bytes(content)


def test_damage_in_the_middle_is_found_by_reading_all(tmp_path: Path) -> None:
    numbers = np.zeros(3 * END_BYTES, dtype=np.uint8)
    column = write_column(tmp_path, "numbers", "|u1", (), [numbers])
    numbers[END_BYTES + 5] = 1
    (tmp_path / "numbers").write_bytes(numbers.tobytes())
    entries = {"numbers": column.to_json()}
    assert Columns(tmp_path, entries).array("numbers", "|u1")[END_BYTES + 5] == 1
    with pytest.raises(ValueError, match="numbers: is damaged"):
        Columns(tmp_path, entries, thorough=True)


def test_blocks_are_joined(tmp_path: Path) -> None:
    blocks = [np.arange(6).reshape(3, 2), np.zeros((0, 2), dtype=np.int64), np.arange(2).reshape(1, 2)]
    column = write_column(tmp_path, "pairs", "<i4", (2,), iter(blocks))
    assert (column.shape, column.num_bytes) == ((4, 2), 32)
    found = Columns(tmp_path, {"pairs": column.to_json()}).array("pairs", "<i4", (2,))
    assert found.tolist() == np.concatenate(blocks).tolist()
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize(
    "changed", [{"dtype": "<f8"}, {"shape": [-1]}, {"shape": None}, {"sha256": 3, "dtype": None}], ids=str
)
def test_malformed_entries_are_refused_by_name(tmp_path: Path, changed: dict[str, object]) -> None:
    entry = {**write_column(tmp_path, "a", "<i4", (), [np.arange(3)]).to_json(), **changed}
    with pytest.raises(ValueError, match="the manifest's column 'a' must"):
        Columns(tmp_path, {"a": entry})
    with pytest.raises(ValueError, match=r"column '\.\./a' must"):
        Columns(tmp_path, {"../a": write_column(tmp_path, "a", "<i4", (), [np.arange(3)]).to_json()})


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    columns = Columns(tmp_path, {"a": write_column(tmp_path, "a", "<i4", (), [np.arange(3)]).to_json()})
    with pytest.raises(ValueError, match="needed a column 'a' of type <i8"):
        columns.array("a", "<i8")
    with pytest.raises(ValueError, match="needed a column 'b' of type <i8, found None"):
        columns.array("b", "<i8")


def test_the_folder_may_be_moved(make_dataset: MakeDataset, tmp_path: Path) -> None:
    folder = prepare_corpus(make_dataset(), tmp_path / "corpus")
    shutil.move(folder, tmp_path / "moved")
    assert open_corpus(tmp_path / "moved").graph.num_nodes == 90
