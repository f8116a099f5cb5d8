"""What a notebook shows without its pictures and its data."""

import json

import pytest

from graphrerank_documents.document import Document
from graphrerank_documents.formats.notebook import read_notebook
from graphrerank_documents.index_folder import index_folder
from graphrerank_documents.reading import read_content
from tests.support.documents import edges_of
from tests.support.files import write_files

CELLS = [
    {"cell_type": "raw", "source": "---\ntitle: Pressure\n---"},
    {"cell_type": "markdown", "source": ["# Analysis\n", "\n", "Mean of [pressure](p.md) is 4 bar."]},
    {"cell_type": "code", "source": "    a = 1\n\nb", "outputs": [
        {"output_type": "stream", "text": ["\x1b[31m4\x1b[0m\n"]},
        {"output_type": "display_data", "data": {"image/png": "QUJD", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/plain": "1 " * 999}},
        {"output_type": "error", "traceback": ["x"]},
    ]},
    {"cell_type": "markdown", "source": "# Analysis\n"},
]  # fmt: skip


def read(notebook: object) -> Document:
    (document,) = read_notebook(json.dumps(notebook).encode(), "a/n.ipynb")
    return document


def test_cells():
    document = read({"cells": CELLS, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    first, second = document.sections
    assert (document.title, first.heading, first.line, first.end) == ("Pressure", "Analysis", 0, 0)
    assert [(block.text, block.is_whole, block.line) for block in first.blocks] == [
        ("Mean of pressure is 4 bar.", False, 0), ("    a = 1\n\nb", True, 0), ("4", True, 0),
    ]  # fmt: skip
    assert [(link.target, link.line) for link in first.blocks[0].links] == [("p.md", 0)]
    assert second.anchors == ("analysis-1", "analysis_1")


def code(source: str) -> dict[str, object]:
    return {"cell_type": "code", "source": source}


def test_imports_and_calls_of_code_cells_lead_to_the_modules_of_the_folder(tmp_path):
    cells = [
        code("%matplotlib inline\n!pip install x\nimport numpy as np\nfrom plant.pump import start\n"),
        {"cell_type": "markdown", "source": "# Use\n\n```python\nimport plant.tank\n```"},
        code("def own(): ...\nown()\nstart(4)\nhelper.report()"),
        code("%%bash\nimport plant.tank"),
        code("%%time\nimport helper"),
    ]
    files = {
        "pyproject.toml": '[project]\nname = "plant"\n',
        "src/plant/__init__.py": "",
        "src/plant/pump.py": "def start(bar):\n    return bar\n",
        "src/plant/tank.py": "SIZE = 1\n",
        "notebooks/use.ipynb": json.dumps({"cells": cells, "metadata": {"language_info": {"name": "python"}}}),
        "notebooks/helper.py": "def report():\n    return 1\n",
        "notebooks/other.py": "import use\n",
        "notebooks/r.ipynb": json.dumps(
            {"cells": [code("import helper")], "metadata": {"kernelspec": {"language": "R"}}}
        ),
    }
    made = index_folder(write_files(tmp_path / "source", files), tmp_path / "out", workers=1)
    assert set(edges_of(tmp_path / "out")) == {
        ("notebooks/use.ipynb", "src/plant/pump.py#start", "import"),
        ("notebooks/use.ipynb#use", "src/plant/pump.py#start", "call"),
        ("notebooks/use.ipynb#use", "notebooks/helper.py#report", "call"),
        ("notebooks/use.ipynb#use", "notebooks/helper.py", "import"),
    }
    assert (made.links.by_type["import"].within, made.links.by_type["import"].resolved) == (2, 2)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"nothing", b"[" * 100_000, b'{"nbformat": 4}', b'{"nbformat": 4, "cells": [1]}',
     b'{"nbformat": 1, "nbformat_minor": 0}', b'{"nbformat": 99, "cells": {"a": 1}}',
     b'{"a":' * 50_000, b'{"nbformat": 3, "worksheets": 4}'],
)  # fmt: skip
def test_what_is_no_notebook(content):
    assert read_content(content, "a.ipynb").reason.startswith("cannot be parsed")
