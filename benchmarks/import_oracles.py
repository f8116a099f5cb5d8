"""Independent resolution of imports, against which `import_recall.py` compares the links of an index.

Python: `ast`, and Python's own finders of modules, which execute nothing. Go: module paths of `go.mod`. Rust: the tree
of `mod` declarations of each target of `Cargo.toml`. JavaScript and TypeScript: TypeScript's rules for relative paths,
`paths` and packages of the workspace. Nothing here is shared with the resolvers of `graphrerank_documents`.
"""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from os.path import normpath, relpath
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """Import of a file of the folder.

    Attributes:
        source: Path of the file with the import.
        text: What it imports.
        targets: Paths of the files to which an edge may lead: the module, and the files from which it re-exports.
    """

    source: str
    text: str
    targets: frozenset[str]


class PythonOracle:
    """Imports that Python's finders find in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = sorted(path for path in folder.rglob("*.py") if path.is_file())

    def imports(self) -> Iterator[Import]:
        """Yield the imports of files of the folder."""
        for file in self.files:
            for module, name in self.statements(file):
                if module is None or module == file:
                    continue
                targets = self.chain(module, name, set())
                yield Import(self.name(file), f"{module.name}:{name}", frozenset(map(self.name, targets)))

    def name(self, path: Path) -> str:
        """Return the path of a file within the folder."""
        return path.relative_to(self.folder).as_posix()

    @cache  # noqa: B019
    def statements(self, file: Path) -> list[tuple[Path | None, str]]:
        """Return the file of the module and the name of each import, empty for a module, ``*`` for all names."""
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            return []
        found: list[tuple[Path | None, str]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [(self.module(alias.name, file, 0), "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                for alias in node.names:
                    inner = self.module(".".join(filter(None, (base, alias.name))), file, node.level)
                    found.append((inner, "") if inner else (self.module(base, file, node.level), alias.name))
        return found

    def chain(self, module: Path, name: str, seen: set[Path]) -> set[Path]:
        """Return a module and the files from which it imports a name."""
        targets = {module}
        if name and module not in seen:
            seen.add(module)
            for source, other in self.statements(module):
                if source is not None and (other in (name, "*") or (not other and source.stem == name)):
                    targets |= self.chain(source, name, seen)
        return targets

    @cache  # noqa: B019
    def module(self, name: str, file: Path, level: int) -> Path | None:
        """Return the file of a module of the folder."""
        if level:
            place = file.parent
            for _ in range(level - 1):
                place = place.parent
            return self.find(name, str(place)) if name else self.package(place)
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return next((found for root in self.roots(file) if (found := self.find(name, root))), None)

    def package(self, place: Path) -> Path | None:
        """Return the file of a package."""
        return place / "__init__.py" if (place / "__init__.py").is_file() else None

    def find(self, name: str, root: str) -> Path | None:
        """Return the file that Python's finders find below a root."""
        paths, spec = [root], None
        for part in name.split("."):
            spec = PathFinder.find_spec(part, paths)
            if spec is None:
                return None
            paths = list(spec.submodule_search_locations or [])
        origin = Path(spec.origin) if spec is not None and spec.origin else None
        return origin if origin is not None and origin.suffix == ".py" and origin.is_relative_to(self.folder) else None

    def roots(self, file: Path) -> list[str]:
        """Return the path of the interpreter: the folder of a script or outermost package, then projects and tests."""
        above = [place for place in file.parents if place.is_relative_to(self.folder)]
        first = next((place for place in above if not self.package(place)), self.folder)
        projects = [
            place for place in above if any((place / each).is_file() for each in ("pyproject.toml", "setup.py"))
        ]
        places = [first, *(path for place in projects for path in (place, place / "src")), *above]
        return [str(place) for place in dict.fromkeys(places) if place.is_dir() and not self.package(place)]


class GoOracle:
    """Imports of Go by the module paths."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: dict[str, Path] = {}
        for path in sorted(folder.rglob("go.mod")):
            if found := re.search(r"^module\s+(\S+)", path.read_text(), re.MULTILINE):
                self.modules[found[1]] = path.parent

    def imports(self) -> Iterator[Import]:
        """Yield the imports of files of the folder."""
        for file in sorted(self.folder.rglob("*.go")):
            for path in dict.fromkeys(go_imports(file.read_text(errors="replace"))):
                owners = [name for name in self.modules if path == name or path.startswith(f"{name}/")]
                if owners:
                    owner = max(owners, key=len)
                    place = self.modules[owner] / path[len(owner) :].strip("/")
                    targets = frozenset(each.relative_to(self.folder).as_posix() for each in place.glob("*.go"))
                    if targets:
                        yield Import(file.relative_to(self.folder).as_posix(), path, targets)


def go_imports(text: str) -> Iterator[str]:
    """Yield the import paths of a file of Go."""
    text = re.sub(r"/\*.*?\*/|^\s*//[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    for row in re.split(r"\n", text):
        if re.match(r"(?:func|type|var|const)\b", row):
            return
        if found := re.match(r'\s*(?:import\s+)?(?:[\w.]+\s+)?"([^"]+)"\s*(?://.*)?$', row):
            yield found[1]


class RustOracle:
    """Imports of Rust by the tree of modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree: dict[tuple[Path, tuple[str, ...]], Path] = {}  # file by root and path of the module
        self.place: dict[Path, tuple[Path, tuple[str, ...]]] = {}
        self.variants: list[tuple[Path, str, Path]] = []  # declaring file, name and file of a module declared again
        self.library: dict[str, Path] = {}
        self.renamed: dict[Path, dict[str, str]] = {}
        for manifest in sorted(folder.rglob("Cargo.toml")):
            self.add_package(manifest)
        for file in sorted(folder.rglob("*.rs")):  # compiled by tests, or as modules that a macro declares
            self.place.setdefault(file, (file, ()))

    def add_package(self, manifest: Path) -> None:
        """Add the crates of a package."""
        data, place = tomllib.loads(manifest.read_text()), manifest.parent
        if "package" not in data:
            return
        name = data["package"]["name"].replace("-", "_")
        library = place / data.get("lib", {}).get("path", "src/lib.rs")
        roots = [library, place / "src/main.rs", place / "build.rs"]
        kinds = ("bin", "test", "example", "bench")
        roots += [place / target["path"] for kind in kinds for target in data.get(kind, [])
                  if "path" in target]  # fmt: skip
        for kind in ("src/bin", "tests", "examples", "benches"):
            roots += [*sorted((place / kind).glob("*.rs")), *sorted((place / kind).glob("*/main.rs"))]
        if library.is_file():
            self.library[name] = library
            self.library.setdefault(data.get("lib", {}).get("name", name), library)
        self.renamed[place] = {
            key.replace("-", "_"): value["package"].replace("-", "_")
            for table in ("dependencies", "dev-dependencies")
            for key, value in data.get(table, {}).items()
            if isinstance(value, dict) and "package" in value
        }
        for root in dict.fromkeys(roots):
            if root.is_file():
                self.add_module(root, (), root)

    def add_module(self, root: Path, path: tuple[str, ...], file: Path) -> None:
        """Add a module and those that it declares."""
        if (root, path) in self.tree:
            return
        self.tree[root, path] = file
        self.place.setdefault(file, (root, path))
        base = file.parent if file.name == "mod.rs" or not path else file.parent / file.stem
        paths = r'#\[path\s*=\s*"([^"]+)"\]\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;'
        for place, name in re.findall(paths, file.read_text(errors="replace")):
            if (file.parent / place).is_file():
                if self.tree.get((root, (*path, name)), file.parent / place) != file.parent / place:
                    self.variants.append((file, name, file.parent / place))  # of another configuration
                self.add_module(root, (*path, name), file.parent / place)
                self.place.setdefault(file.parent / place, (root, (*path, name)))  # of another configuration
        for name in re.findall(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(?:r#)?(\w+)\s*;", bare(file), re.MULTILINE):
            child = next((each for each in (base / f"{name}.rs", base / name / "mod.rs") if each.is_file()), None)
            if child is not None:
                self.add_module(root, (*path, name), child)

    def imports(self) -> Iterator[Import]:
        """Yield the imports of files of the folder."""
        for file, name, child in self.variants:
            yield Import(self.name(file), f"mod {name}", frozenset((self.name(child),)))
        for file, (root, path) in sorted(self.place.items()):
            for (other, inner), child in self.tree.items():
                if other == root and inner[:-1] == path and inner:
                    yield Import(self.name(file), f"mod {inner[-1]}", frozenset((self.name(child),)))
            for scope, use in self.uses(file):
                for target in self.resolve(file, scope, use):
                    if target[0] != file:
                        chain = self.chain(*target, set())
                        yield Import(self.name(file), "::".join(use), frozenset(map(self.name, chain)))

    def name(self, path: Path) -> str:
        """Return the path of a file within the folder."""
        return path.relative_to(self.folder).as_posix()

    @cache  # noqa: B019
    def uses(self, file: Path) -> list[tuple[int, tuple[str, ...]]]:
        """Return the paths of `use` declarations with the number of inline modules around each."""
        text, depth, inline = bare(file), 0, list[int]()
        crates = re.findall(r"\bextern\s+crate\s+(\w+)(?:\s+as\s+(\w+))?\s*;", text)
        found: list[tuple[int, tuple[str, ...]]] = [(0, (name, f"as {alias or name}")) for name, alias in crates]
        for token in re.finditer(r"\bmod\s+\w+\s*\{|\buse\s+([^;]+);|[{}]", text):
            if token[0].startswith("mod"):
                depth += 1
                inline.append(depth)
            elif token[0] == "{":
                depth += 1
            elif token[0] == "}":
                if inline[-1:] == [depth]:
                    inline.pop()
                depth -= 1
            else:
                found += [(len(inline), use) for use in expanded(token[1])]
        return found

    def resolve(self, file: Path, scope: int, use: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """Yield the file of the module with the longest path, and the names within it."""
        root, path = self.place[file]
        first = use[0]
        if first == "crate":
            whole = use[1:]
        elif first in ("self", "super"):
            ups = sum(1 for part in use if part == "super")
            if ups < scope:
                return  # within a module of the file
            kept = path[: len(path) - (ups - scope)]
            whole = (*kept, *(part for part in use if part not in ("self", "super")))
        else:
            if any((root, (*path[:end], first)) in self.tree for end in (len(path),)):
                whole = (*path, *use)
            else:
                package = next((each for each in file.parents if each in self.renamed), None)
                first = self.renamed.get(package, {}).get(first, first) if package else first
                if first not in self.library:
                    return
                root, whole = self.library[first], use[1:]
        whole = tuple(part for part in whole if part != "self" and not part.startswith("as "))
        for end in range(len(whole), -1, -1):
            if (root, whole[:end]) in self.tree:
                yield self.tree[root, whole[:end]], whole[end:]
                return

    def chain(self, file: Path, names: tuple[str, ...], seen: set[tuple[Path, tuple[str, ...]]]) -> set[Path]:
        """Return a module and the files from which it uses a name, or the file with the item of a module's name."""
        targets = {file}
        root, path = self.place[file]
        outer = self.tree.get((root, path[:-1])) if path and not names else None
        if outer is not None and re.search(rf"\bfn\s+{path[-1]}\b", bare(outer)):
            targets.add(outer)
        if names and (file, names) not in seen:
            seen.add((file, names))
            name = names[0]
            for scope, use in self.uses(file):
                if use[-1] in (name, "*", f"as {name}") or name == "*" or (use[-1] == "self" and use[-2:-1] == (name,)):
                    for target, inner in self.resolve(file, scope, use):
                        wanted = names if inner[-1:] == ("*",) else (*inner, *names[1:])
                        targets |= self.chain(target, wanted, seen)
        return targets


@cache
def bare(file: Path) -> str:
    """Return the text of a file without comments and strings."""
    text = file.read_text(errors="replace")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r'r(#+)".*?"\1', '""', text, flags=re.DOTALL)
    return re.sub(r"b?'(?:\\.|[^\\'])'|" + r'"(?:\\.|[^"\\])*"', '""', text, flags=re.DOTALL)


def expanded(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a `use` declaration, without aliases."""
    text = re.sub(r"\s+as\s+\w+", "", text)
    text = re.sub(r"\s+|r#", "", text).removeprefix("::")

    def parse(text: str) -> Iterator[str]:
        opening = text.find("{")
        if opening < 0:
            yield from filter(None, text.split(","))
            return
        depth, start = 0, 0
        for place, sign in enumerate(f"{text},"):
            depth += (sign == "{") - (sign == "}")
            if sign == "," and depth == 0:
                part, start = text[start:place], place + 1
                if "{" in part:
                    head, _, inner = part.partition("{")
                    yield from (f"{head}{each}" for each in parse(inner.rsplit("}", 1)[0]))
                elif part:
                    yield part

    for path in parse(text):
        yield tuple(part for part in path.split("::") if part)


class ScriptOracle:
    """Imports of JavaScript and TypeScript by TypeScript's rules."""

    SUFFIXES = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {path.relative_to(folder).as_posix() for path in folder.rglob("*")
                      if path.is_file() and "node_modules" not in path.parts}  # fmt: skip
        self.packages: dict[str, str] = {}
        for name in sorted(self.files):
            if name.rpartition("/")[2] == "package.json":
                data = json.loads((folder / name).read_text())
                if "name" in data and "template" not in name:
                    self.packages.setdefault(data["name"], name.rpartition("/")[0])

    def imports(self) -> Iterator[Import]:
        """Yield the imports of files of the folder."""
        for name in sorted(self.files):
            if name.endswith(self.SUFFIXES):
                for specifier, names in self.specifiers(name):
                    if (target := self.target(name, specifier)) and target != name:
                        yield Import(name, specifier, frozenset(self.chain(target, names, set())))

    @cache  # noqa: B019
    def specifiers(self, name: str) -> list[tuple[str, str]]:
        """Return the specifier and the clause of each import and export."""
        text = (self.folder / name).read_text(errors="replace")
        keep = re.compile(
            r"//[^\n]*|/\*.*?\*/|`(?:\\.|[^`\\])*`|" r"""'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*\"""", re.DOTALL
        )
        text = keep.sub(lambda found: found[0] if found[0][0] in "'\"" else " ", text)
        clause = re.compile(r"""^\s*(?:import|export)\b([^'"`;=()]*?)\bfrom\s*['"]([^'"\n]+)['"]"""
                            r"""|^\s*import\s*['"]([^'"\n]+)['"]"""
                            r"""|\b(?:require|import)\s*\(\s*['"]([^'"\n]+)['"]\s*\)""", re.MULTILINE)  # fmt: skip
        return [(found[2] or found[3] or found[4], found[1] or "*") for found in clause.finditer(text)]

    def chain(self, name: str, names: str, seen: set[str]) -> set[str]:
        """Return a module and the modules from which it exports what an import may name."""
        targets = {name}
        if name not in seen and name.endswith(self.SUFFIXES):
            seen.add(name)
            for specifier, clause in self.specifiers(name):
                words = set(re.findall(r"\w+", clause)) & set(re.findall(r"\w+", names))
                if ("*" in clause or "*" in names or words) and (target := self.target(name, specifier)):
                    targets |= self.chain(target, names, seen)
        return targets

    @cache  # noqa: B019
    def target(self, near: str, specifier: str) -> str:
        """Return the file to which a specifier leads, empty if it is none of the folder."""
        if specifier.startswith("."):
            return self.file(normpath(str(Path(near).parent / specifier)))
        for pattern, places in self.paths(near).items():
            head, star, tail = pattern.partition("*")
            if specifier == pattern or (star and specifier.startswith(head) and specifier.endswith(tail)):
                inner = specifier[len(head) : len(specifier) - len(tail)] if star else ""
                for place in places:
                    if found := self.file(normpath(place.replace("*", inner))):
                        return found
        parts = specifier.split("/")
        count = 2 if specifier.startswith("@") else 1
        folder = self.packages.get("/".join(parts[:count]))
        if folder is None:
            return ""
        inner = "/".join(parts[count:])
        data = json.loads((self.folder / folder / "package.json").read_text())
        mapped = (
            data.get("exports", {}).get(f"./{inner}" if inner else ".")
            if isinstance(data.get("exports"), dict)
            else None
        )
        entries = [mapped] if isinstance(mapped, str) else [*leaves(mapped)] if mapped else []
        entries += [inner, f"src/{inner}"] if inner else [data.get("main", ""), "src", ""]
        return next((found for entry in entries if (found := self.file(normpath(f"{folder}/{entry}")))), "")

    def file(self, place: str) -> str:
        """Return the file at a path without or with a suffix."""
        stem = re.sub(r"\.([mc]?)jsx?$", r".\1ts", place)
        places = [
            stem,
            place,
            *(place + suffix for suffix in self.SUFFIXES),
            *(f"{place}/index{each}" for each in self.SUFFIXES),
        ]
        return next((each for each in places if each in self.files), "")

    @cache  # noqa: B019
    def paths(self, near: str) -> dict[str, list[str]]:
        """Return `paths` of the nearest tsconfig file with them."""
        for folder in Path(near).parents:
            name = (folder / "tsconfig.json").as_posix()
            if name in self.files and (paths := self.config(name)):
                return paths
        return {}

    def config(self, name: str) -> dict[str, list[str]]:
        """Return `paths` of a tsconfig file, or of the one that it extends."""
        token = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
        text = token.sub(lambda found: found[1] or " ", (self.folder / name).read_text())
        try:
            data = json.loads(re.sub(r",(\s*[}\]])", r"\1", text))
        except ValueError:
            return {}
        options, place = (
            data.get("compilerOptions", {}),
            Path(name).parent / data.get("compilerOptions", {}).get("baseUrl", "."),
        )
        if "paths" in options:
            return {key: [relpath(place / each) for each in value] for key, value in options["paths"].items()}
        base = data.get("extends", "")
        if isinstance(base, str) and base.startswith("."):
            inner = normpath(str(Path(name).parent / base))
            return self.config(inner) if inner in self.files else {}
        return {}


def leaves(value: object) -> Iterator[str]:
    """Yield the files of all conditions of an export."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)


ORACLES = {"python": PythonOracle, "go": GoOracle, "rust": RustOracle, "script": ScriptOracle}
