"""Judged questions from a git repository: commit messages ask, and what the commits changed is relevant."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from graphrerank.checks import UserError, check_counts, check_positive_share
from graphrerank.data.documents.index_folder import CORPUS, MAX_WORDS, IndexedFolder, index_folder
from graphrerank.data.documents.passages import passages_of
from graphrerank.data.documents.readers import suffix_of
from graphrerank.data.documents.reading import read_content
from graphrerank.data.readers.records import read_jsonl
from graphrerank.extras import optional
from graphrerank.files import hash_files, hash_json, write_json, write_json_lines, write_text
from graphrerank.progress import advance, progress_bar

MAX_BYTES = 2_000_000  # of a version of a file; larger ones are generated
MIN_WORDS, MAX_QUESTION_WORDS = 3, 60
CARD = "dataset.json"
SPLITS = ("train", "val", "test")
_REVERT = re.compile(r"^revert\b|^This reverts commit", re.IGNORECASE | re.MULTILINE)
_KIND = re.compile(r"^(?:\w{2,12}(?:\([^()]*\))?!?:\s+|\[[^\[\]]{1,30}\]\s*)+")  # "fix(core): ", "[3.12] "
_NUMBER = re.compile(r"\s*\(?(?:\b(?:fix\w*|close\w*|resolve\w*|refs?|see|gh|pr)[\s:-]*)?#\d+\)?", re.IGNORECASE)
_ISSUE = re.compile(r"(?:#|\bgh-)(\d+)", re.IGNORECASE)
_BOT = re.compile(r"\[bot\]|pre-commit|dependabot|renovate", re.IGNORECASE)
_UPDATED = r"changelog|authors|version|dependenc(?:y|ies)|deps|requirements"
_ROUTINE = re.compile(
    rf"^(?:bump|merge|(?:prepare )?release|v?\d+\.\d+|(?:update|upgrade|pin)\b.*\b(?:{_UPDATED}))\b", re.IGNORECASE
)


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
) -> dict[str, Any]:
    """Write a data set folder from the history of a repository: ``graphrerank build git --from REPO --out DIR``.

    A question is the subject of a commit's message, or the title of the issue that it names. Relevant are the passages
    of the functions and sections that the commit changed, as they were before it, where the corpus has them. Splits
    follow each other in time: the corpus is the tree before the first commit of ``val``, so that nothing in it was
    written for a question of ``val`` or ``test``; what questions of ``train`` asked for is in it. Left out and counted
    are merges, reverts, commits of bots, releases, mass edits and messages that name a file that the commit changed.

    Args:
        locations: The folder of the repository, with or without a work tree; one.
        out: The data set folder, new.
        downloads: Not used; nothing is fetched.
        issues: A JSON Lines file of ``{"number": 12, "title": "...", "body": "..."}``.
        max_files: Files that a commit may change.
        max_relevant: Passages that a question may have.
        train_share: Share of the questions, by time, that are for training; the others are ``val`` and ``test``.
        max_words: Words of a passage, at most.

    Returns:
        The card of the data set: name, counts, and what was left out, by reason.

    Raises:
        ValueError: If there is no repository, or its history has no question.
    """
    check_counts(max_files=max_files, max_relevant=max_relevant, max_words=max_words)
    check_positive_share(train_share=train_share)
    out = Path(out)
    if len(locations) != 1:
        raise UserError(f"`--from` must be the folder of one git repository, got {', '.join(locations)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"`out` must be a new folder, got {out}, which exists; nothing is overwritten")
    titles = {} if issues is None else {str(row["number"]): str(row["title"]) for _, row in read_jsonl(Path(issues))}
    history = _History(locations[0], max_files=max_files, max_words=max_words)
    changes, left_out = history.changes(titles), history.left_out
    if len(changes) < len(SPLITS):
        reasons = ", ".join(f"{count:,} x {reason}" for reason, count in left_out.most_common())
        needed = "`--from` must have a history of questions"
        raise UserError(f"{needed}, got {len(changes)} in {locations[0]}; left out: {reasons}")
    first = min(max(1, round(train_share * len(changes))), len(changes) - 2)
    tree, card = changes[first].parent, dict[str, Any]()

    def judge(folder: Path, made: IndexedFolder) -> None:
        counts = _write_questions(folder, changes, first, left_out, max_relevant=max_relevant)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        digests = {path.relative_to(folder).as_posix(): hash_files([path]) for path in files}
        card.update(
            name=Path(locations[0]).resolve().name,
            built_by=f"graphrerank {version('graphrerank')} build git",
            tree=str(tree.id),
            counts={"documents": made.passages, "edges": made.edges, **counts},
            dropped=dict(left_out.most_common()),
            sha256=digests,
            hash=hash_json(digests),
        )
        write_json(folder / CARD, card)

    with TemporaryDirectory() as source:
        _write_tree(tree.tree, Path(source))
        index_folder(source, out, max_words=max_words, finish=judge)
    return card


class _Change(NamedTuple):
    """A commit that asks a question, and the passages that it changed, as they were before it."""

    parent: Any  # commit of pygit2
    query_id: str
    question: str
    passages: tuple[str, ...]  # ids


class _History:
    """The commits of a repository that ask, and a count of the others."""

    def __init__(self, path: str, *, max_files: int, max_words: int) -> None:
        self._git = optional("pygit2", "graphrerank build git")
        try:
            self._repository = self._git.Repository(path)
            self._head = self._repository.head.target
        except self._git.GitError as error:
            needed = "`--from` must be the folder of a git repository with commits"
            raise UserError(f"{needed}, got {path}: {error}") from error
        self.left_out: Counter[str] = Counter()
        self._max_files, self._max_words = max_files, max_words
        self._passages: dict[tuple[str, str], list[tuple[int, int, str]]] = {}

    def changes(self, titles: Mapping[str, str]) -> list[_Change]:
        """Return the commits that ask, the oldest first; ``titles`` are those of issues."""
        order = self._git.enums.SortMode
        commits = list(self._repository.walk(self._head, order.TOPOLOGICAL | order.TIME | order.REVERSE))
        found: list[_Change] = []
        with progress_bar("commits", total=len(commits)):
            for commit in commits:
                advance(1)
                if isinstance(change := self._change(commit, titles), str):
                    self.left_out[change] += 1
                else:
                    found.append(change)
        return found

    def _change(self, commit: Any, titles: Mapping[str, str]) -> _Change | str:
        """Return what a commit asks, or why it asks nothing."""
        question, query_id = _question(commit, titles)
        reasons = {
            "first commit": not commit.parents,
            "merge": len(commit.parents) > 1,
            "revert": _REVERT.search(commit.message),
            "bot, release or version": _BOT.search(f"{commit.author.name} {commit.author.email}")
            or _ROUTINE.match(question),
            f"message of fewer than {MIN_WORDS} words": len(question.split()) < MIN_WORDS,
        }
        if reason := next((reason for reason, holds in reasons.items() if holds), None):
            return reason
        difference = self._repository.diff(parent := commit.parents[0], commit, context_lines=0)
        deltas = list(difference.deltas)
        if len(deltas) > self._max_files:
            return f"changes more than {self._max_files} files"
        if any(_names(commit.message, delta.old_file.path) for delta in deltas if delta.status_char() == "M"):
            return "message names a file that it changes"
        try:
            passages = self._changed(parent.tree, difference)
        except (self._git.GitError, KeyError):
            return "versions that a partial clone lacks"
        changed = _Change(parent, query_id, question, passages)
        return changed if passages else "changes no function or section that was there"

    def _changed(self, tree: Any, difference: Any) -> tuple[str, ...]:
        """Return the passages that hold changed lines; an insertion between two of them changes neither."""
        found: dict[str, None] = {}
        for patch in difference:
            path = patch.delta.old_file.path
            if patch.delta.status_char() != "M" or patch.delta.is_binary or not suffix_of(path):
                continue
            lines = [
                (hunk.old_start + (not hunk.old_lines), hunk.old_start + max(hunk.old_lines - 1, 0))
                for hunk in patch.hunks
            ]
            for start, end, passage in self._passages_of(tree[path], path):
                if any(start <= last and first <= end for first, last in lines):
                    found[passage] = None
        inner = {passage.partition("#")[0] for passage in found if "#" in passage}
        return tuple(passage for passage in found if passage not in inner)  # not imports that follow from the change

    def _passages_of(self, blob: Any, path: str) -> list[tuple[int, int, str]]:
        """Return the passages of a version of a file: first and last line, and id."""
        key = (path, str(blob.id))
        if key not in self._passages:
            found = self._passages[key] = []
            for document in read_content(blob.data, path).documents if blob.size <= MAX_BYTES else ():
                passages = list(passages_of(document, max_words=self._max_words))
                for passage, after in zip_longest(passages, passages[1:]):
                    is_cut = after is not None and after.section == passage.section
                    last = after.line - 1 if is_cut else document.sections[passage.section].end
                    found.append((passage.line, last, passage.id))
        return self._passages[key]


def _question(commit: Any, titles: Mapping[str, str]) -> tuple[str, str]:
    """Return the question of a commit and its id: of the issue that it names, or of the commit."""
    for number in _ISSUE.findall(commit.message):
        if number in titles:
            return titles[number], f"issue-{number}"
    subject = _NUMBER.sub("", _KIND.sub("", commit.message.strip().partition("\n")[0])).strip(" .:-")
    return " ".join(subject.split()[:MAX_QUESTION_WORDS]), str(commit.id)[:12]


def _names(message: str, path: str) -> bool:
    """Return whether a message names a file: its path, its name, or its module with a point or an underscore."""
    file = PurePosixPath(path.lower())
    dotted = ".".join(file.with_suffix("").parts)
    names = [file.name, *[dotted] * ("." in dotted), *[file.stem] * ("_" in file.stem.strip("_"))]
    return re.search(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, names))})(?![\w/-])", message.lower()) is not None


def _write_tree(tree: Any, folder: Path) -> None:
    """Write the regular files of a tree that have a known format."""
    for entry in tree:
        if entry.type_str == "tree" and entry.name not in ("..", "."):
            _write_tree(entry, folder / entry.name)
        elif entry.type_str == "blob" and entry.filemode & 0o170000 == 0o100000 and suffix_of(entry.name):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / entry.name).write_bytes(entry.data)


def _write_questions(
    folder: Path, changes: Sequence[_Change], first: int, left_out: Counter[str], *, max_relevant: int
) -> dict[str, Any]:
    """Write queries and judgements of a folder with a corpus; return their counts."""
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
    """Return the passage, else the first of its section, else that of the file of the same name, if it is alone."""
    path, mark, anchor = passage.partition("#")
    files = by_name.get(path.rpartition("/")[2], set())
    alike = [other for other in files if f"/{other}".endswith(f"/{path}") or f"/{path}".endswith(f"/{other}")]
    name = path if path in files else alike[0] if len(alike) == 1 else ""
    candidates = (f"{name}{mark}{anchor}", f"{name}{mark}{re.sub(r'~[0-9]+$', '', anchor)}")
    return next((node for node in candidates if node in ids), None)
