"""Imports of Go: packages below the module path of a ``go.mod``."""

from collections.abc import Iterator
from posixpath import dirname

from graphrerank_documents.imports.base import (
    CodeFiles,
    ModuleMatch,
    ModuleResolver,
    starts_with,
    top_match,
)
from graphrerank_documents.module_names import name_parts
from graphrerank_documents.paths import folders_above, path_below


class GoResolver(ModuleResolver):
    """Resolve imports of Go by the module paths of all ``go.mod`` files, and by local replacements.

    The module with the longest path that is a prefix of the import has the package, as in the go command.
    Replacements of the nearest ``go.mod`` above a file, and of a ``go.work``, take precedence.

    Args:
        code: Files of the folder.
    """

    family = "go"

    def __init__(self, code: CodeFiles) -> None:
        super().__init__(code)
        self._manifests = code.manifests_named("go.mod", "go.work")
        self._workspaces = code.manifests_named("go.work")
        modules = ((name_parts(each.name), folder) for folder, each in code.manifests_named("go.mod").items())
        self._modules = sorted(((path, folder) for path, folder in modules if path), key=lambda each: -len(each[0]))
        self._packages = {dirname(name) for name in code.of_family(self.family)}

    @property
    def has_modules(self) -> bool:
        """Whether there is a ``go.mod``."""
        return bool(self._modules)

    def resolve(self, target: str, near: str) -> Iterator[ModuleMatch]:
        """Yield the package to which an import refers.

        Args:
            target: Import path, optionally followed by a name of the package, or a name from the top folder.
            near: Path of the file with the import.

        Yields:
            Package below the folder of its module.
        """
        if target.startswith("/"):
            yield top_match(target)
            return
        parts = name_parts(target)
        for path, folder in (*self._replaced(near), *self._modules):
            if starts_with(parts, path):
                yield ModuleMatch((*name_parts(folder), *parts[len(path) :]))
                return

    def _replaced(self, near: str) -> Iterator[tuple[list[str], str]]:
        """Yield the module paths that are replaced by a folder, with the folder."""
        above = folders_above(near)
        nearest = next((folder for folder in above if folder in self._manifests), None)
        for folder in above:
            manifest = self._manifests[folder] if folder == nearest else self._workspaces.get(folder)
            for old, (new, *_) in (manifest.paths if manifest else {}).items():
                if not (place := path_below(folder, new)).startswith(".."):
                    yield name_parts(old), place
