"""List the files of a folder on disk, without those that are ignored, installed, built or hidden."""

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EACCES
from pathlib import Path

from graphrerank_documents.ignore_rules import IGNORE_FILE, MAX_BYTES, IgnoreRule, IgnoreRules, parse_rules
from graphrerank_documents.redirects import Redirect
from graphrerank_documents.selection import (
    EXCLUDED,
    IGNORED,
    FileSelection,
    usual_file_reason,
    usual_folder_reason,
)
from graphrerank_documents.sources import (
    DATASET_FOLDER,
    HIDDEN,
    FileList,
    LeftOut,
    is_dataset_folder,
    listed_name,
    unread_reason,
)

#: Maximum number of files to count in the folders that are left out. Links may point to the files counted.
MAX_COUNTED = 20_000
#: Reason to skip a symbolic link to a file. Links to it lead to the file.
SYMBOLIC_LINK = "a symbolic link"
#: Start of the reason why the files in a folder are not read.
NOT_OPENED = "folder cannot be opened"
#: Start of the reason why the patterns of an ignore file have no effect.
NO_RULES = "ignore file that cannot be opened, its patterns have no effect"
_GIT = ".git"
_MAX_PARENTS = 20  # maximum number of folders above the source whose ignore files are read


def list_folder(folder: Path, out: Path, selection: FileSelection) -> FileList:
    """List the files in a folder and its subfolders.

    Symbolic links are never followed. Data set folders are skipped.

    Args:
        folder: Folder of documents.
        out: Data set folder to exclude.
        selection: Choice of the files to read.

    Returns:
        Files to parse, other files, skipped files and files left out, with the reasons.
    """
    return _Walk(folder, out, selection).run()


@dataclass
class _LeftOutFiles:
    names: list[str] = field(default_factory=list)
    num_files: int = 0


class _Walk:
    """Walk through a folder.

    A folder that is left out is entered only if a pattern of ``--include`` may name a file in it. Its files inherit the
    reason.
    """

    def __init__(self, folder: Path, out: Path, selection: FileSelection) -> None:
        self._folder, self._out, self._selection = folder, out, selection
        self._names: list[str] = []
        self._others: list[str] = []
        self._unread: defaultdict[str, list[str]] = defaultdict(list)
        self._left_out: defaultdict[str, _LeftOutFiles] = defaultdict(_LeftOutFiles)
        self._rules: dict[str, IgnoreRules] = {}  # rules by folder
        self._inherited: dict[str, str] = {}  # reason by folder that is entered although it is left out
        self._redirects: list[Redirect] = []  # symbolic links to files
        self._counted = 0

    def run(self) -> FileList:
        top = _rules_above(self._folder)
        for root, folders, files in os.walk(self._folder, onerror=self._note_error):
            path = _relative(Path(root), self._folder)
            if not os.access(root, os.X_OK):  # the names in the folder can be listed, but its files cannot be opened
                self._note(f"{NOT_OPENED}: {os.strerror(EACCES)}", path)
                folders.clear()
                continue
            rules = self._rules.get(path.rpartition("/")[0], top) if path else top
            self._rules[path] = rules.below(path, self._rules_of(Path(root) / IGNORE_FILE, path))
            folders[:] = [name for name in sorted(folders) if self._enters(Path(root, name), path, files)]
            for name in sorted(files):
                self._add_file(Path(root, name), path)
        left_out = {reason: LeftOut(each.names, each.num_files) for reason, each in self._left_out.items()}
        return FileList(self._names, self._others, self._unread, left_out, self._redirects)

    def _note_error(self, error: OSError) -> None:
        self._note(f"{NOT_OPENED}: {error.strerror}", _relative(Path(error.filename), self._folder))

    def _note(self, reason: str, path: str) -> None:
        self._unread[reason].append(listed_name(path))

    def _rules_of(self, file: Path, path: str) -> tuple[IgnoreRule, ...]:
        """Return the rules of an ignore file. If it cannot be opened, note the reason and return none."""
        try:
            return _read_rules(file)
        except OSError as error:
            self._note(f"{NO_RULES}: {error.strerror}", f"{path}/{IGNORE_FILE}".lstrip("/"))
            return ()

    def _enters(self, folder: Path, parent: str, siblings: list[str]) -> bool:
        """Return whether to walk through a folder. Otherwise, note the reason."""
        path = f"{parent}/{folder.name}".lstrip("/")
        if folder.name == _GIT:
            return False
        if folder.is_symlink():
            self._note("a symbolic link to a folder", path)
            return False
        with suppress(PermissionError):  # `os.walk` reports the error
            if folder.absolute() == self._out.absolute() or is_dataset_folder(lambda name: (folder / name).exists()):
                self._note(DATASET_FOLDER, path)
                return False
        reason = self._reason(path, is_folder=True) or self._inherited.get(parent, "")
        if not reason:
            reason = HIDDEN if folder.name.startswith(".") else ""
            reason = reason or usual_folder_reason(folder.name, siblings, lambda: _names_in(folder))
        if not reason or (reason != EXCLUDED and self._selection.includes(path, is_folder=True)):
            return True
        if reason != EXCLUDED and self._selection.includes_below(path):
            self._inherited[path] = reason
            return True
        if reason == HIDDEN:
            self._note(HIDDEN, f"{path}/")
        else:
            self._leave_out(reason, path, folder)
        return False

    def _reason(self, path: str, *, is_folder: bool) -> str:
        """Return the reason to leave a path out because of a pattern, or an empty string."""
        if self._selection.excludes(path, is_folder=is_folder):
            return EXCLUDED
        return IGNORED if self._rules[path.rpartition("/")[0]].excludes(path, is_folder=is_folder) else ""

    def _leave_out(self, reason: str, path: str, folder: Path) -> None:
        """Note a folder that is left out, and count its files. Links may point to them."""
        left_out = self._left_out[reason]
        left_out.names.append(f"{listed_name(path)}/")
        for root, _, files in os.walk(folder):
            inner = Path(root).relative_to(self._folder).as_posix()
            left_out.num_files += len(files)
            self._others += [f"{inner}/{name}" for name in files]
            self._counted += len(files)
            if self._counted > MAX_COUNTED:
                break

    def _add_file(self, path: Path, parent: str) -> None:
        name = f"{parent}/{path.name}".lstrip("/")
        reason = self._reason(name, is_folder=False) or self._inherited.get(parent, "") or usual_file_reason(path.name)
        is_included = self._selection.includes(name, is_folder=False)
        if reason and (reason == EXCLUDED or not is_included):
            self._left_out[reason].names.append(listed_name(name))
            self._left_out[reason].num_files += 1
            self._others.append(name)
        elif reason := _unread_reason(path, name, is_hidden_read=is_included):
            self._note(reason, name)
            self._others.append(name)
            if reason == SYMBOLIC_LINK and (target := _target_of(path)):
                self._redirects.append(Redirect(name, target))
        else:
            self._names.append(name)


def _unread_reason(path: Path, name: str, *, is_hidden_read: bool) -> str:
    """Return the reason to skip a file, or an empty string if it is to be parsed."""
    if path.name.startswith(".") and not is_hidden_read:
        return HIDDEN
    if path.is_symlink():
        return SYMBOLIC_LINK
    if not path.is_file():
        return "not a regular file"  # reading from a named pipe would block forever
    return unread_reason(name, path.stat().st_size, is_hidden_read=is_hidden_read)


def _target_of(path: Path) -> str:
    """Return the relative path to which a symbolic link points, or an empty string if its target is absolute."""
    with suppress(OSError):
        target = path.readlink()
        return "" if target.is_absolute() else target.as_posix()
    return ""


def _names_in(folder: Path) -> list[str]:
    with suppress(OSError):
        return [path.name for path in folder.iterdir()]
    return []


def _read_rules(path: Path) -> tuple[IgnoreRule, ...]:
    """Return the rules of an ignore file, or none if there is no such regular file."""
    if not path.is_file() or path.is_symlink():
        return ()
    with path.open("rb") as file:
        return parse_rules(file.read(MAX_BYTES).decode("utf-8", "replace").split("\n"))


def _rules_above(folder: Path) -> IgnoreRules:
    """Return the rules of the ignore files above a folder that is within a git repository."""
    folder = folder.absolute()
    parents = folder.parents[:_MAX_PARENTS]
    top = next((parent for parent in parents if (parent / _GIT).exists()), None)
    if top is None or (folder / _GIT).exists():
        return IgnoreRules()
    files = []
    for parent in reversed(parents[: parents.index(top) + 1]):
        with suppress(OSError):  # files above the source are not part of the report
            if rules := _read_rules(parent / IGNORE_FILE):
                files.append((_relative(parent, top), rules))
    return IgnoreRules(files, prefix=_relative(folder, top))


def _relative(path: Path, folder: Path) -> str:
    """Return the path of a folder relative to another one, or an empty string if both are the same."""
    return "/".join(path.relative_to(folder).parts)
