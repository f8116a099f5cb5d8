"""Each mutation of ``benchmarks/mutations.py`` finds its text, however the source is laid out."""

import ast
import runpy
from typing import Any

import pytest

from tests.support import ROOT

BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "mutations.py"))
MUTATIONS = BENCHMARK["MUTATIONS"]
SOURCE = "def cut(rank, top_k):\n    return keep(rank < top_k, limit=top_k)\n"
WRAPPED = "def cut(rank, top_k):\n    return keep(\n        rank < top_k,\n        limit=top_k,\n    )\n"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.file}: {mutation.kind}")
def test_the_source_contains_the_text_once_and_the_fault_is_python(mutation: Any) -> None:
    text = (ROOT / mutation.path).read_text(encoding="utf-8")
    broken = mutation.applied_to(text)
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text))


@pytest.mark.parametrize("text", [SOURCE, WRAPPED], ids=["one line", "wrapped"])
def test_layout_does_not_matter(text: str) -> None:
    mutation = BENCHMARK["Mutation"]("cut.py", "boundary", "keep(rank < top_k, limit=top_k)", "keep(rank <= top_k)")
    assert mutation.applied_to(text) == "def cut(rank, top_k):\n    return keep(rank <= top_k)\n"


@pytest.mark.parametrize(
    ("text", "found"), [("rank < top_k or rank<top_k", 2), ("rank < top_k2", 0), ("rank <= top_k", 0)]
)
def test_a_text_that_is_not_there_once_is_refused(text: str, found: int) -> None:
    with pytest.raises(ValueError, match=rf"cut\.py: needed exactly one 'rank < top_k', found {found}"):
        BENCHMARK["Mutation"]("cut.py", "boundary", "rank < top_k", "").applied_to(text)
