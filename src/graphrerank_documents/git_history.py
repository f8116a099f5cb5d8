"""Build judged questions from a git repository: commit messages are queries, and the changed passages are relevant."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from graphrerank.data.folder_layout import CORPUS
from graphrerank.data.readers.records import read_jsonl
from graphrerank.utils.checks import UserError, check_counts, check_positive_share
from graphrerank.utils.files import hash_files, hash_json, write_json, write_json_lines, write_text
from graphrerank.utils.progress import advance, progress_bar
from graphrerank_documents.git_reader import FileChange, PassageSpan
from graphrerank_documents.git_repository import GitRepository, GitTree
from graphrerank_documents.index_folder import MAX_WORDS, IndexedFolder, index_folder

CARD = "dataset.json"
SPLITS = ("train", "val", "test")


def build_from_git(
    locations: Sequence[str],
    out: str | Path,
    *,
    downloads: Path | None = None,
    issues: str | None = None,
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
    skipped and counted.

    Args:
        locations: Path of one repository, with or without a work tree.
        out: Data set folder to create.
        downloads: Ignored, because nothing is downloaded.
        issues: JSON Lines file of issues, ``{"number": 12, "title": "...", "body": "..."}``. If None, only commit
            messages are used.
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
    check_positive_share(train_share=train_share)
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
        changes = _asked(repository, left_out)
        if len(changes) < len(SPLITS):
            reasons = ", ".join(f"{count:,} x {reason}" for reason, count in left_out.most_common())
            needed = f"`--from` must have at least {len(SPLITS)} commits that can be used as questions"
            raise UserError(f"{needed}, got {len(changes)} in {locations[0]}. Skipped: {reasons}")
        first = min(max(1, round(train_share * len(changes))), len(changes) - 2)
        before_val, card = changes[first].parent, dict[str, Any]()

        def judge(folder: Path, made: IndexedFolder) -> None:
            counts = _write_questions(folder, changes, first, left_out, max_relevant=max_relevant)
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

        index_folder(GitTree(repository, before_val), out, max_words=max_words, finish=judge)
    return card


class _Asked(NamedTuple):
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


def _asked(repository: GitRepository, left_out: Counter[str]) -> list[_Asked]:
    """Return the commits that can be used as questions, oldest first, and count the other commits by reason."""
    commits = repository.commits()
    changes: list[FileChange] = []
    with progress_bar("commits", total=len(commits)):
        for change in repository.changes(commits):
            advance(1)
            if change.reason:
                left_out[change.reason] += 1
            else:
                changes.append(change)
    versions = list(dict.fromkeys((file.path, file.blob) for change in changes for file in change.files))
    spans: dict[tuple[str, str], list[PassageSpan]] = {}
    with progress_bar("versions of files", total=len(versions)):
        for key, found in repository.passages(versions):
            advance(1)
            spans[key] = found
    asked: list[_Asked] = []
    for change in changes:
        if any((file.path, file.blob) not in spans for file in change.files):
            left_out["changes a file that cannot be read"] += 1
        elif passages := _changed_passages(change, spans):
            asked.append(_Asked(change.parent, change.query_id, change.question, passages))
        else:
            left_out["changes no function or section that was there"] += 1
    return asked


def _changed_passages(change: FileChange, spans: Mapping[tuple[str, str], Sequence[PassageSpan]]) -> tuple[str, ...]:
    """Return the ids of the passages with changed lines. An insertion between two passages changes neither."""
    found = dict.fromkeys(
        span.id
        for file in change.files
        for span in spans[file.path, file.blob]
        if any(span.start <= last and first <= span.end for first, last in file.lines)
    )
    inner = {passage.partition("#")[0] for passage in found if "#" in passage}
    # the first section of a file, such as its imports, is dropped if another section of the file changed
    return tuple(passage for passage in found if passage not in inner)


def _write_questions(
    folder: Path, changes: Sequence[_Asked], first: int, left_out: Counter[str], *, max_relevant: int
) -> dict[str, Any]:
    """Write the queries and judgements into a folder with a corpus, and return their counts."""
    ids = {row["_id"] for _, row in read_jsonl(folder / CORPUS)}
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for path in {passage.partition("#")[0] for passage in ids}:
        by_name[path.rpartition("/")[2]].add(path)
    second = first + max(1, (len(changes) - first) // 3)
    splits = ["train"] * first + ["val"] * (second - first) + ["test"] * (len(changes) - second)
    relevant: dict[str, dict[str, dict[str, None]]] = {split: {} for split in SPLITS}
    texts: dict[str, str] = {}
    for split, change in zip(splits, changes, strict=True):
        there = dict.fromkeys(node for passage in change.passages if (node := _in_corpus(passage, ids, by_name)))
        if not there:
            left_out["changes nothing that the corpus has"] += 1
        elif len(there) > max_relevant:
            left_out[f"changes more than {max_relevant} passages"] += 1
        elif change.query_id in texts and change.query_id not in relevant[split]:
            left_out["issue of an earlier split"] += 1
        else:
            texts[change.query_id] = change.question
            relevant[split].setdefault(change.query_id, {}).update(there)
    write_json_lines(folder / "queries.jsonl", ({"_id": key, "text": text} for key, text in texts.items()))
    counts: dict[str, Any] = {"queries": len(texts), "qrels": {}}
    for split, judged in relevant.items():
        if rows := [f"{query}\t{node}\t1\n" for query, nodes in judged.items() for node in nodes]:
            write_text(folder / "qrels" / f"{split}.tsv", "".join(["query-id\tcorpus-id\tscore\n", *rows]))
            counts["qrels"][split] = {"queries": len(judged), "rows": len(rows)}
    return counts


def _in_corpus(passage: str, ids: Set[str], by_name: Mapping[str, Set[str]]) -> str | None:
    """Return the id of a passage in the corpus, or None.

    If the passage does not exist, the first passage of its section is used. If its file was moved, the only file with
    the same name is used.
    """
    path, mark, anchor = passage.partition("#")
    files = by_name.get(path.rpartition("/")[2], set())
    alike = [other for other in files if f"/{other}".endswith(f"/{path}") or f"/{path}".endswith(f"/{other}")]
    name = path if path in files else alike[0] if len(alike) == 1 else ""
    candidates = (f"{name}{mark}{anchor}", f"{name}{mark}{re.sub(r'~[0-9]+$', '', anchor)}")
    return next((node for node in candidates if node in ids), None)
