"""Read an untrusted git repository in processes with time and memory limits."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Self

from pydantic import TypeAdapter

from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError
from graphrerank_documents.git_reader import MAX_BYTES, FileChange, PassageSpan, TreeFile, TreeList
from graphrerank_documents.limited_processes import LimitedProcesses, ProcessReply, Task
from graphrerank_documents.reading import ReadFile, file_of_reply, seconds_for
from graphrerank_documents.site import CONFIG_NAMES, Site, SiteConfig, is_near, site_of
from graphrerank_documents.sources import DocumentSource, FileList

#: Time limit in seconds for listing all commits, or all files of a tree.
LIST_SECONDS = 300.0
#: Number of failed versions of a file after which its remaining versions are skipped.
MOST_FAILURES = 3
_FACTORY = "graphrerank_documents.git_reader:reader_of_repository"
_COMMITS, _CHANGE, _TREE = TypeAdapter(list[str]), TypeAdapter(FileChange), TypeAdapter(TreeList)
_SPANS = TypeAdapter(list[PassageSpan])


class GitRepository:
    """Repository whose objects are read in processes with time and memory limits.

    The repository is a context manager that terminates the processes.

    Args:
        path: Path of the repository.
        workers: Number of processes. If None, the number of processors is used.
        titles: Titles of issues by number. A title replaces the messages that refer to the issue.
        max_files: Maximum number of files that a commit changes.
        max_words: Maximum number of words per passage.

    Raises:
        ValueError: If ``path`` is not a git repository with commits.
    """

    def __init__(
        self, path: str, *, workers: int | None, titles: Mapping[str, str], max_files: int, max_words: int
    ) -> None:
        git = optional("pygit2", "graphrerank build git")
        try:
            self._head = str(git.Repository(path).head.target)
        except git.GitError as error:
            needed = "`--from` must be the folder of a git repository with commits"
            raise UserError(f"{needed}, got {path}: {error}") from error
        self.path = path
        settings = {"path": path, "titles": dict(titles), "max_files": max_files, "max_words": max_words}
        self._failures = Counter[str]()  # number of versions that could not be parsed, by path
        self._processes = LimitedProcesses(_FACTORY, settings, workers=workers or os.cpu_count() or 1)

    def __enter__(self) -> Self:
        """Return this repository."""
        return self

    def __exit__(self, *error: object) -> None:
        """Terminate the processes."""
        self._processes.__exit__(*error)

    def commits(self) -> list[str]:
        """Return the ids of all commits, oldest first.

        Raises:
            ValueError: If listing the commits exceeds a limit.
        """
        reply = self._call_once("commits", self._head)
        if reply.failure:
            raise UserError(f"{self.path}: listing the commits failed: {reply.failure}")
        return _COMMITS.validate_json(reply.content)

    def changes(self, commits: Iterable[str]) -> Iterator[FileChange]:
        """Yield the question of each commit, or the reason to skip it.

        Args:
            commits: Ids of the commits.

        Yields:
            Changes in the order of the commits.
        """
        tasks = (Task(["change", commit], seconds_for(0)) for commit in commits)
        for reply in self._processes.call(tasks):
            failure = FileChange(f"commit that {reply.failure}", failed=True)
            yield failure if reply.failure else _CHANGE.validate_json(reply.content)

    def passages(self, versions: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], list[PassageSpan]]]:
        """Parse versions of files and yield their passages. Versions that cannot be parsed are skipped.

        Args:
            versions: Path and blob id of each version. After :data:`MOST_FAILURES` failed versions, the remaining
                versions of a path are skipped.

        Yields:
            Path and blob id, and the passages of the version, in the order of ``versions``.
        """
        failures = self._failures
        tried: list[tuple[str, str]] = []

        def tasks() -> Iterator[Task]:
            for path, blob in versions:
                if failures[path] < MOST_FAILURES:
                    tried.append((path, blob))
                    yield Task(["passages", path, blob], seconds_for(MAX_BYTES))

        for number, reply in enumerate(self._processes.call(tasks())):
            if reply.failure:
                failures[tried[number][0]] += 1
            else:
                yield tried[number], _SPANS.validate_json(reply.content)

    def list_tree(self, commit: str) -> TreeList:
        """Return the files in a commit's tree.

        Args:
            commit: Id of the commit.

        Raises:
            ValueError: If listing the tree exceeds a limit.
        """
        reply = self._call_once("files", commit)
        tree = TreeList(failure=reply.failure) if reply.failure else _TREE.validate_json(reply.content)
        if tree.failure:
            raise UserError(f"{self.path}: listing the tree of commit {commit} failed: {tree.failure}")
        return tree

    def read_documents(self, files: Sequence[TreeFile], read_as: str = "") -> Iterator[ReadFile]:
        """Parse files of a tree.

        Args:
            files: Files to parse.
            read_as: Suffix of the format of all files. Defaults to those of the paths.

        Yields:
            Parsed files in the order of ``files``.
        """
        tasks = (Task(["document", file.path, file.blob, read_as], seconds_for(file.size)) for file in files)
        for file, reply in zip(files, self._processes.call(tasks), strict=True):
            yield file_of_reply(reply, file.path)

    def start_of(self, blob: str) -> bytes:
        """Return the first bytes of a configuration file, or nothing if it cannot be read.

        Args:
            blob: Id of the content.
        """
        return self._call_once("config", blob).content

    def _call_once(self, *message: str) -> ProcessReply:
        (reply,) = self._processes.call([Task(message, LIST_SECONDS)])
        return reply


class GitTree(DocumentSource):
    """Source of documents in a commit's tree.

    Args:
        repository: Repository with the commit.
        commit: Id of the commit.
    """

    def __init__(self, repository: GitRepository, commit: str) -> None:
        self._repository, self._commit = repository, commit
        self._tree = repository.list_tree(commit)
        self._files = {file.path: file for file in self._tree.files}

    def __str__(self) -> str:
        """Return the path of the repository and the id of the commit."""
        return f"{self._repository.path} at {self._commit}"

    def list_files(self, out: Path) -> FileList:
        """Return the files in the tree. Files with invalid names, symbolic links and submodules are skipped.

        Args:
            out: Ignored.
        """
        return FileList(list(self._files), unread=self._tree.unread)

    def read(self, names: Sequence[str], *, workers: int, read_as: str = "") -> Iterator[ReadFile]:
        """Return an iterator over the parsed files, in the order of ``names``.

        Args:
            names: Paths of the files within the tree.
            workers: Ignored. The processes of the repository are used.
            read_as: Suffix of the format of all files, such as ``.rst``. Defaults to those of the names.
        """
        return self._repository.read_documents([self._files[name] for name in names if name in self._files], read_as)

    def has(self, file: ReadFile) -> bool:
        """Return False, because a tree is parsed only once.

        Args:
            file: File parsed by an earlier run.
        """
        return False

    def site(self) -> Site:
        """Return the site of the documents, based on the site configurations in the tree."""
        order = list(CONFIG_NAMES)
        paths = [PurePosixPath(path) for path in self._files]
        found = [path for path in paths if path.name in CONFIG_NAMES and is_near(path.parent)]
        configs = [
            SiteConfig(path.parent.as_posix().removeprefix("."), path.name, self._repository.start_of(file.blob))
            for path in sorted(found, key=lambda path: (path.parent.parts, order.index(path.name)))
            if (file := self._files[path.as_posix()])
        ]
        return site_of(configs, naming=self._tree.naming)
