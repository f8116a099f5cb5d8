"""Pages of the API reference: one per package, with every public symbol of every public module.

The symbols are read from the source, so that a new module or function is on its page without being registered.
"""

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any

SRC = Path(__file__).parent.parent / "src"
PACKAGES = ("graphrerank", "graphrerank_documents", "graphrerank_papers")
# Decorators after which a function is an object.
OBJECT_DECORATORS = ("builder(",)
# Packages of the library in the order in which a user meets them; the others follow in alphabetical order.
FIRST = (
    "graphrerank", "rerank", "training", "evaluation", "data", "config", "core", "corpus", "operators", "pipelines",
    "models", "losses", "metrics", "features", "calibration", "artifacts", "integrations", "serving", "feedback",
    "corpus_store",
)  # fmt: skip


@cache
def parsed_module(path: Path) -> ast.Module:
    """Return the syntax tree of a module, which callers do not change.

    Args:
        path: Path of the module.
    """
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def public_modules() -> dict[str, Path]:
    """Return the path of each public module by its name."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((SRC / package).rglob("*.py")):
            parts = path.relative_to(SRC).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if not any(part.startswith("_") for part in parts):
                modules[".".join(parts)] = path
    return modules


@dataclass(frozen=True)
class Constant:
    """A public constant or type alias of a module.

    Attributes:
        name: Name of the constant.
        value: Source of its value.
        comment: Comment above the constant or at the end of its line. Empty if there is none.
        in_docs: Whether autodoc documents the constant, because its comment begins with ``#:``.
    """

    name: str
    value: str
    comment: str
    in_docs: bool


def public_symbols(path: Path) -> list[str]:
    """Return the public functions, classes and constants that a module defines, in the order of the source."""
    return list(dict.fromkeys([*_definitions(path), *(constant.name for constant in public_constants(path))]))


def _definitions(path: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Return the public functions and classes of a module by name."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    statements = [statement for statement in _statements(path) if isinstance(statement, definitions)]
    return {definition.name: definition for definition in statements if not definition.name.startswith("_")}


def _becomes_object(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Return whether a decorator turns a function into an object, which autodoc does not document."""
    return any(ast.unparse(decorator).startswith(OBJECT_DECORATORS) for decorator in definition.decorator_list)


def _statements(path: Path) -> list[ast.stmt]:
    """Return the statements of a module, those of branches included."""
    statements = list(parsed_module(path).body)
    for statement in statements:  # grows within the loop
        if isinstance(statement, ast.If | ast.Try):
            statements += [*statement.body, *statement.orelse]
    return statements


def public_constants(path: Path) -> list[Constant]:
    """Return the public constants and type aliases of a module, without loggers and type variables."""
    lines = path.read_text(encoding="utf-8").splitlines()
    constants: dict[str, Constant] = {}
    for statement in _statements(path):
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) in (
            "TypeVar",
            "logging.getLogger",
        ):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        comment = _comment(lines, statement)
        for name in [target.id for target in targets if isinstance(target, ast.Name)]:
            if not name.startswith("_"):
                value = ast.unparse(statement.value)
                constants[name] = Constant(name, value, comment.removeprefix(":").strip(), comment.startswith(":"))
    return list(constants.values())


def _comment(lines: list[str], statement: ast.stmt) -> str:
    """Return the comment of a statement, without the mark: the lines above, then the end of its first line."""
    above: list[str] = []
    for line in reversed(lines[: statement.lineno - 1]):
        if not line.lstrip().startswith("#"):
            break
        above.insert(0, line.strip().removeprefix("#").strip())
    trailing = re.search(r"  #(?! ?type:| ?noqa) ?(.*)$", lines[statement.lineno - 1])
    return " ".join([*above, *([trailing[1]] if trailing else [])])


def exported_names(path: Path) -> list[str]:
    """Return ``__all__`` of a module, or an empty list."""
    for statement in parsed_module(path).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            try:
                return list(ast.literal_eval(statement.value))
            except ValueError:  # computed
                return []
    return []


def missing_packages() -> list[str]:
    """Return the third-party packages that modules import and that are not installed; autodoc replaces them."""
    roots = set()
    for path in public_modules().values():
        for node in ast.walk(parsed_module(path)):
            if isinstance(node, ast.Import):
                roots |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                roots.add(node.module.partition(".")[0])
    return sorted(root for root in roots - set(sys.stdlib_module_names) if find_spec(root) is None)


def import_modules() -> None:
    """Import every public module before autodoc does.

    Some libraries, such as FastAPI, cannot be imported while autodoc sets ``typing.TYPE_CHECKING``.
    """
    from sphinx.ext.autodoc.mock import mock

    for module in public_modules():
        try:
            import_module(module)
        except ImportError:
            with mock(missing_packages()):
                import_module(module)


def skip_member(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip fields without a docstring, which the ``Attributes:`` section of their class describes.

    The methods that scikit-learn adds to every estimator are skipped, too, because they refer to its own pages.
    """
    if what == "class" and str(getattr(member, "__module__", "")).startswith("sklearn."):
        return True
    is_field = not (inspect.isroutine(member) or inspect.isclass(member) or isinstance(member, property))
    return True if what == "class" and is_field and not getattr(member, "__doc__", None) else None


def describe_fields(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Add an ``Attributes:`` section with the field descriptions of a pydantic model to its docstring."""
    fields = getattr(member, "model_fields", None) if what == "class" else None
    described = {field: info.description for field, info in (fields or {}).items() if info.description}
    if not described or any(line.strip() == "Attributes:" for line in lines):
        return
    lines += ["", "Attributes:"]
    for field, description in described.items():
        lines.append(f"    {field}: " + re.sub(r"`([^`]+)`", r"``\1``", description))
    lines.append("")


def describe_call(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Add the arguments and the result of a protocol's ``__call__`` to the docstring of the protocol."""
    if what == "class" and getattr(member, "_is_protocol", False) and "__call__" in vars(member):
        _, _, sections = (inspect.getdoc(member.__call__) or "").partition("\nArgs:\n")
        lines += ["", "Args:", *sections.splitlines(), ""]


def packages() -> dict[str, list[str]]:
    """Return the modules of each package, packages in the order of the reference."""
    modules = public_modules()
    grouped: dict[str, list[str]] = {}
    for module, path in modules.items():
        package = module if path.name == "__init__.py" or module in PACKAGES else module.rpartition(".")[0]
        grouped.setdefault(package, []).append(module)

    def position(package: str) -> tuple[int, int, str]:
        library, _, rest = package.partition(".")
        top = rest.partition(".")[0] or library
        return PACKAGES.index(library), FIRST.index(top) if top in FIRST else len(FIRST), package

    exported = {name for path in modules.values() if path.name == "__init__.py" for name in exported_names(path)}

    def order(module: str) -> tuple[bool, bool, str]:
        """Put the package itself first, then the modules that define names which a package exports."""
        path = modules[module]
        return path.name != "__init__.py", exported.isdisjoint(public_symbols(path)), module

    return {package: sorted(grouped[package], key=order) for package in sorted(grouped, key=position)}


def summary(module: str) -> str:
    """Return the first sentence of a module's docstring."""
    docstring = ast.get_docstring(parsed_module(public_modules()[module])) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def pages() -> dict[str, str]:
    """Return the text of each package's page by the package's name."""
    return {package: page(package, modules) for package, modules in packages().items()}


def page(package: str, modules: list[str]) -> str:
    """Return a package's page: its description, the names that it exports, and its modules."""
    paths = public_modules()
    lines = [f"# {package}", ""]
    for module in modules:
        if module != package:
            lines += [f"## {module.removeprefix(package + '.')}", ""]
        lines += ["```{eval-rst}", *module_directives(module, paths[module]), "```", ""]
        if exports := exported_names(paths[module]):
            lines += [f"Import from `{module}`: " + ", ".join(f"`{name}`" for name in exports) + ".", ""]
    return "\n".join(lines)


def module_directives(module: str, path: Path) -> list[str]:
    """Return the directives that document a module.

    autodoc skips constants without ``#:`` and functions that a decorator turns into objects, so they follow by name.
    """
    from sphinx.ext.napoleon import GoogleDocstring

    constants = public_constants(path)
    definitions = _definitions(path)
    objects = {name: definition for name, definition in definitions.items() if _becomes_object(definition)}
    members = [
        *(name for name in definitions if name not in objects),
        *(constant.name for constant in constants if constant.in_docs),
    ]
    lines = [f".. automodule:: {module}", *([f"   :members: {', '.join(members)}"] if members else []), ""]
    lines += [f".. py:currentmodule:: {module}", ""]
    for name, definition in objects.items():
        lines += [f".. py:function:: {name}({ast.unparse(definition.args)})", ""]
        lines += [f"   {line}" for line in str(GoogleDocstring(ast.get_docstring(definition) or "")).splitlines()] + [
            ""
        ]
    for constant in constants:
        if not constant.in_docs:
            value = shorten(constant.value, 80, placeholder=" ...")
            lines += [f".. py:data:: {constant.name}", f"   :value: {value}", "", f"   {escape(constant.comment)}", ""]
    return lines


def escape(comment: str) -> str:
    """Return a comment as reStructuredText, in which text between backticks is code."""
    parts = re.split(r"`+", comment)
    return "``".join(part if index % 2 else re.sub(r"([\\*|_])", r"\\\1", part) for index, part in enumerate(parts))


def overview() -> str:
    """Return the list of packages, and the navigation to their pages."""
    entries = packages()
    lines = []
    for library in PACKAGES:
        members = [package for package in entries if package.partition(".")[0] == library]
        lines += ["", f"## {library}", "", "| package | contents |", "| --- | --- |"]
        lines += [
            f"| [{package}](api/{package}.md) | {summary(package).replace('|', chr(92) + '|')} |" for package in members
        ]
    return "\n".join(
        [*lines, "", "```{toctree}", ":hidden:", "", *(f"api/{package}" for package in entries), "```", ""]
    )
