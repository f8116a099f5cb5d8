"""Read the objects of a git repository, in the processes of :mod:`~graphrerank_documents.git_repository`.

Nothing is checked out. Names in a repository are never used as paths on disk, because libgit2 returns any name in a
tree, such as ``/etc/x`` and ``../x``. The limits of the processes bound the size and number of objects.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice, zip_longest
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank.installation.extras import optional
from graphrerank_documents.limited_processes import Handler
from graphrerank_documents.passages import passages_of
from graphrerank_documents.readers import suffix_of
from graphrerank_documents.reading import read_content
from graphrerank_documents.selection import usual_file_reason, usual_folder_reason
from graphrerank_documents.site import MAX_CONFIG, NAMING, is_near
from graphrerank_documents.sources import DATASET_FOLDER, is_dataset_folder, listed_name, unread_reason

#: Maximum size of a version of a file in bytes. Larger files are usually generated.
MAX_BYTES = 2_000_000
#: Maximum number of entries of a tree, depth of nested folders, and bytes of a file name.
MAX_ENTRIES, MAX_DEPTH, MAX_NAME = 1_000_000, 100, 255
#: Reason to skip a file whose name is invalid on some file system.
NO_NAME = "invalid file name"
#: Minimum number of words of a question, and number of words after which it is truncated.
MIN_WORDS, MAX_QUESTION_WORDS = 3, 60
#: Maximum number of characters of a commit's subject; the rest is ignored.
MAX_QUESTION_CHARS = 10_000
_CACHE = 1 << 26  # cache size of libgit2 in bytes per process
_REGULAR, _FOLDER, _KIND_BITS = 0o100000, 0o040000, 0o170000
_REVERT = re.compile(r"^revert\b|^This reverts commit", re.IGNORECASE | re.MULTILINE)
_KIND = re.compile(r"^(?:\w{2,12}(?:\([^()]*\))?!?:\s+|\[[^\[\]]{1,30}\]\s*)+")  # "fix(core): ", "[3.12] "
_NUMBER = re.compile(r"\s*\(?(?:\b(?:fix\w*|close\w*|resolve\w*|refs?|see|gh|pr)[\s:-]*)?#\d+\)?", re.IGNORECASE)
_ISSUE = re.compile(r"(?:#|\bgh-)(\d+)", re.IGNORECASE)
_BOT = re.compile(r"\[bot\]|pre-commit|dependabot|renovate", re.IGNORECASE)
_UPDATED = r"changelog|authors|version|dependenc(?:y|ies)|deps|requirements"
_ROUTINE = re.compile(
    rf"^(?:bump|merge|(?:prepare )?release|v?\d+\.\d+|(?:update|upgrade|pin)\b.*\b(?:{_UPDATED}))\b", re.IGNORECASE
)


class ChangedFile(NamedTuple):
    """Version of a file before a commit that changed it.

    Attributes:
        path: Path within the tree. Never opened on disk.
        blob: Id of the content.
        lines: First and last line of each change, 1-based.
    """

    path: str
    blob: str
    lines: tuple[tuple[int, int], ...]


class FileChange(NamedTuple):
    """Commit that can be used as a question, or the reason to skip it.

    Attributes:
        reason: Reason to skip the commit, or empty if it can be used.
        parent: Id of the parent commit.
        query_id: Id of the question.
        question: Text of the question.
        files: Files that the commit modified.
        failed: Whether reading the commit exceeded a limit or crashed its process.
    """

    reason: str
    parent: str = ""
    query_id: str = ""
    question: str = ""
    files: tuple[ChangedFile, ...] = ()
    failed: bool = False


class PassageSpan(NamedTuple):
    """Lines of a passage in a version of a file.

    Attributes:
        start: First line, 1-based.
        end: Last line.
        id: Id of the passage.
    """

    start: int
    end: int
    id: str


class TreeFile(NamedTuple):
    """File in a tree.

    Attributes:
        path: Path within the tree. Each component is a valid file name.
        blob: Id of the content.
        size: Number of bytes.
    """

    path: str
    blob: str
    size: int


class TreeList(NamedTuple):
    """Files in a tree.

    Attributes:
        files: Files to parse.
        unread: Skipped files and folders, by reason.
        naming: Those of :data:`~graphrerank_documents.site.NAMING` that the tree contains.
        failure: Reason why the tree cannot be listed, or empty.
    """

    files: tuple[TreeFile, ...] = ()
    unread: Mapping[str, Sequence[str]] = {}
    naming: tuple[str, ...] = ()
    failure: str = ""


def reader_of_repository(settings: Mapping[str, Any]) -> Handler:
    """Return the function with which a process reads objects of a repository.

    Args:
        settings: Arguments of :class:`GitReader`.

    Returns:
        Function that calls a method of :class:`GitReader`. It takes a list of the method's name and its arguments.
    """
    reader = GitReader(**settings)

    def answer(message: Sequence[str]) -> bytes:
        name, *arguments = message
        content: bytes = getattr(reader, name)(*arguments)
        return content

    return answer


class _TreeEntry(NamedTuple):
    """Entry of a tree. The name is untrusted."""

    name: str
    mode: int
    id: Any

    @property
    def kind(self) -> int:
        return self.mode & _KIND_BITS


class _TreeDifference(NamedTuple):
    """File that differs between two trees.

    Attributes:
        path: Path of the file.
        old: Entry in the first tree, or None if the file does not exist in it.
        new: Entry in the second tree, or None if the file does not exist in it.
    """

    path: str
    old: _TreeEntry | None
    new: _TreeEntry | None


class GitReader:
    """Reader of objects in an untrusted repository. The methods return JSON for the parent process.

    Args:
        path: Path of the repository.
        titles: Titles of issues by number.
        max_files: Maximum number of files that a commit changes.
        max_words: Maximum number of words per passage.
    """

    def __init__(self, path: str, titles: Mapping[str, str], max_files: int, max_words: int) -> None:
        self._git = optional("pygit2", "graphrerank build git")
        self._git.settings.cache_max_size(_CACHE)
        self._repository = self._git.Repository(path)
        self._titles, self._max_files, self._max_words = titles, max_files, max_words

    def commits(self, head: str) -> bytes:
        """Return the ids of all commits, oldest first.

        Args:
            head: Id of the last commit.
        """
        order = self._git.enums.SortMode
        walk = self._repository.walk(head, order.TOPOLOGICAL | order.TIME | order.REVERSE)
        return json.dumps([str(commit.id) for commit in walk]).encode()

    def change(self, commit_id: str) -> bytes:
        """Return a :class:`FileChange` with the question of a commit, or the reason to skip it.

        Args:
            commit_id: Id of the commit.
        """
        try:
            change = self._change(self._repository[commit_id])
        except (self._git.GitError, KeyError):
            change = FileChange("versions that a partial clone lacks")
        except (ValueError, RecursionError) as error:  # for example, names that are not valid UTF-8
            change = FileChange(f"commit that cannot be read ({type(error).__name__})")
        return json.dumps(change).encode()

    def _change(self, commit: Any) -> FileChange:
        question, query_id = _question(commit, self._titles)
        reasons = {
            "first commit": not commit.parents,
            "merge": len(commit.parents) > 1,
            "revert": _REVERT.search(commit.message),
            "bot, release or version": _BOT.search(f"{commit.author.name} {commit.author.email}")
            or _ROUTINE.match(question),
            f"message of fewer than {MIN_WORDS} words": len(question.split()) < MIN_WORDS,
        }
        for reason, applies in reasons.items():
            if applies:
                return FileChange(reason)
        parent = commit.parents[0]
        changed = list(islice(self._differences(parent.tree.id, commit.tree.id), self._max_files + 1))
        if len(changed) > self._max_files:
            return FileChange(f"changes more than {self._max_files} files")
        changed.sort(key=lambda file: file.path.encode("utf-8", "surrogateescape"))
        if any(_names(commit.message, file.path) for file in changed if file.old is not None and file.new is not None):
            return FileChange("message names a file that it changes")
        files = tuple(filter(None, map(self._changed_file, changed)))
        return FileChange("", str(parent.id), query_id, question, files)

    def _differences(self, before: Any, after: Any) -> Iterator[_TreeDifference]:
        """Yield the files that differ between two trees.

        A file that becomes a link or folder is removed and added, as in libgit2's diff. Unlike in libgit2, identical
        subtrees are not opened.
        """
        pending = [("", before, after)]
        opened = 0
        while pending:
            folder, old_tree, new_tree = pending.pop()
            opened += 1
            if opened > MAX_ENTRIES:
                raise ValueError("more folders than a tree may have")
            old_entries = self._entries_by_name(old_tree)
            new_entries = self._entries_by_name(new_tree)
            for name, kind in sorted({*old_entries, *new_entries}):
                old, new = old_entries.get((name, kind)), new_entries.get((name, kind))
                if old and new and (old.id, old.mode) == (new.id, new.mode):
                    continue
                path = f"{folder}{name}"
                if kind == _FOLDER:
                    pending.append((f"{path}/", old and old.id, new and new.id))
                else:
                    yield _TreeDifference(path, old, new)

    def _entries_by_name(self, tree: Any) -> dict[tuple[str, int], _TreeEntry]:
        """Return the entries of a tree by name and kind, none for a tree that does not exist."""
        return {} if tree is None else {(entry.name, entry.kind): entry for entry in self._entries(tree)}

    def _changed_file(self, change: _TreeDifference) -> ChangedFile | None:
        """Return the changed lines of a text file, or None for other files and those that were added or removed."""
        path, old, new = change
        if old is None or new is None:
            return None
        if old.kind != _REGULAR or not suffix_of(path) or old.id == new.id:
            return None
        before, after = self._repository[old.id], self._repository[new.id]
        if before.size > MAX_BYTES or after.size > MAX_BYTES or before.is_binary or after.is_binary:
            return None
        lines = tuple(
            (hunk.old_start + (not hunk.old_lines), hunk.old_start + max(hunk.old_lines - 1, 0))
            for hunk in before.diff(after, context_lines=0).hunks
        )
        return ChangedFile(path, str(old.id), lines)

    def passages(self, path: str, blob: str) -> bytes:
        """Return the passages of a version of a file. A file in an invalid format has none.

        Args:
            path: Path within the tree, which determines the format.
            blob: Id of the content.
        """
        spans = []
        for document in read_content(self._repository[blob].data, path).documents:
            passages = list(passages_of(document, max_words=self._max_words))
            for passage, following in zip_longest(passages, passages[1:]):
                is_cut = following is not None and following.section == passage.section
                last = following.line - 1 if is_cut else document.sections[passage.section].end
                spans.append(PassageSpan(passage.line, last, passage.id))
        return json.dumps(spans).encode()

    def files(self, commit: str) -> bytes:
        """Return a :class:`TreeList` of the files in a commit's tree.

        Args:
            commit: Id of the commit.
        """
        unread: defaultdict[str, list[str]] = defaultdict(list)
        files: list[TreeFile] = []
        naming = set[str]()
        count = 0
        pending = [("", self._repository[commit].tree.id)]
        while pending:
            folder, tree = pending.pop()
            entries = self._entries(tree)
            count += len(entries)
            if count > MAX_ENTRIES:
                return json.dumps(TreeList(failure=f"more than {MAX_ENTRIES:,} files")).encode()
            if folder and is_dataset_folder({entry.name for entry in entries}.__contains__):
                unread[DATASET_FOLDER].append(listed_name(folder[:-1]))
                continue
            folders = []
            seen = set[str]()
            names = {entry.name for entry in entries}
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = f"{folder}{entry.name}"
                if entry.name in NAMING and is_near(PurePosixPath(folder)):
                    naming.add(entry.name)
                if entry.kind not in (_REGULAR, _FOLDER):
                    continue  # links and submodules
                if not _is_plain(entry.name) or entry.name in seen:
                    unread[NO_NAME].append(listed_name(path))
                elif entry.kind == _REGULAR and (reason := usual_file_reason(entry.name)):
                    unread[reason].append(listed_name(path))
                elif entry.kind == _FOLDER and (reason := self._usual_reason(entry, names)):
                    unread[reason].append(listed_name(f"{path}/"))
                elif entry.kind == _REGULAR and suffix_of(entry.name):
                    self._note_file(path, entry.id, files, unread)
                elif entry.kind == _FOLDER and folder.count("/") >= MAX_DEPTH:
                    unread[f"more than {MAX_DEPTH} nested folders"].append(listed_name(path))
                elif entry.kind == _FOLDER and not entry.name.startswith("."):
                    folders.append((f"{path}/", entry.id))
                seen.add(entry.name)
            pending += reversed(folders)
        return json.dumps(TreeList(tuple(files), unread, tuple(sorted(naming)))).encode()

    def _entries(self, tree: Any) -> list[_TreeEntry]:
        """Return the entries of a tree, including those with invalid names."""
        return [
            _TreeEntry(entry.raw_name.decode("utf-8", "surrogateescape"), int(entry.filemode), entry.id)
            for entry in self._repository[tree]
        ]

    def _usual_reason(self, folder: _TreeEntry, siblings: Set[str]) -> str:
        """Return the reason to leave a folder out by its name, such as ``node_modules``, or an empty string."""
        return usual_folder_reason(folder.name, siblings, lambda: [entry.name for entry in self._entries(folder.id)])

    def _note_file(self, path: str, blob: Any, files: list[TreeFile], unread: defaultdict[str, list[str]]) -> None:
        """Add a file to the files to parse, or to the skipped files with the reason."""
        try:
            size = self._repository[blob].size
        except (self._git.GitError, KeyError, MemoryError):
            unread["content cannot be opened"].append(listed_name(path))
            return
        if reason := unread_reason(path, size):
            unread[reason].append(listed_name(path))
        else:
            files.append(TreeFile(path, str(blob), size))

    def document(self, path: str, blob: str, read_as: str = "") -> bytes:
        """Return the record of a :class:`~graphrerank_documents.reading.ReadFile` with the documents of a file.

        Args:
            path: Path within the tree, which determines the format.
            blob: Id of the content.
            read_as: Suffix of the format. Defaults to that of the path.
        """
        return read_content(self._repository[blob].data, path, read_as).record

    def config(self, blob: str) -> bytes:
        """Return the first bytes of a configuration file.

        Args:
            blob: Id of the content.
        """
        content: bytes = self._repository[blob].data[:MAX_CONFIG]
        return content


def _is_plain(name: str) -> bool:
    """Return whether a name is a valid file name on every system."""
    is_short = 0 < len(name.encode("utf-8", "surrogateescape")) <= MAX_NAME
    return is_short and name not in (".", "..") and not set(name) & set("/\\\0") and not re.match("[A-Za-z]:", name)


def _question(commit: Any, titles: Mapping[str, str]) -> tuple[str, str]:
    """Return the question of a commit and its id, from the issue in its message or from the subject."""
    for number in _ISSUE.findall(commit.message):
        if number in titles:
            return titles[number], f"issue-{number}"
    first_line = " ".join(commit.message.strip().partition("\n")[0][:MAX_QUESTION_CHARS].split())
    subject = _NUMBER.sub("", _KIND.sub("", first_line)).strip(" .:-")
    return " ".join(subject.split()[:MAX_QUESTION_WORDS]), str(commit.id)[:12]


def _names(message: str, path: str) -> bool:
    """Return whether a message names a file: its file name, or its module if that has a dot or an underscore."""
    file = PurePosixPath(path.lower())
    dotted = ".".join(file.with_suffix("").parts)
    names = [file.name]
    if "." in dotted:
        names.append(dotted)
    if "_" in file.stem.strip("_"):
        names.append(file.stem)
    return re.search(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, names))})(?![\w/-])", message.lower()) is not None
