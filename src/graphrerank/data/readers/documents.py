"""Documents and queries of a data set folder, one line each."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphrerank.data.readers.records import Record, bad_line, find_record_files, read_jsonl, read_parquet

ANSWERS, ANSWERABLE = ("answer", "answer_aliases"), "answerable"  # keys of a query's metadata
_ENDS = (".", "!", "?", ":", ";")
_BREAKS = set("\t\r\n")  # would not survive a TSV file


class Document(NamedTuple):
    """One line of the corpus; ``metadata`` is empty where the file gives none."""

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any]

    @property
    def passage(self) -> str:
        """The text of its node: title and text as two sentences."""
        if not (self.title and self.text):
            return self.title or self.text
        return f"{self.title}{'' if self.title.endswith(_ENDS) else '.'} {self.text}"


def split_passage(passage: str, title_length: int) -> tuple[str, str]:
    """Return the title and the text of which a passage was made."""
    title, rest = passage[:title_length], passage[title_length:]
    return title, rest.removeprefix(".").removeprefix(" ") if title_length else rest


class Query(NamedTuple):
    """One line of the queries; ``metadata`` is empty where the file gives none."""

    query_id: str
    text: str
    metadata: Mapping[str, Any]
    answers: Sequence[str] | None  # right answers; empty if the metadata say that there is none, None if nothing


def read_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[Document]:
    """Read the corpus of a data set folder, one document at a time; errors name file and line."""
    for file, line, record, doc_id in _identified(Path(folder), "corpus"):
        title, text = _text(file, line, record, "title", optional=True), _text(file, line, record, "text")
        if title or text:
            yield Document(doc_id, title, text, _metadata(file, line, record))
        elif not drop_empty:
            raise bad_line(file, line, needed="a `title` or a `text` (or `drop_empty`)", found=record)


def read_queries(folder: str | Path) -> Iterator[Query]:
    """Read the queries of a data set folder, one at a time; errors name file and line."""
    for file, line, record, query_id in _identified(Path(folder), "queries"):
        text = _text(file, line, record, "text")
        if not text:
            raise bad_line(file, line, needed="a `text`", found=record)
        metadata = _metadata(file, line, record)
        yield Query(query_id, text, metadata, _right_answers(file, line, metadata))


def _right_answers(file: Path, line: int, metadata: Mapping[str, Any]) -> list[str] | None:
    """List ``answer`` and ``answer_aliases``, each one answer or a list; true and false are "yes" and "no"."""
    answerable = metadata.get(ANSWERABLE)
    if not isinstance(answerable, bool | None):
        raise bad_line(file, line, needed=f"true or false as `{ANSWERABLE}`", found=metadata)
    texts: dict[str, None] = {}
    for key in ANSWERS:
        given = metadata.get(key)
        for answer in given if isinstance(given, list) else [given]:
            if not isinstance(answer, str | int | float | None):  # a bool is an int
                needed = f"a text, a number, true or false, or a list of them as `{key}`"
                raise bad_line(file, line, needed=needed, found=metadata)
            text = ("yes" if answer else "no") if isinstance(answer, bool) else str(answer)
            if answer is not None and text.strip():
                texts[text] = None
    return [] if answerable is False else list(texts) or None


def _identified(folder: Path, table: str) -> Iterator[tuple[Path, int, Record, str]]:
    """Read a table's records with their unique ids."""
    seen: set[str] = set()
    for file in find_record_files(folder, table):
        for line, record in (read_parquet if file.suffix == ".parquet" else read_jsonl)(file):
            key = record.get("_id")
            if file.suffix == ".parquet" and type(key) is int:
                key = str(key)
            if not isinstance(key, str) or not key or key != key.strip() or _BREAKS & set(key):
                needed = "an `_id`: a string, not empty, without tabs, line breaks or blanks at its ends"
                raise bad_line(file, line, needed=needed, found=key)
            if key in seen:
                raise bad_line(file, line, needed="each `_id` once", found=f"{key} a second time")
            seen.add(key)
            yield file, line, record, key


def _text(file: Path, line: int, record: Record, key: str, *, optional: bool = False) -> str:
    text = record.get(key)
    if text is None and optional:
        return ""
    if not isinstance(text, str):
        raise bad_line(file, line, needed=f"a string as `{key}`", found=text)
    return text.strip()


def _metadata(file: Path, line: int, record: Record) -> Mapping[str, Any]:
    metadata = record.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise bad_line(file, line, needed="an object as `metadata`", found=metadata)
    return metadata
