"""Imports of JavaScript and TypeScript: relative paths, ``paths`` of tsconfig files, and packages of a workspace."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from posixpath import dirname, join
from typing import NamedTuple

from graphrerank_documents.imports.base import (
    CodeFiles,
    ModuleMatch,
    ModuleResolver,
    top_match,
)
from graphrerank_documents.imports.manifest import PackageManifest
from graphrerank_documents.module_names import name_parts
from graphrerank_documents.paths import folders_above, path_below

_TYPESCRIPT, _JAVASCRIPT = (".ts", ".tsx", ".d.ts", ".mts", ".cts"), (".js", ".jsx", ".mjs", ".cjs")
_COMPONENTS = (".vue", ".svelte", ".astro")
#: Suffixes in TypeScript for each suffix that an import writes.
_SOURCES = {
    ".js": (".ts", ".tsx", ".d.ts"),
    ".jsx": (".tsx", ".d.ts"),
    ".mjs": (".mts", ".d.mts"),
    ".cjs": (".cts", ".d.cts"),
}
_SUFFIXES = (".d.ts", ".d.mts", ".d.cts", *_TYPESCRIPT, *_JAVASCRIPT, ".json")
#: Folders of built files, whose sources are next to them or in ``src``.
_BUILT = frozenset(("dist", "build", "lib", "out", "es", "esm", "cjs", "umd", "types", "typings", "dist-types"))
_LOCAL = ("file:", "link:", "workspace:", "portal:")
_MAX_INHERITED = 10


class ScriptResolver(ModuleResolver):
    """Resolve module specifiers as TypeScript and bundlers do, with sources in place of built files.

    - A path beginning with a dot is relative to the file. Suffixes and ``index`` files are found as in TypeScript; a
      suffix ``.js`` may stand for a file in TypeScript.
    - Other specifiers are looked up in ``paths`` and ``baseUrl`` of the nearest ``tsconfig.json`` or ``jsconfig.json``
      with such settings, including those that it extends.
    - The name of a package leads to its ``exports``, ``main`` and so on if the package and the file are in one
      workspace, or the dependency is local. Entries that were built and are absent lead to their sources.
    - ``#name`` is looked up in ``imports`` of the nearest ``package.json``, and ``@/`` without a setting is ``src``.

    Args:
        code: Files of the folder.
    """

    family = "script"

    def __init__(self, code: CodeFiles) -> None:
        super().__init__(code)
        self._files = code.documents
        self._packages = code.manifests_named("package.json")
        self._by_name = {each.name: folder for folder, each in reversed(self._packages.items()) if each.name}
        workspaces = ("package.json", "pnpm-workspace.yaml", "lerna.json")
        self._members = [
            (folder, manifest.members)
            for name in workspaces
            for folder, manifest in code.manifests_named(name).items()
            if manifest.members
        ]
        self._configs: defaultdict[str, list[str]] = defaultdict(list)
        for path in sorted(filter(_is_config, code.manifests), key=_config_rank):
            self._configs[dirname(path)].append(path)
        self._file = cache(self._find_file)
        self._paths_for = cache(self._find_paths)

    def resolve(self, target: str, near: str) -> Iterator[ModuleMatch]:
        """Yield the files to which an import may refer.

        Args:
            target: Module specifier, ``#`` and a name of the module. A relative specifier is written as a path from the
                top folder that begins with ``/``. Without ``#``, a name from the top folder.
            near: Path of the file with the import.

        Yields:
            Files, and names within them.
        """
        specifier, has_names, names = split_target(target)
        if not has_names:
            if target.startswith("/"):
                yield top_match(target)
            return
        for file in self._located(specifier, near):
            yield ModuleMatch(tuple(name_parts(names)), file)

    def is_within(self, target: str, near: str) -> bool:
        """Return whether an import refers to the folder. Imports of other files, such as pictures, do not.

        Args:
            target: Target, as in :meth:`resolve`.
            near: Path of the file with the import.
        """
        specifier, has_names, _ = split_target(target)
        if not has_names or next(self._located(specifier, near), None) is not None:
            return target.startswith("/") or has_names
        if specifier.startswith("/"):
            return specifier[1:].partition("?")[0] not in self.code.others
        return self._package_for(specifier, near) is not None

    def _located(self, specifier: str, near: str) -> Iterator[str]:
        specifier = specifier.partition("?")[0]
        if specifier.startswith("/"):
            paths: Iterator[str] = iter((specifier[1:],))
        elif specifier.startswith("#"):
            paths = self._private(specifier, near)
        else:
            paths = self._absolute(specifier, near)
        for path in paths:
            if (file := self._file(path)) is not None:
                yield file
                return

    def _absolute(self, specifier: str, near: str) -> Iterator[str]:
        for folder in folders_above(near):
            if (settings := self._paths_for(folder)) is not None:
                yield from _substituted(specifier, settings)
                break
        if package := self._package_for(specifier, near):
            yield from self._entries(*package)
        if specifier.startswith(("@/", "~/")):
            head, source, _ = f"/{near}".rpartition("/src/")
            yield f"{head}{source}{specifier[2:]}".lstrip("/")

    def _private(self, specifier: str, near: str) -> Iterator[str]:
        folder = next((each for each in folders_above(near) if each in self._packages), None)
        for file in _mapped(specifier, self._packages[folder].paths) if folder is not None else ():
            yield from _sources(path_below(folder or "", file))

    def _package_for(self, specifier: str, near: str) -> tuple[str, str] | None:
        """Return the folder of the package that a specifier names, and the path in it, or None."""
        parts = specifier.split("/")
        length = 2 if specifier.startswith("@") else 1
        name, inner = "/".join(parts[:length]), "/".join(parts[length:])
        folder = self._by_name.get(name)
        if folder is None:
            return None
        own = next((each for each in folders_above(near) if each in self._packages), None)
        version = self._packages[own].uses.get(name, "") if own is not None else ""
        is_local = folder == own or version.startswith(_LOCAL) or self._share_workspace(folder, near)
        return (folder, inner) if is_local or (version and not self._members) else None

    def _share_workspace(self, folder: str, near: str) -> bool:
        for top, patterns in self._members:
            inner = folder[len(top) + 1 :] if top else folder
            if f"{near}/".startswith(f"{top}/" if top else "") and (not top or folder.startswith(f"{top}/")):
                negated = [each[1:].strip("/") for each in patterns if each.startswith("!")]
                if any(_is_member(inner, each) for each in patterns) and not any(
                    _is_member(inner, each) for each in negated
                ):
                    return True
        return False

    def _entries(self, folder: str, inner: str) -> Iterator[str]:
        """Yield the files that a path in a package may lead to."""
        manifest = self._packages[folder]
        for file in _mapped(f"./{inner}" if inner else ".", manifest.paths):
            yield from _sources(path_below(folder, file))
        bases = ("", "src") if inner else ("src", "", "lib")
        yield from (path_below(folder, join(base, inner)) for base in bases)
        if not inner:
            yield path_below(folder, f"src/{manifest.name.rpartition('/')[2]}")

    def _find_file(self, path: str) -> str | None:
        """Return the file at a path without or with a suffix, or the index of a folder."""
        path = path_below("", path)
        stem = next((path[: -len(suffix)] for suffix in _SOURCES if path.endswith(suffix)), "")
        candidates = [f"{stem}{suffix}" for suffix in _SOURCES.get(path[len(stem) :], ())] if stem else []
        candidates += [path, *(f"{path}{suffix}" for suffix in (*_TYPESCRIPT, *_JAVASCRIPT, ".json", *_COMPONENTS))]
        if (file := next((each for each in candidates if each in self._files), None)) is not None:
            return file
        if path in self._packages and path:
            for entry in self._packages[path].paths.get(".", ()):
                if file := next((each for each in _sources(path_below(path, entry)) if each in self._files), None):
                    return file
        indexes = (path_below(path, f"index{suffix}") for suffix in (*_TYPESCRIPT, *_JAVASCRIPT))
        return next((each for each in indexes if each in self._files), None)

    def _find_paths(self, folder: str) -> PackageManifest | None:
        """Return the settings of the tsconfig files in a folder, with paths from the top folder, or None.

        ``tsconfig.json`` comes first, then the files that it extends, then others such as ``tsconfig.app.json``.
        """
        seen: set[str] = set()
        pending = [*self._configs.get(folder, ())]
        roots: tuple[str, ...] = ()
        while pending and len(seen) < _MAX_INHERITED:
            path = pending.pop(0)
            if path in seen:
                continue
            seen.add(path)
            manifest, place = self.code.manifests[path], dirname(path)
            roots = roots or tuple(path_below(place, root) for root in manifest.roots)
            if manifest.paths:
                paths = {key: tuple(path_below(place, each) for each in value) for key, value in manifest.paths.items()}
                return PackageManifest(roots=roots, paths=paths)
            pending = [*(each for base in manifest.inherits for each in self._inherited(base, place)), *pending]
        return PackageManifest(roots=roots) if roots else None

    def _inherited(self, base: str, folder: str) -> Iterator[str]:
        """Yield the tsconfig file that another one extends."""
        if base.startswith("."):
            path = path_below(folder, base)
        else:
            parts = base.split("/")
            length = 2 if base.startswith("@") else 1
            package = self._by_name.get("/".join(parts[:length]))
            path = path_below(package, "/".join(parts[length:]) or "tsconfig.json") if package is not None else base
        yield from (each for each in (path, f"{path}.json", f"{path}/tsconfig.json") if each in self.code.manifests)


class ScriptTarget(NamedTuple):
    """Target of an import, divided into the module and a name in it.

    Attributes:
        module: Module specifier, or the whole target if it has none.
        is_specifier: Whether the target has a module specifier.
        names: Dotted names in the module, or empty.
    """

    module: str
    is_specifier: bool
    names: str


def split_target(target: str) -> ScriptTarget:
    """Split the target of an import into module and names.

    Args:
        target: Target as in :meth:`ScriptResolver.resolve`.

    Returns:
        Module specifier, whether it is one, and the dotted names in the module.

    Example:
        >>> split_target("#shared/x#Motor.start")
        ScriptTarget(module='#shared/x', is_specifier=True, names='Motor.start')
        >>> split_target("/web.app.run")
        ScriptTarget(module='/web.app.run', is_specifier=False, names='')
    """
    end = target.find("#", 1)
    return ScriptTarget(target, False, "") if end < 0 else ScriptTarget(target[:end], True, target[end + 1 :])


def _substituted(specifier: str, settings: PackageManifest) -> Iterator[str]:
    """Yield the paths of a specifier by the pattern of ``paths`` with the longest prefix, then by ``baseUrl``."""
    yield from _mapped(specifier, settings.paths)
    for root in settings.roots:
        yield path_below(root, specifier)


def _mapped(name: str, paths: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the files mapped to a name or, if there are none, to the pattern with the longest prefix before ``*``."""
    if name in paths:
        yield from paths[name]
        return
    patterns = (pattern for pattern in paths if pattern.count("*") == 1)
    for pattern in sorted(patterns, key=lambda each: -len(each.partition("*")[0])):
        head, _, tail = pattern.partition("*")
        if name.startswith(head) and name.endswith(tail) and len(name) >= len(head) + len(tail):
            inner = name[len(head) : len(name) - len(tail)]
            yield from (each.replace("*", inner) for each in paths[pattern])
            return


def _sources(path: str) -> Iterator[str]:
    """Yield a path and, for a built file, the possible paths of its source."""
    yield path
    bare = next((path[: -len(suffix)] for suffix in _SUFFIXES if path.endswith(suffix)), path)
    yield from (f"{bare}{suffix}" for suffix in (*_TYPESCRIPT, *_JAVASCRIPT))
    folders = bare.split("/")
    for index, folder in enumerate(folders):
        if folder in _BUILT:
            outer, inner = folders[:index], folders[index + 1 :]
            while inner and inner[0] in (*_BUILT, "src"):
                inner = inner[1:]
            for source_folder in (["src"], []):
                base = "/".join([*outer, *source_folder, *inner])
                yield from (f"{base}{suffix}" for suffix in (*_TYPESCRIPT, *_JAVASCRIPT))
            return


def _is_member(folder: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./").strip("/")
    if "**" in pattern:
        return fnmatchcase(folder, pattern) or fnmatchcase(folder, pattern.replace("/**", ""))
    return fnmatchcase(folder, pattern) and folder.count("/") == pattern.count("/")


def _is_config(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(("tsconfig", "jsconfig")) and name.endswith(".json")


def _config_rank(path: str) -> tuple[int, str]:
    """Order the tsconfig files of a folder by precedence."""
    order = ("tsconfig.json", "jsconfig.json")
    name = path.rpartition("/")[2]
    return (order.index(name) if name in order else len(order)), path
