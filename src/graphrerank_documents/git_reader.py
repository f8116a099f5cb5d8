"""Read the objects of a git repository, in the processes of :mod:`~graphrerank_documents.git_repository`.

Nothing is checked out, and no name in a repository is a path here: libgit2 hands out whatever names its trees hold,
such as ``/etc/x`` and ``../x``. Objects may be of any size and number, as the processes have limits.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank.installation.extras import optional
from graphrerank_documents.limited_processes import Handler
from graphrerank_documents.passages import passages_of
from graphrerank_documents.readers import suffix_of
from graphrerank_documents.reading import read_content
from graphrerank_documents.site import MAX_CONFIG, NAMING, is_near
from graphrerank_documents.sources import DATASET_FOLDER, is_dataset_folder, listed_name, unread_reason

MAX_BYTES = 2_000_000  # of a version of a file; larger ones are generated
MAX_ENTRIES, MAX_DEPTH, MAX_NAME = 1_000_000, 100, 255  # entries of a tree, folders within each other, bytes of a name
NO_NAME = "a name that a file cannot have"
MIN_WORDS, MAX_QUESTION_WORDS = 3, 60
MAX_QUESTION_CHARS = 10_000  # of a subject that is looked at
_CACHE = 1 << 26  # bytes of objects that a process keeps
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
    """A file that a commit changed, as it was before.

    Attributes:
        path: The path, which is a name and nothing that is opened.
        blob: The id of the content.
        lines: First and last line of each change.
    """

    path: str
    blob: str
    lines: tuple[tuple[int, int], ...]


class FileChange(NamedTuple):
    """A commit that asks a question, or the reason why it asks none.

    Attributes:
        reason: Why the commit is left out; empty if it asks.
        parent: The id of the commit before it.
        query_id: The id of the question.
        question: Its text.
        files: The files that the commit changed.
    """

    reason: str
    parent: str = ""
    query_id: str = ""
    question: str = ""
    files: tuple[ChangedFile, ...] = ()


class PassageSpan(NamedTuple):
    """A passage of a version of a file.

    Attributes:
        start: Its first line.
        end: Its last line.
        id: Its id.
    """

    start: int
    end: int
    id: str


class TreeFile(NamedTuple):
    """A file of a tree.

    Attributes:
        path: The path within the tree, whose parts are plain names.
        blob: The id of the content.
        size: Number of bytes.
    """

    path: str
    blob: str
    size: int


class TreeList(NamedTuple):
    """The files of a tree.

    Attributes:
        files: Files to read.
        unread: Files and folders that are not read, by the reason.
        by_name: Whether there is a configuration of :data:`~graphrerank_documents.site.NAMING`.
        failure: Why there is no list; empty if there is.
    """

    files: tuple[TreeFile, ...] = ()
    unread: Mapping[str, Sequence[str]] = {}
    by_name: bool = False
    failure: str = ""


def reader_of_repository(settings: Mapping[str, Any]) -> Handler:
    """Return the function that reads objects of a repository, for a process that reads."""
    reader = GitReader(**settings)

    def answer(message: Sequence[str]) -> bytes:
        name, *arguments = message
        content: bytes = getattr(reader, name)(*arguments)
        return content

    return answer


class _TreeEntry(NamedTuple):
    """An entry of a tree; the name is not trusted."""

    name: str
    mode: int
    id: Any

    @property
    def kind(self) -> int:
        return self.mode & _KIND_BITS


class GitReader:
    """Reads objects of a repository; its methods return JSON, and hold whatever a hostile repository does to them.

    Args:
        path: The folder of the repository.
        titles: Titles of issues by their numbers.
        max_files: Number of files that a commit that asks may change.
        max_words: Number of words of a passage, at most.
    """

    def __init__(self, path: str, titles: Mapping[str, str], max_files: int, max_words: int) -> None:
        self._git = optional("pygit2", "graphrerank build git")
        self._git.settings.cache_max_size(_CACHE)
        self._repository = self._git.Repository(path)
        self._titles, self._max_files, self._max_words = titles, max_files, max_words

    def commits(self, head: str) -> bytes:
        """Return the ids of all commits, the oldest first."""
        order = self._git.enums.SortMode
        walk = self._repository.walk(head, order.TOPOLOGICAL | order.TIME | order.REVERSE)
        return json.dumps([str(commit.id) for commit in walk]).encode()

    def change(self, commit_id: str) -> bytes:
        """Return the question of a commit, a :class:`FileChange`."""
        try:
            change = self._change(self._repository[commit_id])
        except (self._git.GitError, KeyError):
            change = FileChange("versions that a partial clone lacks")
        except (ValueError, RecursionError) as error:  # as of names that are no UTF-8
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
        if reason := next((reason for reason, holds in reasons.items() if holds), None):
            return FileChange(reason)
        parent = commit.parents[0]
        changed = list(islice(self._differences(parent.tree.id, commit.tree.id), self._max_files + 1))
        if len(changed) > self._max_files:
            return FileChange(f"changes more than {self._max_files} files")
        changed.sort(key=lambda change: change[0].encode("utf-8", "surrogateescape"))
        modified = [(path, old, new) for path, old, new in changed if old is not None and new is not None]
        if any(_names(commit.message, path) for path, *_ in modified):
            return FileChange("message names a file that it changes")
        files = tuple(file for path, old, new in modified if (file := self._changed_file(path, old, new)))
        return FileChange("", str(parent.id), query_id, question, files)

    def _differences(self, before: Any, after: Any) -> Iterator[tuple[str, "_TreeEntry | None", "_TreeEntry | None"]]:
        """Yield the files that two trees do not share: path, old entry and new entry, None for one that is not there.

        The trees are compared entry by entry, and equal ones are not opened. A file that becomes a link or a folder is
        one that goes and another one that comes, as in libgit2's diff, which opens equal trees too.
        """
        pending = [("", before, after)]
        opened = 0
        while pending:
            folder, *trees = pending.pop()
            opened += 1
            if opened > MAX_ENTRIES:
                raise ValueError("more folders than a tree may have")
            old, new = ({} if tree is None else {(e.name, e.kind): e for e in self._entries(tree)} for tree in trees)
            for key in sorted({*old, *new}):
                first, second = old.get(key), new.get(key)
                if first and second and (first.id, first.mode) == (second.id, second.mode):
                    continue
                path = f"{folder}{key[0]}"
                if key[1] == _FOLDER:
                    pending.append((f"{path}/", first and first.id, second and second.id))
                else:
                    yield path, first, second

    def _changed_file(self, path: str, old: "_TreeEntry", new: "_TreeEntry") -> ChangedFile | None:
        """Return the lines of a text that a commit changed; None for other files."""
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
        """Return the passages of a version of a file; of one that is not of its format there are none."""
        spans = []
        for document in read_content(self._repository[blob].data, path).documents:
            passages = list(passages_of(document, max_words=self._max_words))
            for passage, after in zip_longest(passages, passages[1:]):
                is_cut = after is not None and after.section == passage.section
                last = after.line - 1 if is_cut else document.sections[passage.section].end
                spans.append(PassageSpan(passage.line, last, passage.id))
        return json.dumps(spans).encode()

    def files(self, commit: str) -> bytes:
        """Return the files of a commit's tree, a :class:`TreeList`."""
        unread: defaultdict[str, list[str]] = defaultdict(list)
        files: list[TreeFile] = []
        by_name, count = False, 0
        pending = [("", self._repository[commit].tree.id)]
        while pending:
            folder, tree = pending.pop()
            entries = self._entries(tree)
            count += len(entries)
            if count > MAX_ENTRIES:
                return json.dumps(TreeList(failure=f"has more than {MAX_ENTRIES:,} files")).encode()
            if folder and is_dataset_folder({entry.name for entry in entries}.__contains__):
                unread[DATASET_FOLDER].append(listed_name(folder[:-1]))
                continue
            folders, known = [], set[str]()
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = f"{folder}{entry.name}"
                by_name |= entry.name in NAMING and is_near(PurePosixPath(folder))
                if entry.kind not in (_REGULAR, _FOLDER):
                    continue  # links and submodules
                if not _is_plain(entry.name) or entry.name in known:
                    unread[NO_NAME].append(listed_name(path))
                elif entry.kind == _REGULAR and suffix_of(entry.name):
                    self._note_file(path, entry.id, files, unread)
                elif entry.kind == _FOLDER and folder.count("/") >= MAX_DEPTH:
                    unread[f"more than {MAX_DEPTH} folders within each other"].append(listed_name(path))
                elif entry.kind == _FOLDER and not entry.name.startswith("."):
                    folders.append((f"{path}/", entry.id))
                known.add(entry.name)
            pending += reversed(folders)
        return json.dumps(TreeList(tuple(files), unread, by_name)).encode()

    def _entries(self, tree: Any) -> list["_TreeEntry"]:
        """Return the entries of a tree, whatever their names are."""
        return [
            _TreeEntry(entry.raw_name.decode("utf-8", "surrogateescape"), int(entry.filemode), entry.id)
            for entry in self._repository[tree]
        ]

    def _note_file(self, path: str, blob: Any, files: list[TreeFile], unread: defaultdict[str, list[str]]) -> None:
        """Note a file as one to read, or why it is not read."""
        try:
            size = self._repository[blob].size
        except (self._git.GitError, KeyError, MemoryError):
            unread["a version that cannot be opened"].append(listed_name(path))
            return
        if reason := unread_reason(path, size):
            unread[reason].append(listed_name(path))
        else:
            files.append(TreeFile(path, str(blob), size))

    def document(self, path: str, blob: str) -> bytes:
        """Return the documents of a file, a record of :class:`~graphrerank_documents.reading.ReadFile`."""
        return read_content(self._repository[blob].data, path).record

    def config(self, blob: str) -> bytes:
        """Return the beginning of a configuration."""
        content: bytes = self._repository[blob].data[:MAX_CONFIG]
        return content


def _is_plain(name: str) -> bool:
    """Return whether a name is that of one file or folder, on every system."""
    is_short = 0 < len(name.encode("utf-8", "surrogateescape")) <= MAX_NAME
    return is_short and name not in (".", "..") and not set(name) & set("/\\\0") and not re.match("[A-Za-z]:", name)


def _question(commit: Any, titles: Mapping[str, str]) -> tuple[str, str]:
    """Return the question of a commit and its id: of the issue that it names, or of the commit."""
    for number in _ISSUE.findall(commit.message):
        if number in titles:
            return titles[number], f"issue-{number}"
    first_line = " ".join(commit.message.strip().partition("\n")[0][:MAX_QUESTION_CHARS].split())
    subject = _NUMBER.sub("", _KIND.sub("", first_line)).strip(" .:-")
    return " ".join(subject.split()[:MAX_QUESTION_WORDS]), str(commit.id)[:12]


def _names(message: str, path: str) -> bool:
    """Return whether a message names a file: its path, its name, or its module with a point or an underscore."""
    file = PurePosixPath(path.lower())
    dotted = ".".join(file.with_suffix("").parts)
    names = [file.name, *[dotted] * ("." in dotted), *[file.stem] * ("_" in file.stem.strip("_"))]
    return re.search(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, names))})(?![\w/-])", message.lower()) is not None
