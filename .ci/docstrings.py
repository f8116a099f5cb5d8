"""List public callables and records whose docstrings are incomplete.

Usage: ``python .ci/docstrings.py [PATH ...]``. It replaces Ruff's D417, which checks an ``Args:`` section only if there
is one and knows no references:

- A public function, method or constructor with arguments describes each of them under ``Args:``. A constructor may do
  so in the docstring of its class or of ``__init__``. Variadic arguments may be described with or without their stars.
- A public function that returns a value has a ``Returns:`` or ``Yields:`` section, or a first line that begins with
  "Return", "Yield", "Whether" or "True". Properties need a docstring alone.
- A public record (dataclass, named tuple, typed dictionary or pydantic model) describes each public field, under
  ``Attributes:`` (``Args:`` for a dataclass that is only constructed), with a ``#:`` comment on the line above, or with
  ``Field(description=...)``.

A function may refer to another one with the same arguments, such as the method that it overrides, in the place of the
sections: "See :meth:`~package.Base.method` for the arguments and the result." The reference must describe each argument
that the function does not describe itself. ``:class:`` refers to the ``__call__`` of a protocol. A method of another
package may be referred to by a class that inherits from that package. Arguments that the decorator ``arguments_from``
takes from the docstrings of other functions, classes and records are described, too.
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
ROOT_PACKAGE = "graphrerank"  # prefix of the packages of this project
RECORD_BASES = {"NamedTuple", "TypedDict", "BaseModel"}
#: First words of a summary that says what is returned.
RETURN_WORDS = re.compile(r"^(Return|Returns|Yield|Yields|Whether|True)\b")
#: Reference to the function that describes the arguments, with the part of the documentation that is found there.
REFERENCE = re.compile(
    r"\bSee :(?:meth|func|class):`~?([\w.]+)` for the (arguments|other arguments|result)(?: and the (result))?\."
)

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


class Reference(NamedTuple):
    """Parts of a function's documentation that another function has.

    Attributes:
        arguments: Names of the arguments that the other function describes.
        has_result: Whether the reference names the result and the other function describes it.
        problem: What is wrong with the reference. Empty if nothing is.
    """

    arguments: frozenset[str] = frozenset()
    has_result: bool = False
    problem: str = ""


class Definitions:
    """Classes and functions of the project by name, to look up what docstrings refer to."""

    def __init__(self, sources: list[Source]) -> None:
        """Collect the definitions.

        Args:
            sources: All files of the project, not only those that are checked.
        """
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, FunctionNode] = {}
        for source in sources:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
            for node in source.tree.body:
                if isinstance(node, FunctionNode):
                    self.functions.setdefault(node.name, node)

    def ancestors(self, definition: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """Yield the base classes that this project defines, nearest first.

        Args:
            definition: Definition of the class.
        """
        for base in definition.bases:
            name = ast.unparse(base).split(".")[-1].split("[")[0]
            parent = self.classes.get(name)
            if parent is not None and parent is not definition:
                yield parent
                yield from self.ancestors(parent)

    def find(self, path: str) -> FunctionNode | None:
        """Return the function or method that an import path names, or None.

        Args:
            path: Import path. That of a class names its ``__call__``.
        """
        *_, owner, name = ["", *path.split(".")]
        methods = self.classes.get(name, self.classes.get(owner))
        wanted = "__call__" if name in self.classes else name
        if methods is None:
            return self.functions.get(name)
        for definition in (methods, *self.ancestors(methods)):
            for node in definition.body:
                if isinstance(node, FunctionNode) and node.name == wanted:
                    return node
        return None

    def has_foreign_base(self, definition: ast.ClassDef | None) -> bool:
        """Return whether a class inherits from a class of another package.

        Args:
            definition: Definition of the class, or None.
        """
        if definition is None:
            return False
        names = [ast.unparse(base).split(".")[-1].split("[")[0] for base in definition.bases]
        return any(
            self.has_foreign_base(self.classes[name]) if name in self.classes else name != "object" for name in names
        )

    def reference(self, docstring: str | None, owner: ast.ClassDef | None) -> Reference:
        """Return what a docstring leaves to another function.

        Args:
            docstring: Docstring of the function, or None.
            owner: Class of a method, or None.
        """
        match = REFERENCE.search(" ".join((docstring or "").split()))
        if match is None:
            return Reference()
        path, has_result = match[1], "result" in (match[2], match[3])
        if not path.startswith(ROOT_PACKAGE):
            known = frozenset(["*"]) if self.has_foreign_base(owner) else frozenset()
            return Reference(known, has_result, "" if known else f"refers to {path}, which no base class defines")
        function = self.find(path)
        if function is None:
            return Reference(problem=f"refers to {path}, which does not exist")
        described = sections(ast.get_docstring(function))
        names = frozenset(described.get("Args", []))
        return Reference(names, has_result and bool(described.keys() & {"Returns", "Yields"}))

    def decorated(self, decorated: FunctionNode | ast.ClassDef) -> set[str]:
        """Return the names of the arguments that the decorator ``arguments_from`` describes.

        Args:
            decorated: Definition of a function or class.
        """
        names = set()
        for decorator in decorated.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "arguments_from":
                for source in decorator.args:
                    path = ast.unparse(source)
                    definition = self.classes.get(path.split(".")[-1]) or self.find(path)
                    described = sections(ast.get_docstring(definition) if definition else None)
                    names |= {*described.get("Args", []), *described.get("Attributes", [])}
        return names

    def inherits_record(self, definition: ast.ClassDef) -> bool:
        """Return whether a class or one of its base classes is a record.

        Args:
            definition: Definition of the class.
        """
        return is_record(definition) or any(is_record(ancestor) for ancestor in self.ancestors(definition))


def check_function(
    function: FunctionNode, owner: ast.ClassDef | None, definitions: Definitions
) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and message of each missing part of a function's docstring.

    Args:
        function: Definition of the function.
        owner: Class of a method, or None.
        definitions: Definitions of the project.
    """
    name = function.name if owner is None else f"{owner.name}.{function.name}"
    if is_property(function):
        return
    names = arguments(function, is_method=owner is not None)
    documented = sections(ast.get_docstring(function))
    reference = definitions.reference(ast.get_docstring(function), owner)
    described = set(documented.get("Args", [])) | definitions.decorated(function)
    if function.name == "__init__" and owner is not None:
        described |= set(sections(ast.get_docstring(owner)).get("Args", [])) | definitions.decorated(owner)
    described |= set(names) if "*" in reference.arguments else reference.arguments
    if reference.problem:
        yield function.lineno, name, f"Args: {reference.problem}"
    if missing := [argument for argument in names if argument not in described]:
        yield function.lineno, name, f"Args: without {', '.join(missing)}"
    unknown = sorted(set(sections(ast.get_docstring(function)).get("Args", [])) - set(names))
    if unknown:
        yield function.lineno, name, f"Args: describes {', '.join(unknown)}, which the signature lacks"
    summary = (ast.get_docstring(function) or "").split("\n")[0]
    is_described = bool(documented.keys() & {"Returns", "Yields"}) or bool(RETURN_WORDS.match(summary))
    if returns_value(function) and not is_described and not reference.has_result:
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


def check_source(source: Source, definitions: Definitions) -> Iterator[Problem]:
    """Yield the problems of a file.

    Args:
        source: File to check.
        definitions: Definitions of the project.
    """
    path = source.path.relative_to(ROOT)

    def visit(body: list[ast.stmt], owner: ast.ClassDef | None) -> Iterator[tuple[int, str, str]]:
        for node in body:
            if isinstance(node, FunctionNode) and (node.name == "__init__" or not node.name.startswith("_")):
                yield from check_function(node, owner, definitions)
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if definitions.inherits_record(node):
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
    definitions = Definitions(read_sources([ROOT / "src"]))
    problems = [problem for source in read_sources(paths) for problem in check_source(source, definitions)]
    for problem in problems:
        print(f"{problem.path}:{problem.line}: {problem.name}: {problem.message}")
    print(f"{len(problems)} incomplete docstrings", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
