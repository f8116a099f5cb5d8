"""Questions and judgements of a data set folder, which a page adds to, changes and removes."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from graphrerank.data.readers.judgements import JUDGEMENT_HEADER, qrels_files
from graphrerank.data.readers.records import bad_line, find_record_files, parse_number, read_jsonl, read_tsv
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import sole_use, write_text

QUERIES, QRELS = "queries.jsonl", "qrels"
MAX_QUESTION = 2_000  # maximum length of a question in characters


@dataclass(frozen=True)
class JudgedQuestion:
    """Question with the judged passages.

    Attributes:
        query_id: Id of the question.
        text: Text of the question.
        scores: Score of each judged passage by id: greater than 0 if the passage is relevant, otherwise 0.
    """

    query_id: str
    text: str
    scores: Mapping[str, float]

    @property
    def relevant(self) -> list[str]:
        """Ids of the relevant passages."""
        return [passage for passage, score in self.scores.items() if score > 0]


class _JudgementRow(NamedTuple):
    """Row of a file of judgements.

    Attributes:
        query_id: Id of the question.
        doc_id: Id of the passage.
        score: Score as written.
    """

    query_id: str
    doc_id: str
    score: str


class JudgementStore:
    """Questions in ``queries.jsonl`` and judgements in ``qrels/<split>.tsv`` of a data set folder.

    Both files are written under a temporary name and renamed, so that they are complete at any time. Questions,
    judgements and metadata of others are kept. The files are read again before each change.

    Args:
        folder: Data set folder.
        passages: Ids of the passages of the corpus.
        split: Split to write.

    Raises:
        UserError: If questions or judgements are in a format that cannot be appended to. The message names the file.
    """

    def __init__(self, folder: Path, passages: Sequence[str], *, split: str = "test") -> None:
        self.folder = folder
        self.split = split
        self._passages = frozenset(passages)
        self._queries, self._qrels = folder / QUERIES, folder / QRELS / f"{split}.tsv"
        self._check_formats()
        self.questions()

    def _check_formats(self) -> None:
        other = [path for path in find_record_files(self.folder, "queries", required=False) if path != self._queries]
        if other:
            raise UserError(f"{other[0]}: questions can only be added to {QUERIES}. Convert the file first")
        files = qrels_files(self.folder)
        path = files.get(self.split, self._qrels)
        if path != self._qrels or (files and not (self.folder / QRELS).is_dir()):
            raise UserError(f"{path}: judgements can only be added to {QRELS}/{self.split}.tsv. Convert the file first")

    def questions(self) -> list[JudgedQuestion]:
        """Read all questions, in the order of the file, with their judgements in this split.

        Returns:
            Questions, with those without judgements.

        Raises:
            UserError: If a line is invalid. The message names file and line.
        """
        scores: dict[str, dict[str, float]] = {}
        for query_id, doc_id, score in self._rows():
            scores.setdefault(query_id, {})[doc_id] = float(score)
        return [
            JudgedQuestion(str(record["_id"]), str(record["text"]), scores.get(str(record["_id"]), {}))
            for record in self._records()
        ]

    def save(
        self, text: str, relevant: Sequence[str], shown: Sequence[str], *, query_id: str | None = None
    ) -> JudgedQuestion:
        """Add a question with its judgements, or replace those of an existing question.

        Args:
            text: Text of the question.
            relevant: Ids of the relevant passages, at least one.
            shown: Ids of the passages that the user saw. Those that are not relevant are judged 0.
            query_id: Id of the question to change. If None, the question is new.

        Returns:
            The question.

        Raises:
            UserError: If the text is empty or too long, if no passage is relevant, or if an id is unknown.
        """
        text = " ".join(text.split())
        if not 0 < len(text) <= MAX_QUESTION:
            raise UserError(f"the question must have 1 to {MAX_QUESTION:,} characters, got {len(text):,}")
        if not relevant:
            raise UserError("at least one passage must be relevant. Search with other words, or remove the question")
        if unknown := [passage for passage in (*relevant, *shown) if passage not in self._passages]:
            raise UserError(f"passages must have ids of the corpus, got {unknown[0]!r}")
        with sole_use(self.folder, wait=True):
            records = self._records()
            rows = self._rows()
            if query_id is None:
                same = next((str(record["_id"]) for record in records if record["text"] == text), None)
                query_id = same or new_id([str(record["_id"]) for record in records])
            scores = dict.fromkeys(shown, 0.0) | dict.fromkeys(relevant, 1.0)
            position = next((row for row, record in enumerate(records) if str(record["_id"]) == query_id), None)
            if position is None:
                records.append({"_id": query_id, "text": text})
            else:
                records[position] = {**records[position], "text": text}
            other_rows = [row for row in rows if row.query_id != query_id]
            new_rows = [_JudgementRow(query_id, passage, f"{score:g}") for passage, score in scores.items()]
            self._write_records(records)
            self._write_rows([*other_rows, *new_rows])
        return JudgedQuestion(query_id, text, scores)

    def remove(self, query_id: str) -> None:
        """Remove a question and its judgements.

        Args:
            query_id: Id of the question.

        Raises:
            UserError: If the question does not exist, or is judged in another split.
        """
        with sole_use(self.folder, wait=True):
            records = self._records()
            remaining = [record for record in records if str(record["_id"]) != query_id]
            if len(remaining) == len(records):
                raise UserError(f"the question must exist, got the id {query_id!r}")
            for split, path in qrels_files(self.folder).items():
                if split != self.split and f"\n{query_id}\t" in path.read_text(encoding="utf-8"):
                    raise UserError(f"question {query_id!r} is judged in the split {split}, too. Edit {path}")
            self._write_rows([row for row in self._rows() if row.query_id != query_id])
            self._write_records(remaining)

    def _records(self) -> list[dict[str, Any]]:
        if not self._queries.is_file():
            return []
        records = []
        for line, record in read_jsonl(self._queries):
            if "_id" not in record or "text" not in record:
                raise bad_line(self._queries, line, needed="`_id` and `text`", actual=record)
            records.append(record)
        return records

    def _rows(self) -> list[_JudgementRow]:
        if not self._qrels.is_file():
            return []
        lines = read_tsv(self._qrels)
        first, header = next(lines, (1, [""]))
        if header != JUDGEMENT_HEADER:
            needed = f"the header {' '.join(JUDGEMENT_HEADER)}"
            raise bad_line(self._qrels, first, needed=needed, actual="\t".join(header))
        rows = []
        for line, columns in lines:
            if "".join(columns).strip():
                if len(columns) != len(JUDGEMENT_HEADER):
                    raise bad_line(self._qrels, line, needed="3 columns", actual="\t".join(columns))
                if math.isnan(parse_number(columns[2])):
                    raise bad_line(self._qrels, line, needed="a number as score", actual=columns[2])
                rows.append(_JudgementRow(*columns))
        return rows

    def _write_records(self, records: Sequence[Mapping[str, Any]]) -> None:
        if not records:
            self._queries.unlink(missing_ok=True)
            return
        write_text(self._queries, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))

    def _write_rows(self, rows: Sequence[_JudgementRow]) -> None:
        if not any(float(row.score) > 0 for row in rows):  # a split needs a relevant passage
            self._qrels.unlink(missing_ok=True)
            return
        self._qrels.parent.mkdir(exist_ok=True)
        write_text(self._qrels, "".join("\t".join(row) + "\n" for row in [JUDGEMENT_HEADER, *rows]))


def new_id(query_ids: Sequence[str]) -> str:
    """Return an id for a new question.

    Args:
        query_ids: Ids of the existing questions.

    Returns:
        ``q1``, or the next id of this form.

    Example:
        >>> new_id(["q1", "q7", "other"])
        'q8'
    """
    numbers = [int(name[1:]) for name in query_ids if name[:1] == "q" and name[1:].isdecimal()]
    return f"q{max(numbers, default=0) + 1}"
