"""Names are unique, and each mutation of ``benchmarks/mutations.py`` finds its text in any layout of the source."""

import ast
import runpy
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
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


SOURCES = sorted((ROOT / "src").rglob("*.py"))
SHARED_CLASS_NAMES: dict[str, str] = {}  # class name -> why several classes have it
SHARED_FUNCTION_NAMES = {  # name of a public function -> why several modules define it
    "main": "each module of a command has one: the protocol of `graphrerank.commands`",
    "parser": "each module of a command without Hydra has one: its arguments",
    "run": "each module of a command with Hydra has one: its job",
    "evaluate": "the body of the command calls the library's function",
    "diagnose": "the body of the command calls the library's function",
}


def defined_more_than_once(paths: Iterable[Path], kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> set[str]:
    """Return names of classes anywhere, or of public functions of modules, that several places define."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree) if kind is ast.ClassDef else tree.body:
            if isinstance(node, kind) and (kind is ast.ClassDef or not node.name.startswith("_")):
                places[node.name].append(f"{path}:{node.lineno}")
    return {name for name, where in places.items() if len(where) > 1}


def test_no_two_classes_have_one_name() -> None:
    assert defined_more_than_once(SOURCES, ast.ClassDef) == set(SHARED_CLASS_NAMES)


def test_no_two_public_functions_have_one_name() -> None:
    assert defined_more_than_once(SOURCES, ast.FunctionDef) <= set(SHARED_FUNCTION_NAMES)


def test_a_name_that_two_files_define_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Document:\n    class Step: ...\ndef read(): ...\ndef _own(): ...\n")
    (tmp_path / "b.py").write_text("class Document: ...\nclass Step: ...\ndef read(): ...\ndef _own(): ...\n")
    assert defined_more_than_once(tmp_path.glob("*.py"), ast.ClassDef) == {"Document", "Step"}
    assert defined_more_than_once(tmp_path.glob("*.py"), ast.FunctionDef) == {"read"}
