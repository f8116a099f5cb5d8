"""Encodings of files."""

import pytest

from graphrerank.data.documents.document import UnreadableError
from graphrerank.data.documents.formats import FORMATS


def test_encodings_that_a_file_names(tmp_path):
    (tmp_path / "a.txt").write_bytes("Größe".encode("utf-16"))
    (tmp_path / "b.html").write_bytes('<meta charset="iso-8859-1"><p>Größe'.encode("latin-1"))
    (tmp_path / "c.html").write_bytes(b"<meta charset='hex'><p>00")
    for name in ("a.txt", "b.html"):
        (document,) = FORMATS[(tmp_path / name).suffix](tmp_path / name, name)
        assert document.sections[0].text == "Größe"
    with pytest.raises(UnreadableError, match="not HEX"):
        FORMATS[".html"](tmp_path / "c.html", "c.html")
