"""Imports of Python: packages below the source roots of projects, and below the folder of a script."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from posixpath import dirname

from graphrerank_documents.imports.base import (
    CodeFiles,
    ModuleMatch,
    ModuleResolver,
    top_match,
)
from graphrerank_documents.imports.manifest import PackageManifest
from graphrerank_documents.module_names import module_of, name_parts
from graphrerank_documents.paths import folders_above, path_below

_MANIFESTS = ("pyproject.toml", "setup.cfg", "setup.py", "pytest.ini", "tox.ini")
_VENDORED = frozenset(("_vendor", "vendor", "vendored", "_vendored", "third_party", "extern", "externals"))


class PythonResolver(ModuleResolver):
    """Resolve Python imports like an interpreter that has the roots of the file's project on its path.

    The roots are tried in this order:

    1. the folder of the outermost package around the file, or the folder of a script;
    2. the source roots that the manifests of the folders above declare, these folders and their folders ``src``;
    3. all other folders above that are not packages, and their folders ``src``;
    4. the roots of other projects in the folder, and then of a package that occurs once. There, the whole imported name
       must exist.

    A module of the standard library is found at the first root only. Folders without ``__init__.py`` are namespace
    packages if they have a module.

    Args:
        code: Files of the folder.
    """

    family = "python"

    def __init__(self, code: CodeFiles) -> None:
        super().__init__(code)
        names = code.of_family(self.family)
        self._modules = {module_of(name) for name in names}
        self._packages = {dirname(name) for name in names if name.rpartition("/")[2] in ("__init__.py", "__init__.pyi")}
        folders = {folder for name in names for folder in folders_above(name)}
        self._folders = {".".join(name_parts(folder)) for folder in folders}
        self._manifests: dict[str, list[PackageManifest]] = defaultdict(list)
        for name in _MANIFESTS:
            for folder, manifest in code.manifests_named(name).items():
                self._manifests[folder].append(manifest)
        self._tops: dict[str, set[str]] = defaultdict(set)  # folders with a package that is in no other, by its name
        for package in self._packages - {""}:
            top = dirname(package)
            if top not in self._packages and _VENDORED.isdisjoint(package.split("/")):
                self._tops[package.rpartition("/")[2]].add(top)
        self._roots = cache(self._roots_of)
        self._others = list(
            dict.fromkeys(root for folder in sorted(self._manifests) for root in self._project_roots(folder))
        )

    def resolve(self, target: str, near: str) -> Iterator[ModuleMatch]:
        """Yield the modules to which an import may refer, in the order of the roots.

        Args:
            target: Absolute name, or a name from the top folder that begins with ``/``.
            near: Path of the file with the import.

        Yields:
            Modules below the roots.
        """
        if target.startswith("/"):
            yield top_match(target)
            return
        parts = tuple(name_parts(target))
        if not parts:
            return
        roots = self._roots(dirname(near))
        for place, root in enumerate(roots[:1] if parts[0] in sys.stdlib_module_names else roots):
            if self._has(root, parts) and (place or root not in self._packages):
                yield ModuleMatch((*name_parts(root), *parts))
        for folder in folders_above(near):
            yield from self._mapped(folder, parts)
        if parts[0] in sys.stdlib_module_names:
            return
        tops = self._tops.get(parts[0], set())
        for root in dict.fromkeys([*self._others, *(tops if len(tops) == 1 else ())]):
            if root not in roots and self._has(root, parts):
                yield ModuleMatch((*name_parts(root), *parts), is_exact=True)

    def _mapped(self, folder: str, parts: tuple[str, ...]) -> Iterator[ModuleMatch]:
        """Yield the module of a package whose folder has another name (``package_dir``)."""
        for manifest in self._manifests.get(folder, ()):
            for name, (path, *_) in manifest.paths.items():
                prefix = tuple(name.split("."))
                if parts[: len(prefix)] == prefix:
                    yield ModuleMatch((*name_parts(path_below(folder, path)), *parts[len(prefix) :]))

    def _has(self, root: str, parts: tuple[str, ...]) -> bool:
        """Return whether a root has the module or package with which a name starts."""
        place = name_parts(root)
        for part in parts:
            place = [*place, part]
            if (name := ".".join(place)) in self._modules:
                return True
            if name not in self._folders:
                return False
        return False

    def _roots_of(self, folder: str) -> list[str]:
        """Return the roots for the files of a folder, in order. See the class for their kinds."""
        above = folders_above(f"{folder}/x" if folder else "x")
        first = next((each for each in above if each not in self._packages), "")
        roots = [first]
        for each in above:
            roots += self._project_roots(each) if each in self._manifests else []
        for each in above:
            roots += [path for path in (each, path_below(each, "src")) if path not in self._packages]
        return list(dict.fromkeys(roots))

    def _project_roots(self, folder: str) -> list[str]:
        declared = [root for manifest in self._manifests[folder] for root in manifest.roots]
        roots = [path_below(folder, root) for root in (*declared, ".", "src")]
        return [root for root in roots if root not in self._packages and not root.startswith("..")]
