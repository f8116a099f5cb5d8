"""Files that once took time quadratic in their length are read within the limits of the processes that read."""

from pathlib import Path

import pytest

from graphrerank_documents.reading import read_files

CASES = {  # file: content, which took minutes
    "one line.md": "a [link](b.md), `code`, *emphasis* and ~~more~~ in a sentence. " * 60_000,
    "title.adoc": "= a" + " " * 1_500_000 + "b\n\nText.\n",
    "targets.rst": "Title\n=====\n\n" + ".. _t: x\n" * 30_000,
    "outline.md": "# A\n\n    - a\n" + "      - - - b\n" * 20_000,
    "comment.md": "<!--" + "\n" * 200_000,
    "comments.js": "/*\n" * 160_000,
    "lines.py": "\\\n" * 240_000,
    "ended.py": "class A(" + "\\\n" * 240_000 + "a",
    "quotes.py": '"""' + "# a\n" * 120_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_file_is_read_within_the_limits(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(CASES[name])
    (file,) = read_files(tmp_path, [name], workers=1)
    assert file.reason == ""
