"""Judged questions from a git repository: commit messages ask, and what the commits changed is relevant."""

import hashlib
import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from graphrerank.checks import UserError, check_counts, check_positive_share
from graphrerank.data.documents.index_folder import CORPUS, MAX_WORDS, IndexedFolder, index_folder
from graphrerank.data.documents.passages import passages_of
from graphrerank.data.documents.readers import suffix_of
from graphrerank.data.documents.reading import read_content
from graphrerank.data.readers.records import read_jsonl
from graphrerank.files import hash_files, hash_json, write_json, write_json_lines, write_text
from graphrerank.progress import advance, progress_bar

MAX_BYTES = 2_000_000  # of a version of a file; larger ones are generated
MIN_WORDS, MAX_QUESTION_WORDS = 3, 60
CARD = "dataset.json"
SPLITS = ("train", "val", "test")
# nothing that a repository's own configuration names is run, and nothing is fetched
_GIT = (
    "git",
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.quotePath=false",
)
_SETTINGS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
_REVERT = re.compile(r"^revert\b|^This reverts commit", re.IGNORECASE | re.MULTILINE)
_KIND = re.compile(r"^(?:\w{2,12}(?:\([^()]*\))?!?:\s+|\[[^\[\]]{1,30}\]\s*)+")  # "fix(core): ", "[3.12] "
_NUMBER = re.compile(
    r"\s*\(?(?:(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|see|gh|pr)[\s:-]*)?#\d+\)?", re.IGNORECASE
)
_ISSUE = re.compile(r"#(\d+)|\bgh-(\d+)", re.IGNORECASE)
_BOT = re.compile(r"\[bot\]|pre-commit|dependabot|renovate", re.IGNORECASE)
_ROUTINE = re.compile(
    r"^(?:bump|merge|release|prepare release|v?\d+\.\d+|(?:update|upgrade|pin)\b.*\b(?:changelog|authors|version|"
    r"dependenc(?:y|ies)|deps|requirements))\b",
    re.IGNORECASE,
)
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_SHA = re.compile(rb"([0-9a-f]{40,64})\n")


@dataclass(frozen=True)
class _Commit:
    sha: str
    parent: str
    author: str
    message: str


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
    written for a question of ``val`` or ``test``; what questions of ``train`` asked for is in it.

    Merges, reverts, commits of bots, releases, mass edits and messages that name a file that the commit changed are
    left out, and counted with all others that are.

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
    if len(locations) != 1 or not Path(locations[0]).is_dir():
        raise UserError(f"`--from` must be the folder of one git repository, got {', '.join(locations)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"`out` must be a new folder, got {out}, which exists; nothing is overwritten")
    repository = _Repository(Path(locations[0]))
    titles = {} if issues is None else _read_issues(Path(issues))
    left_out: Counter[str] = Counter()
    with repository.blobs() as blobs:
        changes = _changes(repository, blobs, left_out, titles, max_files=max_files, max_words=max_words)
    if len(changes) < len(SPLITS):
        raise UserError(
            f"`--from` must have a history of questions, got {len(changes)} in {repository.path}; left out: "
            + (", ".join(f"{count:,} x {reason}" for reason, count in left_out.most_common()) or "nothing")
        )
    first = min(max(1, round(train_share * len(changes))), len(changes) - 2)
    card: dict[str, Any] = {}

    def judge(folder: Path, made: IndexedFolder) -> None:
        counts = _write_questions(folder, changes, first, left_out, max_relevant=max_relevant)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        digests = {path.relative_to(folder).as_posix(): hash_files([path]) for path in files}
        card.update(
            name=repository.path.resolve().name.removesuffix(".git"),
            built_by=f"graphrerank {version('graphrerank')} build git",
            tree=changes[first].commit.parent,
            counts={"documents": made.passages, "edges": made.edges, **counts},
            dropped=dict(left_out.most_common()),
            sha256=digests,
            hash=hash_json(digests),
        )
        write_json(folder / CARD, card)

    with TemporaryDirectory() as tree:
        repository.write_tree(changes[first].commit.parent, Path(tree))
        index_folder(tree, out, max_words=max_words, finish=judge)
    return card


@dataclass(frozen=True)
class _Change:
    """A commit that asks a question, and the passages that it changed, as they were before it."""

    commit: _Commit
    query_id: str
    question: str
    passages: tuple[str, ...]  # ids


def _changes(
    repository: "_Repository",
    blobs: "_Blobs",
    left_out: Counter[str],
    titles: Mapping[str, str],
    *,
    max_files: int,
    max_words: int,
) -> list[_Change]:
    """Return the commits that ask, the oldest first; count the others."""
    if merges := repository.count_merges():
        left_out["merge"] = merges
    asking: dict[str, tuple[_Commit, str, str]] = {}
    for commit in repository.commits():
        question, query_id = _question(commit, titles)
        if reason := _why_not(commit, question):
            left_out[reason] += 1
        else:
            asking[commit.sha] = (commit, question, query_id)
    found: list[_Change] = []
    with progress_bar("commits", total=len(asking)):
        for sha, files in repository.changed_lines(list(asking)):
            advance(1)
            commit, question, query_id = asking[sha]
            if len(files) > max_files:
                left_out[f"changes more than {max_files} files"] += 1
            elif any(_names(commit.message, path) for path in files):
                left_out["message names a file that it changes"] += 1
            elif passages := _changed_passages(blobs, commit, files, max_words):
                found.append(_Change(commit, query_id, question, passages))
            else:
                left_out["changes no function or section that was there"] += 1
    return found


def _question(commit: _Commit, titles: Mapping[str, str]) -> tuple[str, str]:
    """Return the question of a commit and its id: of the issue that it names, or of the commit."""
    for number in (one or other for one, other in _ISSUE.findall(commit.message)):
        if number in titles:
            return titles[number], f"issue-{number}"
    subject = _NUMBER.sub("", _KIND.sub("", commit.message.partition("\n")[0])).strip(" .:-")
    return " ".join(subject.split()[:MAX_QUESTION_WORDS]), commit.sha[:12]


def _why_not(commit: _Commit, question: str) -> str:
    if _REVERT.search(commit.message):
        return "revert"
    if _BOT.search(commit.author) or _ROUTINE.match(question) or _ROUTINE.match(commit.message):
        return "bot, release or version"
    if len(question.split()) < MIN_WORDS:
        return f"message of fewer than {MIN_WORDS} words"
    return ""


def _names(message: str, path: str) -> bool:
    """Return whether a message names a file: its path, its name, or its module with a point or an underscore."""
    file, text = PurePosixPath(path), message.lower()
    dotted = file.with_suffix("").as_posix().replace("/", ".").lower()
    names = [file.name.lower(), *([dotted] if "." in dotted else [])]
    names += [file.stem.lower()] if "_" in file.stem.strip("_") else []
    return any(re.search(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", text) for name in names)


def _changed_passages(
    blobs: "_Blobs", commit: _Commit, files: Mapping[str, Sequence[tuple[int, int]]], max_words: int
) -> tuple[str, ...]:
    """Return the passages that hold changed lines; an insertion between two of them changes neither."""
    found: dict[str, None] = {}
    for path, hunks in files.items():
        for start, end, passage in blobs.passages(commit.parent, path, max_words):
            if any(start <= last and first <= end for first, last in hunks):
                found[passage] = None
    inner = {passage.partition("#")[0] for passage in found if "#" in passage}
    return tuple(passage for passage in found if passage not in inner)  # not imports that follow from the change


def _write_questions(
    folder: Path, changes: Sequence[_Change], first: int, left_out: Counter[str], *, max_relevant: int
) -> dict[str, Any]:
    """Write queries and judgements of a folder with a corpus; return their counts."""
    corpus = _Corpus({row["_id"] for _, row in read_jsonl(folder / CORPUS)})
    second = first + max(1, (len(changes) - first) // 3)
    relevant: dict[str, dict[str, dict[str, None]]] = {split: {} for split in SPLITS}
    texts: dict[str, str] = {}
    for place, change in enumerate(changes):
        split = SPLITS[(place >= first) + (place >= second)]
        there = dict.fromkeys(node for passage in change.passages if (node := corpus.find(passage)))
        if not there:
            left_out["changes nothing that the corpus has"] += 1
        elif len(there) > max_relevant:
            left_out[f"changes more than {max_relevant} passages"] += 1
        elif any(change.query_id in relevant[other] for other in SPLITS if other != split):
            left_out["issue of an earlier split"] += 1
        else:
            texts[change.query_id] = change.question
            relevant[split].setdefault(change.query_id, {}).update(there)
    write_json_lines(folder / "queries.jsonl", ({"_id": key, "text": text} for key, text in texts.items()))
    counts: dict[str, Any] = {"queries": len(texts), "qrels": {}}
    for split, judged in relevant.items():
        rows = [(query, node) for query, nodes in judged.items() for node in nodes]
        if rows:
            lines = ["query-id\tcorpus-id\tscore\n", *(f"{query}\t{node}\t1\n" for query, node in rows)]
            write_text(folder / "qrels" / f"{split}.tsv", "".join(lines))
            counts["qrels"][split] = {"queries": len(judged), "rows": len(rows)}
    return counts


class _Corpus:
    """The passages of the corpus, found by ids of other times."""

    def __init__(self, ids: Set[str]) -> None:
        self._ids = ids
        self._by_name: defaultdict[str, set[str]] = defaultdict(set)
        for path in {passage.partition("#")[0] for passage in ids}:
            self._by_name[path.rpartition("/")[2]].add(path)

    def find(self, passage: str) -> str | None:
        """Return the passage, else the first of its section, else that of the file of the same name, if it is alone."""
        path, mark, anchor = passage.partition("#")
        files = self._by_name[path.rpartition("/")[2]]
        alike = [other for other in files if f"/{other}".endswith(f"/{path}") or f"/{path}".endswith(f"/{other}")]
        name = path if path in files else alike[0] if len(alike) == 1 else ""
        ids = (f"{name}{mark}{anchor}", f"{name}{mark}{re.sub(r'~[0-9]+$', '', anchor)}")
        return next((node for node in ids if node in self._ids), None)


def _read_issues(path: Path) -> dict[str, str]:
    return {str(row["number"]): str(row["title"]) for _, row in read_jsonl(path) if row.keys() >= {"number", "title"}}


def _parse_patches(lines: Iterable[bytes]) -> Iterator[tuple[str, dict[str, list[tuple[int, int]]]]]:
    """Parse what ``git diff-tree --stdin -p -U0`` writes."""
    sha, path, left = "", "", 0  # lines of a hunk that are left
    files: dict[str, list[tuple[int, int]]] = {}
    for line in lines:
        if left and line[:1] in b"+-":
            left -= 1
        elif found := _SHA.match(line):
            if sha:
                yield sha, files
            sha, files = found[1].decode(), {}
        elif line.startswith(b"--- "):
            name = line[4:].rstrip(b"\n").removesuffix(b"\t")
            path = name[2:].decode(errors="replace") if name.startswith(b"a/") else ""  # none of a file that is added
            if path and suffix_of(path):
                files[path] = []
        elif line.startswith(b"+++ /dev/null"):
            files.pop(path, None)  # a file that goes, perhaps to another name
        elif hunk := _HUNK.match(line):
            start, removed, added = (int(size) if size else 1 for size in hunk.groups())
            left = removed + added
            if path in files:
                files[path].append((start, start + removed - 1) if removed else (start + 1, start))
    if sha:
        yield sha, files


def _environment() -> dict[str, str]:
    return os.environ | _SETTINGS


class _Repository:
    """A git repository that is read by git's own commands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.run("rev-parse", "--verify", "HEAD^{commit}")
        except FileNotFoundError as error:
            raise UserError("graphrerank build git needs git, which is not installed") from error

    def command(self, *arguments: str) -> list[str]:
        return [*_GIT, "-c", f"safe.directory={self.path.resolve()}", "-C", str(self.path), *arguments]

    def run(self, *arguments: str) -> bytes:
        done = subprocess.run(self.command(*arguments), capture_output=True, env=_environment(), check=False)
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise UserError(f"{self.path}: git {arguments[0]} failed: {reason}")
        return done.stdout

    def commits(self) -> Iterator[_Commit]:
        """Yield the commits with one parent, the oldest first."""
        fields = "%H%x00%P%x00%an <%ae>%x00%B%x01"
        log = self.run("log", "--no-show-signature", "--no-merges", "--reverse", "--date-order", f"--format={fields}")
        for entry in log.decode(errors="replace").split("\x01"):
            if len(parts := entry.strip("\n").split("\0")) == 4 and parts[1]:
                yield _Commit(*parts)

    def count_merges(self) -> int:
        return int(self.run("rev-list", "--count", "--merges", "HEAD"))

    def changed_lines(self, shas: Sequence[str]) -> Iterator[tuple[str, dict[str, list[tuple[int, int]]]]]:
        """Yield commits with the changed lines, first and last, of each file that was there.

        An insertion after line ``n`` is ``(n + 1, n)``.
        """
        options = ("--no-ext-diff", "--no-textconv", "--no-renames", "-U0", "--src-prefix=a/", "--dst-prefix=b/")
        command = self.command("diff-tree", "--stdin", "-r", "-p", *options)
        with TemporaryFile() as listed:
            listed.write("".join(f"{sha}\n" for sha in shas).encode())
            listed.seek(0)
            with subprocess.Popen(command, stdin=listed, stdout=subprocess.PIPE, env=_environment()) as process:
                assert process.stdout is not None
                yield from _parse_patches(process.stdout)

    def write_tree(self, commit: str, folder: Path) -> None:
        """Write the regular files of a commit that have a known format."""
        with self.blobs() as blobs:
            for entry in self.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
                kind, _, name = entry.partition(b"\t")
                path = name.decode(errors="replace")
                if kind.startswith((b"100644", b"100755")) and suffix_of(path) and ".." not in path.split("/"):
                    content = blobs.read(f"{commit}:{path}")
                    target = folder / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content or b"")

    @contextmanager
    def blobs(self) -> Iterator["_Blobs"]:
        command = self.command("cat-file", "--batch")
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=_environment()) as process:
            yield _Blobs(process)
            assert process.stdin is not None
            process.stdin.close()


class _Blobs:
    """Versions of files, one after the other, by ``git cat-file --batch``."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._passages: dict[tuple[str, str], list[tuple[int, int, str]]] = {}

    def read(self, name: str) -> bytes | None:
        """Return the content of ``commit:path``; None if there is none or it is too large."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if "\n" in name:
            return None
        stdin.write(name.encode() + b"\n")
        stdin.flush()
        parts = stdout.readline().split()
        if len(parts) != 3 or not parts[2].isdigit():
            return None
        content = stdout.read(int(parts[2]))
        stdout.read(1)
        return content if len(content) <= MAX_BYTES and parts[1] == b"blob" else None

    def passages(self, commit: str, path: str, max_words: int) -> list[tuple[int, int, str]]:
        """Return the passages of a file at a commit: first and last line, and id."""
        content = self.read(f"{commit}:{path}")
        if content is None:
            return []
        key = (path, hashlib.sha256(content).hexdigest())
        if key not in self._passages:
            found: list[tuple[int, int, str]] = []
            for document in read_content(content, path).documents:
                passages = list(passages_of(document, max_words=max_words))
                for passage, after in zip_longest(passages, passages[1:]):
                    is_cut = after is not None and after.section == passage.section
                    last = after.line - 1 if is_cut else document.sections[passage.section].end
                    found.append((passage.line, last, passage.id))
            self._passages[key] = found
        return self._passages[key]
