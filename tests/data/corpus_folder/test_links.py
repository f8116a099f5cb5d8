"""No file of a corpus folder is opened or written through a symbolic link, and no name in its manifest is a path."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from graphrerank.data.corpus_folder.growth import compact_corpus, grow_corpus
from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from tests.data.corpus_folder.conftest import MakeDataset
from tests.support.encoders import HashEncoder

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
        with pytest.raises(ValueError, match=rf"{column.name}: must not be a symbolic link"):
            use(folder)
        assert target.read_bytes() == content
        column.unlink()
        column.write_bytes(content)
    column.unlink()
    os.mkfifo(column)
    with pytest.raises(ValueError, match=f"{column.name}: must be a regular file"):
        use(folder)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("linked", ["columns-*", "corpus.json"])
def test_a_linked_folder_of_columns_or_manifest_is_refused(
    folder: Path, tmp_path: Path, linked: str, use: Callable[[Path], object]
) -> None:
    (path,) = folder.glob(linked)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{path.name}: must not be a symbolic link"):
        use(folder)


@pytest.mark.parametrize("name", ["..", "../elsewhere", "/etc", "columns/x", ".hidden", ""])
def test_no_name_in_a_manifest_is_a_path(folder: Path, name: str) -> None:
    path = folder / "corpus.json"
    manifest = json.loads(path.read_text())
    entry = manifest["columns"]["vectors"]
    for changed in ({"columns_folder": name}, {"columns": {**manifest["columns"], name: entry}}):
        path.write_text(json.dumps(manifest | changed))
        for use in USES.values():
            with pytest.raises(ValueError, match=r"corpus\.json: is damaged .*must be a plain name"):
                use(folder)


@pytest.mark.parametrize("name", ["columns-x", "parts", "corpus.json"])
def test_a_preparation_writes_to_no_linked_folder(make_dataset: MakeDataset, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=f"found the symbolic link '{name}' in it"):
        prepare_corpus(make_dataset(20), tmp_path / "corpus")
    assert not list((tmp_path / "mine").iterdir())
