"""Build judged questions from a git repository: commit messages are queries, and the changed passages are relevant."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

from graphrerank.data.folder_layout import CORPUS
from graphrerank.data.readers.records import read_jsonl
from graphrerank.installation.extras import require_extra
from graphrerank.utils.caching import BlobStore, fill, hash_text
from graphrerank.utils.checks import UserError, check_counts, check_positive_share
from graphrerank.utils.files import hash_files, hash_json, write_json, write_json_lines, write_text
from graphrerank.utils.progress import advance
from graphrerank_documents.git_reader import FileChange, PassageSpan
from graphrerank_documents.git_repository import GitRepository, GitTree
from graphrerank_documents.index_folder import MAX_WORDS, IndexedFolder, index_folder

CARD = "dataset.json"
SPLITS = ("train", "val", "test")
#: Default maximum number of commits to read, the newest ones. Reading 2,000 takes one to two minutes on two cores.
MAX_COMMITS = 2000
#: File in the cache folder with the commits and versions of files that have been read.
CACHE_FILE = "git_history.sqlite"
#: Number of commits and of versions of files between two writes to the cache. An interrupted build loses at most these.
SHARD_COMMITS, SHARD_VERSIONS = 200, 100
Item = TypeVar("Item")
_CHANGE = TypeAdapter(FileChange)
_SPANS = TypeAdapter(list[PassageSpan])
_FileVersion = tuple[str, str]  # path and blob id


def build_from_git(
    locations: Sequence[str],
    out: str | Path,
    *,
    downloads: Path | None = None,
    issues: str | None = None,
    max_commits: int | None = MAX_COMMITS,
    max_files: int = 8,
    max_relevant: int = 20,
    train_share: float = 0.7,
    max_words: int = MAX_WORDS,
    workers: int | None = None,
) -> dict[str, Any]:
    """Build a data set folder from the history of a repository: ``graphrerank build git --from REPO --out DIR``.

    A question is the subject of a commit message, or the title of the issue to which the message refers. The functions
    and sections that the commit changed are relevant, in their version before the commit and if the corpus contains
    them.

    The splits are consecutive in time. The corpus is the tree before the first commit of ``val``. It contains the
    changes made for questions of ``train``, but nothing that was written for a question of ``val`` or ``test``.

    Merges, reverts, commits by bots, releases, commits with many files, and messages that name a changed file are
    skipped and counted. So are the commits before the newest ``max_commits``.

    If ``downloads`` is given, an interrupted build resumes: commits and files that were read are not read again.

    Args:
        locations: Path of one repository, with or without a work tree.
        out: Data set folder to create.
        downloads: Folder that caches what was read from the history. If None, nothing is cached.
        issues: JSON Lines file of issues, ``{"number": 12, "title": "...", "body": "..."}``. If None, only commit
            messages are used.
        max_commits: Maximum number of commits to read; older ones are skipped. If None, all commits are read.
        max_files: Maximum number of files that a commit changes.
        max_relevant: Maximum number of relevant passages per question.
        train_share: Share of the questions in the split ``train``. Later questions are divided into ``val`` and
            ``test``.
        max_words: Maximum number of words per passage.
        workers: Number of processes that read the history, with time and memory limits. Defaults to the number of
            processors.

    Returns:
        Card of the data set: its name, counts, hashes, and the number of skipped commits by reason.

    Raises:
        ValueError: If ``locations`` is not one git repository, ``out`` exists, or the history has fewer than three
            questions.
    """
    check_counts(max_files=max_files, max_relevant=max_relevant, max_words=max_words, workers=workers)
    check_counts(max_commits=max_commits)
    check_positive_share(train_share=train_share)
    require_extra("documents", "graphrerank build git")
    out = Path(out)
    if len(locations) != 1:
        raise UserError(f"`--from` must be the folder of one git repository, got {', '.join(locations)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"`out` must be a new folder, got {out}, which exists. Choose another folder")
    titles = {} if issues is None else {str(row["number"]): str(row["title"]) for _, row in read_jsonl(Path(issues))}
    with GitRepository(
        locations[0], workers=workers, titles=titles, max_files=max_files, max_words=max_words
    ) as repository:
        left_out: Counter[str] = Counter()
        cache = HistoryCache(downloads, repository.path, titles=titles, max_files=max_files, max_words=max_words)
        commits = _newest_commits(repository, max_commits, left_out)
        changes = _question_commits(repository, commits, cache, left_out)
        if len(changes) < len(SPLITS):
            reasons = ", ".join(f"{count:,} x {reason}" for reason, count in left_out.most_common())
            needed = f"`--from` must have at least {len(SPLITS)} commits that can be used as questions"
            raise UserError(f"{needed}, got {len(changes)} in {locations[0]}. Skipped: {reasons}")
        num_train = min(max(1, round(train_share * len(changes))), len(changes) - 2)
        before_val = changes[num_train].parent
        card = dict[str, Any]()

        def write_questions_and_card(folder: Path, made: IndexedFolder) -> None:
            counts = _write_questions(folder, changes, num_train, left_out, max_relevant=max_relevant)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            digests = {path.relative_to(folder).as_posix(): hash_files([path]) for path in files}
            card.update(
                name=Path(locations[0]).resolve().name,
                built_by=f"graphrerank {version('graphrerank')} build git",
                tree=before_val,
                counts={"documents": made.passages, "edges": made.edges, **counts},
                dropped=dict(left_out.most_common()),
                sha256=digests,
                hash=hash_json(digests),
            )
            write_json(folder / CARD, card)

        index_folder(GitTree(repository, before_val), out, max_words=max_words, finish=write_questions_and_card)
    return card


class _QuestionCommit(NamedTuple):
    """Commit that is used as a question.

    Attributes:
        parent: Id of the parent commit.
        query_id: Id of the question.
        question: Text of the question.
        passages: Ids of the changed passages, in their version before the commit.
    """

    parent: str
    query_id: str
    question: str
    passages: tuple[str, ...]


class HistoryCache:
    """Cache of what was read from a repository's history, so that an interrupted build resumes.

    Args:
        folder: Folder of the cache file. If None, nothing is written.
        path: Path of the repository. Repositories do not share entries, because they are untrusted.
        titles: Titles of issues by number.
        max_files: Maximum number of files that a commit changes.
        max_words: Maximum number of words per passage.
    """

    def __init__(
        self, folder: Path | None, path: str, *, titles: Mapping[str, str], max_files: int, max_words: int
    ) -> None:
        self._file = None if folder is None else folder / CACHE_FILE
        installed = {name: version(name) for name in ("graphrerank", "pygit2")}
        self._common = [installed, str(Path(path).resolve())]
        self._change_settings = [dict(titles), max_files]
        self._max_words = max_words

    def changes(self, repository: GitRepository, commits: Sequence[str]) -> Iterator[FileChange]:
        """Yield the question of each commit, or the reason to skip it. Missing ones are read from the repository.

        Args:
            repository: Repository to read from.
            commits: Ids of the commits.

        Yields:
            Changes in the order of the commits.
        """
        settings = hash_json([*self._common, *self._change_settings])
        keys = [hash_text(f"{settings} {commit}") for commit in commits]
        store = BlobStore(self._file, "changes")
        failed: dict[str, FileChange] = {}  # not cached, because the next build may have more time

        def read_commits(shard: list[str]) -> list[bytes | None]:
            changes = dict(zip(shard, _advancing(repository.changes(shard)), strict=True))
            failed.update((commit, change) for commit, change in changes.items() if change.failed)
            return [None if change.failed else _CHANGE.dump_json(change) for change in changes.values()]

        fill(store, keys, commits, read_commits, shard_size=SHARD_COMMITS, label="reading commits")
        for commit, key in zip(commits, keys, strict=True):
            yield failed[commit] if commit in failed else _CHANGE.validate_json(store.contents[key])

    def passages(
        self, repository: GitRepository, versions: Sequence[_FileVersion]
    ) -> dict[_FileVersion, list[PassageSpan]]:
        """Return the passages of versions of files. Missing ones are read from the repository.

        Args:
            repository: Repository to read from.
            versions: Path and blob id of each version.

        Returns:
            Passages by path and blob id, without the versions that cannot be parsed.
        """
        settings = hash_json([*self._common, self._max_words])
        keys = [hash_text(f"{settings} {blob} {path}") for path, blob in versions]
        store = BlobStore(self._file, "passages")

        def read_versions(shard: list[_FileVersion]) -> list[bytes | None]:
            spans = dict(_advancing(repository.passages(shard)))
            return [_SPANS.dump_json(spans[version]) if version in spans else None for version in shard]

        fill(store, keys, versions, read_versions, shard_size=SHARD_VERSIONS, label="reading changed files")
        keys_of_versions = zip(versions, keys, strict=True)
        return {
            version: _SPANS.validate_json(store.contents[key])
            for version, key in keys_of_versions
            if key in store.contents
        }


def _advancing(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, and advance the progress by one after each."""
    for item in items:
        yield item
        advance(1)


def _newest_commits(repository: GitRepository, max_commits: int | None, left_out: Counter[str]) -> list[str]:
    """Return the ids of the newest commits, oldest first, and count the other commits."""
    commits = repository.commits()
    if max_commits is None or len(commits) <= max_commits:
        return commits
    left_out[f"older than the newest {max_commits:,} commits (max_commits)"] = len(commits) - max_commits
    return commits[-max_commits:]


def _question_commits(
    repository: GitRepository, commits: Sequence[str], cache: HistoryCache, left_out: Counter[str]
) -> list[_QuestionCommit]:
    """Return the commits that can be used as questions, oldest first, and count the other commits by reason."""
    changes: list[FileChange] = []
    for change in cache.changes(repository, commits):
        if change.reason:
            left_out[change.reason] += 1
        else:
            changes.append(change)
    versions = list(dict.fromkeys((file.path, file.blob) for change in changes for file in change.files))
    spans = cache.passages(repository, versions)
    questions: list[_QuestionCommit] = []
    for change in changes:
        if any((file.path, file.blob) not in spans for file in change.files):
            left_out["changes a file that cannot be read"] += 1
        elif passages := _changed_passages(change, spans):
            questions.append(_QuestionCommit(change.parent, change.query_id, change.question, passages))
        else:
            left_out["changes no function or section that was there"] += 1
    return questions


def _changed_passages(change: FileChange, spans: Mapping[_FileVersion, Sequence[PassageSpan]]) -> tuple[str, ...]:
    """Return the ids of the passages with changed lines. An insertion between two passages changes neither."""
    changed = dict.fromkeys(
        span.id
        for file in change.files
        for span in spans[file.path, file.blob]
        if any(span.start <= last and first <= span.end for first, last in file.lines)
    )
    # the first section of a file, such as its imports, is dropped if another section of the file changed
    files_with_other_sections = {passage.partition("#")[0] for passage in changed if "#" in passage}
    return tuple(passage for passage in changed if passage not in files_with_other_sections)


def _write_questions(
    folder: Path, changes: Sequence[_QuestionCommit], num_train: int, left_out: Counter[str], *, max_relevant: int
) -> dict[str, Any]:
    """Write the queries and judgements into a folder with a corpus, and return their counts."""
    ids = {row["_id"] for _, row in read_jsonl(folder / CORPUS)}
    paths_by_name: defaultdict[str, set[str]] = defaultdict(set)
    for path in {passage.partition("#")[0] for passage in ids}:
        paths_by_name[path.rpartition("/")[2]].add(path)
    num_val = max(1, (len(changes) - num_train) // 3)
    splits = ["train"] * num_train + ["val"] * num_val + ["test"] * (len(changes) - num_train - num_val)
    relevant: dict[str, dict[str, dict[str, None]]] = {split: {} for split in SPLITS}
    texts: dict[str, str] = {}
    for split, change in zip(splits, changes, strict=True):
        nodes = [_in_corpus(passage, ids, paths_by_name) for passage in change.passages]
        relevant_nodes = dict.fromkeys(node for node in nodes if node is not None)
        if not relevant_nodes:
            left_out["changes nothing that the corpus has"] += 1
        elif len(relevant_nodes) > max_relevant:
            left_out[f"changes more than {max_relevant} passages"] += 1
        elif change.query_id in texts and change.query_id not in relevant[split]:
            left_out["issue of an earlier split"] += 1
        else:
            texts[change.query_id] = change.question
            relevant[split].setdefault(change.query_id, {}).update(relevant_nodes)
    write_json_lines(folder / "queries.jsonl", ({"_id": key, "text": text} for key, text in texts.items()))
    counts: dict[str, Any] = {"queries": len(texts), "qrels": {}}
    for split, judged in relevant.items():
        if rows := [f"{query}\t{node}\t1\n" for query, nodes in judged.items() for node in nodes]:
            write_text(folder / "qrels" / f"{split}.tsv", "".join(["query-id\tcorpus-id\tscore\n", *rows]))
            counts["qrels"][split] = {"queries": len(judged), "rows": len(rows)}
    return counts


def _in_corpus(passage: str, ids: Set[str], paths_by_name: Mapping[str, Set[str]]) -> str | None:
    """Return the id of a passage in the corpus, or None.

    If the passage does not exist, the first passage of its section is used. If its file was moved, the only file with
    the same name is used.
    """
    path, mark, anchor = passage.partition("#")
    paths = paths_by_name.get(path.rpartition("/")[2], set())
    if path not in paths:
        moved = [other for other in paths if f"/{other}".endswith(f"/{path}") or f"/{path}".endswith(f"/{other}")]
        path = moved[0] if len(moved) == 1 else ""
    first_of_section = re.sub(r"~[0-9]+$", "", anchor)
    candidates = (f"{path}{mark}{anchor}", f"{path}{mark}{first_of_section}")
    return next((node for node in candidates if node in ids), None)
