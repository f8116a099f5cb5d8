"""A git repository whose objects are read in processes with limits of time and memory."""

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
from graphrerank_documents.site import CONFIGS, Site, SiteConfig, is_near, site_of
from graphrerank_documents.sources import DocumentSource, FileList

LIST_SECONDS = 300.0  # for the list of all commits, or of all files of a tree
MOST_FAILURES = 3  # versions of a file that take too long or end their processes, before its others are left out
_FACTORY = "graphrerank_documents.git_reader:reader_of_repository"
_COMMITS, _CHANGE, _TREE = TypeAdapter(list[str]), TypeAdapter(FileChange), TypeAdapter(TreeList)
_SPANS = TypeAdapter(list[PassageSpan])


class GitRepository:
    """A repository whose objects are read in limited processes; a context manager that ends them.

    Args:
        path: The folder of the repository.
        workers: Number of processes that read; None for the number of processors.
        titles: Titles of issues by their numbers, which ask in place of messages that name them.
        max_files: Number of files that a commit that asks may change.
        max_words: Number of words of a passage, at most.

    Raises:
        ValueError: If there is no repository with commits.
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
        self._processes = LimitedProcesses(_FACTORY, settings, workers=workers or os.cpu_count() or 1)

    def __enter__(self) -> Self:
        """Return the repository."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the processes."""
        self._processes.__exit__(*error)

    def commits(self) -> list[str]:
        """Return the ids of all commits, the oldest first."""
        reply = self._call_once("commits", self._head)
        if reply.failure:
            raise UserError(f"{self.path}: the list of commits {reply.failure}")
        return _COMMITS.validate_json(reply.content)

    def changes(self, commits: Iterable[str]) -> Iterator[FileChange]:
        """Return the questions of commits, in order."""
        tasks = (Task(["change", commit], seconds_for(0)) for commit in commits)
        for reply in self._processes.call(tasks):
            yield FileChange(f"commit that {reply.failure}") if reply.failure else _CHANGE.validate_json(reply.content)

    def passages(self, versions: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], list[PassageSpan]]]:
        """Read versions of files and yield those that can be read, in order, with their passages.

        Args:
            versions: Path and blob of each. A path of which some versions failed is not tried again.

        Yields:
            Path and blob, and the passages.
        """
        failures = Counter[str]()
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
        """Return the files of a commit's tree."""
        reply = self._call_once("files", commit)
        tree = TreeList(failure=reply.failure) if reply.failure else _TREE.validate_json(reply.content)
        if tree.failure:
            raise UserError(f"{self.path}: the tree of commit {commit} {tree.failure}")
        return tree

    def read_documents(self, files: Sequence[TreeFile]) -> Iterator[ReadFile]:
        """Read files of a tree, in order."""
        tasks = (Task(["document", file.path, file.blob], seconds_for(file.size)) for file in files)
        for file, reply in zip(files, self._processes.call(tasks), strict=True):
            yield file_of_reply(reply, file.path)

    def start_of(self, blob: str) -> bytes:
        """Return the beginning of a configuration; empty if it cannot be read."""
        return self._call_once("config", blob).content

    def _call_once(self, *message: str) -> ProcessReply:
        (reply,) = self._processes.call([Task(message, LIST_SECONDS)])
        return reply


class GitTree(DocumentSource):
    """The files of a commit as documents.

    Args:
        repository: The repository.
        commit: The id of the commit.
    """

    def __init__(self, repository: GitRepository, commit: str) -> None:
        self._repository, self._commit = repository, commit
        self._tree = repository.list_tree(commit)
        self._files = {file.path: file for file in self._tree.files}

    def __str__(self) -> str:
        """Return the repository and the commit."""
        return f"{self._repository.path} at {self._commit}"

    def list_files(self, out: Path) -> FileList:
        """List the files; those with names that are no plain names, links and submodules are not read."""
        return FileList(list(self._files), unread=self._tree.unread)

    def read(self, names: Sequence[str], *, workers: int) -> Iterator[ReadFile]:
        """Read files in the processes of the repository; ``workers`` is not used."""
        return self._repository.read_documents([self._files[name] for name in names])

    def has(self, file: ReadFile) -> bool:
        """Return False: a tree is read once."""
        return False

    def site(self) -> Site:
        """Return where the documents are published, as configurations in the tree say."""
        order = list(CONFIGS)
        paths = [PurePosixPath(path) for path in self._files]
        found = [path for path in paths if path.name in CONFIGS and is_near(path.parent)]
        configs = [
            SiteConfig(path.parent.as_posix().removeprefix("."), path.name, self._repository.start_of(file.blob))
            for path in sorted(found, key=lambda path: (path.parent.parts, order.index(path.name)))
            if (file := self._files[path.as_posix()])
        ]
        return site_of(configs, by_name=self._tree.by_name)
