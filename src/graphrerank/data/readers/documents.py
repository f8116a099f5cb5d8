"""Documents and queries of a data set folder, one line each."""

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

ANSWERS, ANSWERABLE = ("answer", "answer_aliases"), "answerable"  # keys of a query's metadata
SYNONYMS = {  # of a key that a record lacks
    "_id": ("id", "doc_id", "docid", "docno", "query_id", "qid"),
    "text": ("contents", "content", "body", "passage", "query", "question"),
}
FILTERED, EMPTY = -1, -2  # node numbers of documents that are left out, EMPTY of those without title and text
_ENDS = (".", "!", "?", ":", ";")
_BREAKS = set("\t\r\n")  # would not survive a TSV file


class CorpusRecord(NamedTuple):
    """One line of the corpus.

    Attributes:
        doc_id: Unique id.
        title: Title, which may be empty.
        text: Text, which may be empty.
        metadata: Metadata, empty if the file gives none.
    """

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
    """Return the title and the text of which a passage was made (:attr:`CorpusRecord.passage`).

    Args:
        passage: Text of a passage.
        title_length: Number of characters of the title at its start.

    Example:
        >>> split_passage("Paris. The capital of France.", 5)
        ('Paris', 'The capital of France.')
    """
    title, rest = passage[:title_length], passage[title_length:]
    return title, rest.removeprefix(".").removeprefix(" ") if title_length else rest


class Query(NamedTuple):
    """One line of the queries.

    Attributes:
        query_id: Unique id.
        text: Text, not empty.
        metadata: Metadata, empty if the file gives none.
        answers: Correct answers. Empty if the metadata say that the query has none, and None if they say nothing.
    """

    query_id: str
    text: str
    metadata: Mapping[str, Any]
    answers: Sequence[str] | None


def read_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[CorpusRecord]:
    """Read the corpus of a data set folder, one document at a time; errors name file and line.

    Documents without title and text are left out; a warning counts them unless ``drop_empty``. A corpus of these alone
    is an error.
    """
    for document in read_all_documents(folder, drop_empty=drop_empty):
        if document.title or document.text:
            yield document


def read_all_documents(folder: str | Path, *, drop_empty: bool = False) -> Iterator[CorpusRecord]:
    """Read the corpus as :func:`read_documents`, with those documents that it leaves out."""
    empty: defaultdict[Path, list[int]] = defaultdict(list)
    num_kept = 0
    for file, line, record in _identified(Path(folder), "corpus"):
        if record.title or record.text:
            num_kept += 1
        else:
            empty[file].append(line)
        yield CorpusRecord(record.key, record.title, record.text, record.metadata)
    if empty and not num_kept:
        raise bad_line(file, line, needed="a `title` or a `text` in some document", actual=record.key)
    for file, lines in empty.items() if not drop_empty else ():
        warn_left_out(file, {"a document without title and text": lines})


def read_queries(folder: str | Path) -> Iterator[Query]:
    """Read the queries of a data set folder, one at a time; errors name file and line."""
    for file, line, record in _identified(Path(folder), "queries"):
        if not record.text:
            raise bad_line(file, line, needed="a `text`", actual=record.key)
        yield Query(record.key, record.text, record.metadata, _right_answers(file, line, record.metadata))


def _right_answers(file: Path, line: int, metadata: Mapping[str, Any]) -> list[str] | None:
    """List ``answer`` and ``answer_aliases``, each one answer or a list; true and false are "yes" and "no"."""
    answerable = metadata.get(ANSWERABLE)
    if not isinstance(answerable, bool | None):
        raise bad_line(file, line, needed=f"true or false as `{ANSWERABLE}`", actual=metadata)
    texts: dict[str, None] = {}
    for key in ANSWERS:
        given = metadata.get(key)
        for answer in given if isinstance(given, list) else [given]:
            if not isinstance(answer, str | int | float | None):  # a bool is an int
                needed = f"a text, a number, true or false, or a list of them as `{key}`"
                raise bad_line(file, line, needed=needed, actual=metadata)
            text = ("yes" if answer else "no") if isinstance(answer, bool) else str(answer)
            if answer is not None and text.strip():
                texts[text] = None
    return [] if answerable is False else list(texts) or None


def _key(record: Any) -> str:
    key = as_id(record)
    if not isinstance(key, str) or not key or key != key.strip() or _BREAKS & set(key):
        raise ValueError("a string or an integer, not empty, without tabs, line breaks or blanks at its ends")
    return key


def _named(key: str) -> Any:
    return Field(validation_alias=AliasChoices(key, *SYNONYMS[key]))


def _or(empty: Any) -> BeforeValidator:
    return BeforeValidator(lambda given: empty if given is None else given)


_Text = Annotated[str, Field(strict=True), AfterValidator(str.strip), _or("")]


class _Record(BaseModel):
    key: Annotated[str, PlainValidator(_key)] = _named("_id")
    title: _Text = ""
    text: _Text = _named("text")
    metadata: Annotated[dict[str, Any], _or({})] = {}


def _misplaced(record: Mapping[str, Any]) -> str | None:
    """Return the path of a field outside of the metadata that seems to be meant as principals."""
    return misplaced_principals({key: field for key, field in record.items() if key != "metadata"})


def _identified(folder: Path, table: str) -> Iterator[tuple[Path, int, _Record]]:
    """Read a table's records with their unique ids."""
    seen: set[str] = set()
    for file in find_record_files(folder, table):
        for line, given in (read_parquet if file.suffix == ".parquet" else read_jsonl)(file):
            for key, names in SYNONYMS.items():
                if key not in given and len(found := [name for name in names if name in given]) > 1:
                    raise bad_line(file, line, needed=f"`{key}`, or one of its synonyms", actual=found)
            if table == "corpus" and (path := _misplaced(given)) is not None:  # else the document would be public
                raise bad_line(file, line, needed=f"`{PRINCIPALS}` in `metadata`", actual=path)
            record = checked(file, line, given, _Record)
            if table == "corpus":
                try:
                    check_record(record.metadata)
                except UserError as error:
                    raise UserError(f"{name_line(file, line)}: {error}") from None
            if record.key in seen:
                raise bad_line(file, line, needed="each `_id` once", actual=f"{record.key} a second time")
            seen.add(record.key)
            yield file, line, record
