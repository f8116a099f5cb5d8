"""List public callables and records whose docstrings are incomplete.

Usage: ``python .ci/docstrings.py [PATH ...]``. It replaces Ruff's D417, which checks an ``Args:`` section only if there
is one:

- A public function, method or constructor with arguments describes each of them under ``Args:``. A constructor may do
  so in the docstring of its class or of ``__init__``. Variadic arguments may be described with or without their stars.
- A public function that returns a value has a ``Returns:`` or ``Yields:`` section, or a first line that begins with
  "Return", "Yield", "Whether" or "True". Properties need a docstring alone.
- A public record (dataclass, named tuple, typed dictionary or pydantic model) describes each public field, under
  ``Attributes:`` (``Args:`` for a dataclass that is only constructed), with a ``#:`` comment on the line above, or with
  ``Field(description=...)``.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes|Example|Examples|Note|Notes|References|Warning):\s*$")
RECORD_BASES = {"NamedTuple", "TypedDict", "BaseModel"}
#: First words of a summary that says what is returned.
RETURN_WORDS = re.compile(r"^(Return|Returns|Yield|Yields|Whether|True)\b")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Problem(NamedTuple):
    """Incomplete docstring.

    Attributes:
        path: File, relative to the root of the project.
        line: Line of the definition, 1-based.
        name: Qualified name within the file.
        message: Missing part.
    """

    path: Path
    line: int
    name: str
    message: str


class Source(NamedTuple):
    """Parsed file.

    Attributes:
        path: Path of the file.
        lines: Lines of the file.
        tree: Syntax tree.
    """

    path: Path
    lines: list[str]
    tree: ast.Module


def sections(docstring: str | None) -> dict[str, list[str]]:
    """Divide a docstring into its Google-style sections.

    Args:
        docstring: Cleaned docstring, or None.

    Returns:
        Names of the entries of each section, such as the arguments under ``Args``.
    """
    entries: dict[str, list[str]] = {}
    current = None
    for line in (docstring or "").splitlines():
        if match := SECTION.match(line):
            current = match[1]
            entries[current] = []
        elif current and (entry := re.match(r"^ {2,4}(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:(?:\s|$)", line)):
            entries[current] += [name.strip().lstrip("*") for name in entry[1].split(",")]
        elif line and not line.startswith(" "):
            current = None
    return entries


def arguments(function: FunctionNode, *, is_method: bool) -> list[str]:
    """Return the names of a function's public arguments, without ``self`` and ``cls``.

    Args:
        function: Definition of the function.
        is_method: Whether the function is defined in a class.
    """
    signature = function.args
    names = [argument.arg for argument in (*signature.posonlyargs, *signature.args)]
    is_static = any(ast.unparse(decorator) == "staticmethod" for decorator in function.decorator_list)
    if is_method and not is_static:
        names = names[1:]
    names += [argument.arg for argument in signature.kwonlyargs]
    names += [argument.arg for argument in (signature.vararg, signature.kwarg) if argument is not None]
    return [name for name in names if not name.startswith("_")]


def returns_value(function: FunctionNode) -> bool:
    """Return whether a function is annotated to return something other than None.

    Args:
        function: Definition of the function.
    """
    return function.returns is not None and ast.unparse(function.returns) not in ("None", "NoReturn", "Never", "Self")


def is_property(function: FunctionNode) -> bool:
    """Return whether a function is a property or its setter.

    Args:
        function: Definition of the function.
    """
    names = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(name.endswith(("property", ".setter")) or name == "overload" for name in names)


def is_record(definition: ast.ClassDef) -> bool:
    """Return whether a class is a dataclass, named tuple, typed dictionary or pydantic model.

    Args:
        definition: Definition of the class.
    """
    decorators = [ast.unparse(decorator) for decorator in definition.decorator_list]
    bases = {ast.unparse(base).split(".")[-1].split("[")[0] for base in definition.bases}
    return any("dataclass" in decorator for decorator in decorators) or bool(bases & RECORD_BASES)


class RecordClasses:
    """Classes of the project by name, to find the records among their base classes."""

    def __init__(self, sources: list[Source]) -> None:
        """Collect the classes.

        Args:
            sources: All files of the project, not only those that are checked.
        """
        self.classes: dict[str, ast.ClassDef] = {}
        for source in sources:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)

    def contains(self, definition: ast.ClassDef) -> bool:
        """Return whether a class or one of its base classes is a record.

        Args:
            definition: Definition of the class.
        """
        parents = [self.classes.get(ast.unparse(base).split(".")[-1].split("[")[0]) for base in definition.bases]
        return is_record(definition) or any(
            self.contains(parent) for parent in parents if parent is not None and parent is not definition
        )


def check_function(function: FunctionNode, owner: ast.ClassDef | None) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and message of each missing part of a function's docstring.

    Args:
        function: Definition of the function.
        owner: Class of a method, or None.
    """
    name = function.name if owner is None else f"{owner.name}.{function.name}"
    if is_property(function):
        return
    names = arguments(function, is_method=owner is not None)
    documented = sections(ast.get_docstring(function))
    described = set(documented.get("Args", []))
    if function.name == "__init__" and owner is not None:
        described |= set(sections(ast.get_docstring(owner)).get("Args", []))
    if missing := [argument for argument in names if argument not in described]:
        yield function.lineno, name, f"Args: without {', '.join(missing)}"
    unknown = sorted(set(documented.get("Args", [])) - set(names))
    if unknown:
        yield function.lineno, name, f"Args: describes {', '.join(unknown)}, which the signature lacks"
    summary = (ast.get_docstring(function) or "").split("\n")[0]
    is_described = bool(documented.keys() & {"Returns", "Yields"}) or bool(RETURN_WORDS.match(summary))
    if returns_value(function) and not is_described:
        yield function.lineno, name, "no Returns:"


def field_names(definition: ast.ClassDef) -> list[tuple[str, int]]:
    """Return the public fields of a record with their lines.

    Args:
        definition: Definition of the record.
    """
    fields = []
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            if "ClassVar" in ast.unparse(node.annotation) or "description=" in ast.unparse(node):
                continue
            fields.append((node.target.id, node.lineno))
    return fields


def check_record(definition: ast.ClassDef, source: Source) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and message of the fields of a record that have no description.

    Args:
        definition: Definition of the record.
        source: File of the record.
    """
    documented = sections(ast.get_docstring(definition))
    described = {*documented.get("Attributes", []), *documented.get("Args", [])}
    missing = [
        name
        for name, line in field_names(definition)
        if name not in described and not source.lines[line - 2].strip().startswith("#:")
    ]
    if missing:
        yield definition.lineno, definition.name, f"Attributes: without {', '.join(missing)}"


def check_source(source: Source, records: RecordClasses) -> Iterator[Problem]:
    """Yield the problems of a file.

    Args:
        source: File to check.
        records: Classes of the project.
    """
    path = source.path.relative_to(ROOT)

    def visit(body: list[ast.stmt], owner: ast.ClassDef | None) -> Iterator[tuple[int, str, str]]:
        for node in body:
            if isinstance(node, FunctionNode) and (node.name == "__init__" or not node.name.startswith("_")):
                yield from check_function(node, owner)
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if records.contains(node):
                    yield from check_record(node, source)
                yield from visit(node.body, node)

    for line, name, message in visit(source.tree.body, None):
        yield Problem(path, line, name, message)


def read_sources(paths: list[Path]) -> list[Source]:
    """Parse the Python files of some paths.

    Args:
        paths: Files, or folders that are searched for files.

    Returns:
        Parsed files, by path.
    """
    files = sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))})
    return [Source(file, (text := file.read_text()).splitlines(), ast.parse(text)) for file in files]


def main() -> int:
    """Print the problems, one per line.

    Returns:
        Exit status: 1 if there is a problem.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "src"], help="files or folders; default: src")
    paths = [path.resolve() for path in parser.parse_args().paths]
    records = RecordClasses(read_sources([ROOT / "src"]))
    problems = [problem for source in read_sources(paths) for problem in check_source(source, records)]
    for problem in problems:
        print(f"{problem.path}:{problem.line}: {problem.name}: {problem.message}")
    print(f"{len(problems)} incomplete docstrings", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
