"""Documents and queries of a data set folder."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field, PlainValidator

from graphrerank._moved import moved_names
from graphrerank.corpus.metadata_fields import check_record
from graphrerank.corpus.permissions import PRINCIPALS, misplaced_principals
from graphrerank.data.readers.records import (
    as_id,
    bad_line,
    checked,
    find_record_files,
    name_line,
    read_jsonl,
    read_parquet,
    warn_left_out,
)
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

ANSWERS, ANSWERABLE = ("answer", "answer_aliases"), "answerable"  # Keys in the metadata of a query.
SYNONYMS = {  # Alternative names of keys. They are used if the key is missing.
    "_id": ("id", "doc_id", "docid", "docno", "query_id", "qid"),
    "text": ("contents", "content", "body", "passage", "query", "question"),
}
FILTERED, EMPTY = -1, -2  # Passage numbers of documents that do not match the filter, or have no title and text.
_ENDS = (".", "!", "?", ":", ";")
_BREAKS = set("\t\r\n")  # Ids must be usable in a TSV file.


class CorpusRecord(NamedTuple):
    """Document of a corpus.

    Attributes:
        doc_id: Unique id.
        title: Title, which may be empty.
        text: Text, which may be empty.
        metadata: Metadata. Empty if there are none.
        passage: Text of the document's passage: title and text as two sentences.
    """

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any]

    @property
    def passage(self) -> str:
        """Text of the document's passage: title and text as two sentences."""
        if not (self.title and self.text):
            return self.title or self.text
        return f"{self.title}{'' if self.title.endswith(_ENDS) else '.'} {self.text}"


def split_passage(passage: str, title_length: int) -> tuple[str, str]:
    """Split a passage into the title and the text that it was made of (:attr:`CorpusRecord.passage`).

    Args:
        passage: Text of a passage.
        title_length: Number of characters of the title at the start of the passage.

    Returns:
        Title and text.

    Example:
        >>> split_passage("Paris. The capital of France.", 5)
        ('Paris', 'The capital of France.')
    """
    title, rest = passage[:title_length], passage[title_length:]
    return title, rest.removeprefix(".").removeprefix(" ") if title_length else rest


class Query(NamedTuple):
    """Query of a data set.

    Attributes:
        query_id: Unique id.
        text: Text, not empty.
        metadata: Metadata. Empty if there are none.
        answers: Correct answers. Empty if the query has no answer according to its metadata. None if unknown.
    """

    query_id: str
    text: str
    metadata: Mapping[str, Any]
    answers: Sequence[str] | None


def read_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[CorpusRecord]:
    """Read the documents of a data set folder that have a title or a text.

    Args:
        folder: Data set folder.
        drop_empty: Whether to skip documents without title and text silently. By default, they are skipped with a
            warning.

    Yields:
        Documents in the order of the corpus.

    Raises:
        UserError: If a file is missing or malformed, or if all documents are empty. The message names file and line.
    """
    for document in read_all_documents(folder, drop_empty=drop_empty):
        if document.title or document.text:
            yield document


def read_all_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[CorpusRecord]:
    """Read the documents of a data set folder, including those without title and text.

    Args:
        folder: Data set folder.
        drop_empty: Whether to omit the warning about documents without title and text.

    Yields:
        Documents in the order of the corpus.

    Raises:
        UserError: If a file is missing or malformed, or if all documents are empty. The message names file and line.
    """
    empty: defaultdict[Path, list[int]] = defaultdict(list)
    num_documents = 0
    for file, line, record in _identified(Path(folder), "corpus"):
        if record.title or record.text:
            num_documents += 1
        else:
            empty[file].append(line)
        yield CorpusRecord(record.key, record.title, record.text, record.metadata)
    if empty and not num_documents:
        raise bad_line(file, line, needed="a `title` or a `text` in at least one document", actual=record.key)
    for file, lines in empty.items() if not drop_empty else ():
        warn_left_out(file, {"document without title and text": lines})


def read_queries(folder: str | Path) -> Iterator[Query]:
    """Read the queries of a data set folder.

    Args:
        folder: Data set folder.

    Yields:
        Queries in the order of the file.

    Raises:
        UserError: If a file is missing or malformed. The message names file and line.
    """
    for file, line, record in _identified(Path(folder), "queries"):
        if not record.text:
            raise bad_line(file, line, needed="a `text`", actual=record.key)
        yield Query(record.key, record.text, record.metadata, _right_answers(file, line, record.metadata))


def _right_answers(file: Path, line: int, metadata: Mapping[str, Any]) -> list[str] | None:
    """Return the answers in ``answer`` and ``answer_aliases``. Booleans become "yes" and "no"."""
    answerable = metadata.get(ANSWERABLE)
    if not isinstance(answerable, bool | None):
        raise bad_line(file, line, needed=f"true or false as `{ANSWERABLE}`", actual=metadata)
    texts: dict[str, None] = {}
    for key in ANSWERS:
        entry = metadata.get(key)
        for answer in entry if isinstance(entry, list) else [entry]:
            if not isinstance(answer, str | int | float | None):  # A bool is an int.
                needed = f"a text, a number, true or false, or a list of them as `{key}`"
                raise bad_line(file, line, needed=needed, actual=metadata)
            text = ("yes" if answer else "no") if isinstance(answer, bool) else str(answer)
            if answer is not None and text.strip():
                texts[text] = None
    return [] if answerable is False else list(texts) or None


def _key(record: Any) -> str:
    key = as_id(record)
    if not isinstance(key, str) or not key or key != key.strip() or _BREAKS & set(key):
        raise ValueError("a non-empty string or an integer, without tabs, line breaks, or leading and trailing spaces")
    return key


def _named(key: str) -> Any:
    return Field(validation_alias=AliasChoices(key, *SYNONYMS[key]))


def _or(empty: Any) -> BeforeValidator:
    return BeforeValidator(lambda entry: empty if entry is None else entry)


_Text = Annotated[str, Field(strict=True), AfterValidator(str.strip), _or("")]


class _Record(BaseModel):
    key: Annotated[str, PlainValidator(_key)] = _named("_id")
    title: _Text = ""
    text: _Text = _named("text")
    metadata: Annotated[dict[str, Any], _or({})] = {}


def _misplaced(record: Mapping[str, Any]) -> str | None:
    """Return the path of a field outside the metadata that looks like a list of principals."""
    return misplaced_principals({key: field for key, field in record.items() if key != "metadata"})


def _identified(folder: Path, table: str) -> Iterator[tuple[Path, int, _Record]]:
    """Yield the validated records of a table, whose ids are unique."""
    seen: set[str] = set()
    for file in find_record_files(folder, table):
        for line, fields in (read_parquet if file.suffix == ".parquet" else read_jsonl)(file):
            for key, names in SYNONYMS.items():
                if key not in fields and len(synonyms := [name for name in names if name in fields]) > 1:
                    raise bad_line(file, line, needed=f"`{key}`, or one of its synonyms", actual=synonyms)
            # Misplaced principals would be ignored, and the document would be public.
            if table == "corpus" and (path := _misplaced(fields)) is not None:
                raise bad_line(file, line, needed=f"`{PRINCIPALS}` in `metadata`", actual=path)
            record = checked(file, line, fields, _Record)
            if table == "corpus":
                try:
                    check_record(record.metadata)
                except UserError as error:
                    raise UserError(f"{name_line(file, line)}: {error}") from None
            if record.key in seen:
                raise bad_line(file, line, needed="unique `_id`", actual=f"{record.key} (duplicate)")
            seen.add(record.key)
            yield file, line, record
