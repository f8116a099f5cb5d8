import pytest

from graphrerank.data.documents.document import Document
from graphrerank.data.documents.formats import FORMATS


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file of a name."""

    def read_content(name: str, content: str) -> list[Document]:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return FORMATS[path.suffix](path, name)

    return read_content
