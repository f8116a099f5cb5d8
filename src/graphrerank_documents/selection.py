"""Choose the files of a source to read: ignored, installed, built and locked files are left out."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from graphrerank_documents.ignore_rules import IgnoreRules, parse_rules


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Reasons to leave a file or folder out.
IGNORED, EXCLUDED = "named by .gitignore", "named by --exclude"
INSTALLED, LOCK_FILE, GENERATED = "installed or built", "lock file", "generated"
#: Folders that package managers and interpreters fill.
INSTALLED_FOLDERS = _words(
    "node_modules bower_components jspm_packages site-packages dist-packages __pycache__ __pypackages__ htmlcov"
)
#: Folders that build tools fill, unless pages are written in them by hand.
BUILT_FOLDERS = frozenset(("dist", "build", "target", "_build"))
#: Files in a folder next to which a build tool writes its results.
_BUILD_FILES = _words(
    "package.json package-lock.json pyproject.toml setup.py setup.cfg Cargo.toml pom.xml build.gradle build.gradle.kts"
    " Makefile CMakeLists.txt meson.build go.mod conf.py build.sbt mkdocs.yml"
)
_SOURCE = re.compile(r"(?<!\.d)\.(?:go|rs|tsx?)\Z|\A__init__\.py\Z")
_PAGE = re.compile(r"\.(?:md|markdown|mdx|qmd|rmd|rst|adoc|asciidoc|org)\Z", re.IGNORECASE)
LOCK_FILES = _words(
    "package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock Cargo.lock poetry.lock"
    " uv.lock pdm.lock pylock.toml Pipfile.lock conda-lock.yml pixi.lock composer.lock composer-lock.json Gemfile.lock"
    " go.sum go.work.sum flake.lock mix.lock Podfile.lock Package.resolved packages.lock.json project.assets.json"
    " gradle.lockfile pubspec.lock .terraform.lock.hcl MODULE.bazel.lock"
)
_GENERATED = re.compile(r"[.-]min\.(?:js|mjs|css)\Z|\.(?:bundle|chunk)\.(?:js|mjs|css)\Z|\.map\Z", re.IGNORECASE)


@dataclass(frozen=True)
class FileSelection:
    """Choice of the files to read.

    By default, files are left out that ``.gitignore`` names, that were installed or built, lock files, minified files
    and hidden files.

    Attributes:
        exclude: Patterns in the syntax of ``.gitignore`` that leave further files and folders out.
        include: Patterns that read files and folders although they would be left out. ``exclude`` takes precedence.
        everything: Whether to read all files, including hidden ones, except those that ``exclude`` names. The folder
            ``.git`` is never read.
    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    everything: bool = False

    @cached_property
    def _excluded(self) -> IgnoreRules:
        return IgnoreRules([("", parse_rules(self.exclude))])

    @cached_property
    def _included(self) -> IgnoreRules:
        return IgnoreRules([("", parse_rules(self.include))])

    def excludes(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a pattern of :attr:`exclude` names a path.

        Args:
            path: Path of a file or folder, relative to the source.
            is_folder: Whether the path is a folder.
        """
        return self._excluded.excludes(path, is_folder=is_folder)

    def includes(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path is read although it would be left out.

        Args:
            path: Path of a file or folder, relative to the source.
            is_folder: Whether the path is a folder.
        """
        return self.everything or self._included.excludes(path, is_folder=is_folder)

    def includes_below(self, folder: str) -> bool:
        """Return whether a pattern of :attr:`include` matches a file below a folder, such as ``docs/build/guide.md``.

        Args:
            folder: Path of the folder, relative to the source.
        """
        return any(pattern.lstrip("/").startswith(f"{folder}/") for pattern in self.include)


def usual_folder_reason(name: str, siblings: Collection[str], names_in: Callable[[], Iterable[str]]) -> str:
    """Return the reason to leave a folder out by its name, or an empty string.

    A folder ``build``, ``dist``, ``target`` or ``_build`` with source code, such as a package of Go or Python, is read.
    With pages in a markup language, the folder is documentation unless the file of a build tool is next to it.

    Args:
        name: Name of the folder.
        siblings: Names of the files next to the folder.
        names_in: Function that returns the names of the files in the folder.
    """
    if name in INSTALLED_FOLDERS or name.endswith((".egg-info", ".dist-info")):
        return INSTALLED
    if name in ("venv", "env"):
        names = {*names_in()}
        is_environment = "pyvenv.cfg" in names or (name == "venv" and "__init__.py" not in names)
        return INSTALLED if is_environment else ""
    if name == "vendor" and not {"modules.txt", "autoload.php", "bundle"}.isdisjoint(names_in()):
        return INSTALLED
    if name in BUILT_FOLDERS:
        names = {*names_in()}
        has_pages = any(map(_PAGE.search, names)) and _BUILD_FILES.isdisjoint(siblings)
        return "" if has_pages or any(map(_SOURCE.search, names)) else INSTALLED
    return ""


def usual_file_reason(name: str) -> str:
    """Return the reason to leave a file out by its name, or an empty string.

    Args:
        name: Name of the file.
    """
    if name in LOCK_FILES:
        return LOCK_FILE
    return GENERATED if _GENERATED.search(name) else ""
