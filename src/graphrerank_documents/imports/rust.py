"""Imports of Rust: crates by name, and the tree of modules that ``mod`` declares in each crate."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from posixpath import dirname, join, splitext

from graphrerank_documents.imports.base import (
    CodeFiles,
    ModuleMatch,
    ModuleResolver,
    starts_with,
)
from graphrerank_documents.imports.manifest import PackageManifest
from graphrerank_documents.module_names import module_of, name_parts
from graphrerank_documents.paths import folders_above, path_below

_STANDARD = frozenset(("std", "core", "alloc", "proc_macro", "test"))
#: Roots of crates in the folder of a Cargo.toml that are found without being declared.
_TARGETS = (
    "src/lib.rs", "src/main.rs", "build.rs", "src/bin/*.rs", "src/bin/*/main.rs", "examples/*.rs", "examples/*/main.rs",
    "tests/*.rs", "tests/*/main.rs", "benches/*.rs", "benches/*/main.rs",
)  # fmt: skip
_MAX_DEPTH = 50  # maximum depth of nested modules

#: Path of a module in its crate.
_Path = tuple[str, ...]


class RustResolver(ModuleResolver):
    """Resolve paths of Rust.

    Each target of a ``Cargo.toml`` (library, programs, tests, examples, build script) is the root of a crate. The files
    of its modules are found by ``mod`` declarations, as the compiler does. The library of a package can be used by the
    name of the package or of the dependency that renames it. Without a ``Cargo.toml``, files ``lib.rs`` and ``main.rs``
    are roots, and the name of a crate is that of its folder.

    Modules that a macro declares are found by the paths of their files.

    Args:
        code: Files of the folder.
    """

    family = "rust"

    def __init__(self, code: CodeFiles) -> None:
        super().__init__(code)
        self._files = dict.fromkeys(code.of_family(self.family))
        self._by_address = {tuple(name_parts(module_of(name))): name for name in self._files}
        self._packages = code.manifests_named("Cargo.toml")
        self._libraries: defaultdict[str, list[str]] = defaultdict(list)  # roots of libraries by the name of the crate
        self._library_of: dict[str, str] = {}  # root of the library by the folder of the package
        self._module: dict[tuple[str, _Path], str] = {}  # file by the root of a crate and the path of the module
        self._place: dict[str, tuple[str, _Path]] = {}  # root and path of the module of a file
        self._own_names = {name: _own_names(code, name) for name in self._files}
        roots = list(dict.fromkeys([*self._declared_roots(), *self._implied_roots()]))
        self._roots = frozenset(roots)
        for root in roots:
            self._add_crate(root)

    def resolve(self, target: str, near: str) -> Iterator[ModuleMatch]:
        """Yield the modules to which a path refers.

        Args:
            target: Path with ``self`` and ``super`` resolved: from ``crate``, from another crate or from a name of the
                file, or a name from the top folder that begins with ``/``.
            near: Path of the file with the path.

        Yields:
            Files of modules, and names within them.
        """
        parts = tuple(name_parts(target))
        address = tuple(name_parts(module_of(near)))
        if target.startswith("/"):
            if near in self._place and starts_with(parts, address):
                root, path = self._place[near]
                matches = [*self._walk(root, (*path, *parts[len(address) :]), is_declaration=True)]
                if (file := self._by_address.get(parts)) is not None and not any(not each.names for each in matches):
                    yield ModuleMatch((), file)  # a module whose attribute names the file, or that a macro declares
                yield from matches
            yield ModuleMatch(parts)
        elif parts[:1] == ("crate",):
            yield from self._in_own_crate(near, parts[1:])
        elif parts and parts[0] not in _STANDARD:
            if parts[0] in self._own_names.get(near, ()):
                yield ModuleMatch((*address, *parts), is_exact=True)
            for root in self._libraries_for(parts[0], near):
                yield from self._walk(root, parts[1:])
                yield ModuleMatch((*name_parts(module_of(root)), *parts[1:]))

    def is_within(self, target: str, near: str) -> bool:
        """Return whether a path refers to a crate of the folder.

        Args:
            target: Target, as in :meth:`resolve`.
            near: Path of the file with the path.
        """
        first = name_parts(target)[:1]
        return target.startswith("/") or first == ["crate"] or any(self._libraries_for("".join(first), near))

    def _in_own_crate(self, near: str, path: _Path) -> Iterator[ModuleMatch]:
        if near in self._place:
            root, _ = self._place[near]
            yield from self._walk(root, path)
        else:
            root = next((each for folder in folders_above(near) for each in self._roots_in(folder)), "")
        if root:
            yield ModuleMatch((*name_parts(module_of(root)), *path))

    def _roots_in(self, folder: str) -> list[str]:
        """Return the library or program in a folder, for files of modules that no ``mod`` declares."""
        return [file for name in ("lib.rs", "main.rs") if (file := join(folder, name)) in self._roots]

    def _walk(self, root: str, path: _Path, *, is_declaration: bool = False) -> Iterator[ModuleMatch]:
        """Yield the module of a crate with the longest path, and the remaining names.

        An item of the module around takes precedence over a module with its name, unless the path declares the module.
        """
        outer = self._module.get((root, path[:-1])) if path and not is_declaration else None
        if outer is not None and path[-1] in self._own_names[outer]:
            yield ModuleMatch(path[-1:], outer, is_exact=True)
        for end in range(len(path), -1, -1):
            if (file := self._module.get((root, path[:end]))) is not None:
                yield ModuleMatch(path[end:], file)
                return

    def _libraries_for(self, name: str, near: str) -> list[str]:
        """Return the roots of the libraries to which a name in a file can refer, nearest folder first."""
        folder = next((each for each in folders_above(near) if each in self._packages), None)
        if folder is not None:
            manifest = self._packages[folder]
            if _crate_name(manifest.name) == name and folder in self._library_of:
                return [self._library_of[folder]]
            names = _renamed(manifest)
            if "workspace" in (kind for dependency, kind in manifest.uses.items() if _crate_name(dependency) == name):
                around = (self._packages[each] for each in folders_above(near) if each in self._packages)
                names = {key: value for each in reversed(list(around)) for key, value in _renamed(each).items()}
            name = _crate_name(names.get(name, name))
        elif not self._packages and name not in self._libraries:
            name = name.partition("_")[2]  # crate `plant_pump` in the folder `pump`
        libraries = self._libraries.get(name, [])
        return sorted(libraries, key=lambda root: -len(_common_folders(root, near)))

    def _declared_roots(self) -> Iterator[str]:
        """Yield the crate roots that manifests declare, and index the libraries by name."""
        by_folder: defaultdict[str, list[str]] = defaultdict(list)
        for file in self._files:
            for folder in folders_above(file):
                if folder in self._packages:
                    by_folder[folder].append(file)
                    break
        for folder, manifest in self._packages.items():
            own = manifest.paths
            library = path_below(folder, own.get("lib", ("src/lib.rs",))[0])
            if library in self._files:
                self._library_of[folder] = library
                for name in {manifest.name, *own.get("lib name", ())} - {""}:
                    self._libraries[_crate_name(name)].append(library)
            declared = [library, *(path_below(folder, path) for path in own.get("targets", ()))]
            yield from (path for path in declared if path in self._files)
            for file in by_folder[folder]:
                inner = file[len(folder) + 1 :] if folder else file
                if any(fnmatchcase(inner, each) and inner.count("/") == each.count("/") for each in _TARGETS):
                    yield file

    def _implied_roots(self) -> Iterator[str]:
        """Yield the crate roots that no manifest declares."""
        for file in self._files:
            folder, name = dirname(file), file.rpartition("/")[2]
            above = folders_above(file)
            if name not in ("lib.rs", "main.rs") or any(each in self._packages for each in above):
                continue
            yield file
            crate = folder.removesuffix("src").rstrip("/").rpartition("/")[2]
            if name == "lib.rs" and crate:
                self._libraries[_crate_name(crate)].append(file)

    def _add_crate(self, root: str) -> None:
        """Follow the ``mod`` declarations from the root of a crate."""
        pending: list[tuple[str, _Path]] = [(root, ())]
        while pending:
            file, path = pending.pop()
            if (root, path) in self._module or len(path) > _MAX_DEPTH:
                continue
            self._module[root, path] = file
            self._place.setdefault(file, (root, path))
            stem = splitext(file)[0].rpartition("/")[2]
            own_folder = dirname(file) if stem == "mod" or not path else splitext(file)[0]
            for inner in _declarations(self.code, file):
                base = join(own_folder, *inner)
                child = next((each for each in (f"{base}.rs", f"{base}/mod.rs") if each in self._files), None)
                if child is not None and child != file:
                    pending.append((child, (*path, *inner)))


def _declarations(code: CodeFiles, file: str) -> Iterator[_Path]:
    """Yield the modules that a file may declare with ``mod``, with the inline modules that enclose them."""
    address = name_parts(module_of(file))
    for name, target in code.documents[file].imports.items():
        parts = name_parts(target)
        if target.startswith("/") and starts_with(parts, address) and parts[-1:] == [name]:
            yield tuple(parts[len(address) :])


def _own_names(code: CodeFiles, file: str) -> frozenset[str]:
    """Return the names that a file defines at its top."""
    symbols = (symbol for section in code.documents[file].sections for symbol in section.symbols)
    return frozenset(parts[0] for symbol in symbols if (parts := name_parts(symbol)))


def _renamed(manifest: PackageManifest) -> dict[str, str]:
    """Return the packages that a manifest renames, by the name of the crate."""
    return {
        _crate_name(key.removeprefix("dependency ")): value[0]
        for key, value in manifest.paths.items()
        if key.startswith("dependency ") and value
    }


def _crate_name(name: str) -> str:
    return name.replace("-", "_")


def _common_folders(path: str, other: str) -> list[str]:
    folders: Mapping[str, None] = dict.fromkeys(folders_above(other))
    return [folder for folder in folders_above(path) if folder in folders]
