"""Archives: the documents in them, and the limits."""

import zlib
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats import zip_archive
from graphrerank_documents.formats.zip_archive import read_zip
from graphrerank_documents.index_folder import index_folder
from tests.support.documents import edges_of
from tests.support.files import zip_of

WIKI = {
    "wiki/a.md": "# A\n\nSee [b](b.md#use) and [[C]].\n",
    "wiki/b.md": "# B\n\nText.\n\n## Use\n\nUse it.\n",
    "wiki/C.md": "# C\n\nText.\n",
}


def damage_of(documents: list[Document]) -> dict[str, str]:
    return {document.name: reason for document in documents for reason in document.damage}


def test_documents_of_an_archive_link_to_each_other(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "export.zip").write_bytes(zip_of(WIKI | {"p.png": "x", "bad.xml": "<"}))
    made = index_folder(source, tmp_path / "out", workers=1)
    edges = {edge[:2] for edge in edges_of(tmp_path / "out")}
    assert edges == {
        ("export.zip#wiki/a.md#a", "export.zip#wiki/b.md#use"),
        ("export.zip#wiki/a.md#a", "export.zip#wiki/C.md#c"),
    }
    assert made.unread == {"in a ZIP archive: not XML": ["export.zip#bad.xml"]}
    assert "omitted: 1 files in ZIP archives in unknown formats" in str(made)


def test_unsafe_and_nested_files_are_named_and_others_counted() -> None:
    files = dict.fromkeys(
        (
            "../up.md",
            "/etc/x.md",
            "C:/x.md",
            "a\\b.md",
            "in.zip",
            ".git/x.md",
            "__MACOSX/._a.md",
            "dist/x.md",
            "a.lock",
        ),
        "x",
    )
    documents = read_zip(zip_of(files | {"yarn.lock": "x", "fine.md": "x"}), "a.zip")
    assert damage_of(documents) == {
        "a.zip#../up.md": "in a ZIP archive: unsafe path",
        "a.zip#/etc/x.md": "in a ZIP archive: unsafe path",
        "a.zip#C:/x.md": "in a ZIP archive: unsafe path",
        "a.zip#a\\b.md": "in a ZIP archive: unsafe path",
        "a.zip#in.zip": "in a ZIP archive: another archive",
    }
    assert [document.name for document in documents if document.sections] == ["a.zip#fine.md"]
    assert documents[0].dropped == {
        "files in ZIP archives that are hidden, installed, built or generated": 4,
        "files in ZIP archives in unknown formats": 1,
    }


def test_archive_bombs_and_encrypted_archives_are_refused() -> None:
    with pytest.raises(UnreadableError, match="too large"):
        read_zip(zip_of({"a.txt": b"a" * 20_000_000}), "a.zip")
    content = bytearray(zip_of({"a.txt": "a"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(UnreadableError, match="encrypted"):
        read_zip(bytes(content), "a.zip")
    with pytest.raises(UnreadableError, match="not ZIP"):
        read_zip(b"PK", "a.zip")


def test_limits_of_one_file_and_of_the_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "MAX_FILES", 2)
    monkeypatch.setattr(zip_archive, "MAX_BYTES", 10)
    documents = read_zip(zip_of({"a.md": "x" * 11, "b.md": "x", "c.md": "x"}), "a.zip")
    assert damage_of(documents) == {"a.zip#a.md": "in a ZIP archive: larger than 0 MB"}
    assert sum(documents[0].dropped.values()) == 1


def test_a_damaged_file_in_an_archive_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    content = zip_of({"a.md": "some text", "b.md": "x"}).replace(zlib.compress(b"some text", 6)[2:-4], b"\xff" * 11)
    documents = read_zip(content, "a.zip")
    assert damage_of(documents) == {"a.zip#a.md": "in a ZIP archive: damaged, or compressed by an unknown method"}
    assert [document.name for document in documents if document.sections] == ["a.zip#b.md"]


def test_an_archive_without_documents_has_no_text(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.zip").write_bytes(zip_of({"p.png": "x"}))
    (tmp_path / "source" / "b.md").write_text("x")
    made = index_folder(tmp_path / "source", tmp_path / "out", workers=1)
    assert made.unread == {"no text": ["a.zip"]}


def test_the_last_of_the_files_with_one_name_is_read() -> None:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.writestr("a.md", "old text")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.md", "new text")
    (document,) = read_zip(buffer.getvalue(), "a.zip")
    assert document.sections[0].blocks[0].text == "new text"
    assert document.dropped == {"files in ZIP archives that later ones of the same name replace": 1}


def test_a_folder_named_like_a_path_in_an_archive(tmp_path: Path) -> None:
    """Ids of passages are unique, whatever files are called."""
    (tmp_path / "source" / "a.zip#x").mkdir(parents=True)
    (tmp_path / "source" / "a.zip").write_bytes(zip_of({"x/b.md": "# B\n\nfrom the archive"}))
    (tmp_path / "source" / "a.zip#x" / "b.md").write_text("# B\n\nfrom the folder")
    made = index_folder(tmp_path / "source", tmp_path / "out", workers=1)
    assert (made.passages, made.unread) == (1, {"another document has the same name": ["a.zip#x/b.md"]})
