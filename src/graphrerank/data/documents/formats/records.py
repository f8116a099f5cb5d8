"""Records to documents: JSON, JSON lines and tables as text.

A record's text, title and id stand under one of the usual names; one without a text says what it has as lines
``name: value``.
"""

import csv
import io
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank.data.documents.document import MAX_NAME, Block, Document, Section, UnreadableError
from graphrerank.data.documents.formats.chats import read_chat
from graphrerank.data.documents.formats.text import decode_text, without_blobs

MAX_RECORDS, MAX_VALUES = 1_000_000, 5_000_000  # of a file; a value of JSON takes up to 72 bytes of memory
MAX_COLUMNS = 10_000
MAX_DEPTH, MAX_LEVELS = 32, 4  # of nested objects, deeper ones are left out; within which records are searched for
MAX_KEY = 100  # characters of the name of what a record says
MAX_SAID = 1_000_000  # characters of the lines of a record
_MAX_GROWTH = 10  # times the characters of a file, which its records with the names of what they say may have
_ALL = ("text", "content", "contents", "body", "passage", "page_content")  # that a record is about
_TEXTS = (*_ALL, "abstract", "description", "summary", "context")
_TITLES = ("title", "name", "headline", "subject", "question", "heading", "summary")
_IDS = ("_id", "id", "doc_id", "docid", "uuid", "key")
_WRAPPERS = ("properties", "_source", "attributes", "fields", "node", "document")  # of what a record says
_SAMPLE, _SAMPLED_ROWS = 65_536, 50  # characters and records by which the form of a file is found
_SEPARATOR = re.compile(r"\"?sep=(.)\"?\n", re.IGNORECASE)
_NUMBER = re.compile(r"(?!(?:19|20)\d\d$)[-+]?\d[\d.,:/-]*")  # a year may name a column
_LONG = 30  # characters of the cells of a column of texts
_LONG_WORDS = 8  # of a cell that names no column
_NOTHING: Mapping[str, Any] = {}  # of all documents: a million may be of a file


class _Row(NamedTuple):
    number: int  # among the records, or the line where it begins
    content: Any
    line: int = 0
    end: int = 0


def read_json(content: bytes, name: str) -> list[Document]:
    """Read a list of records, below a key or not, one record, or a chat."""
    text = decode_text(content)
    try:
        return _loaded(_loads(text), name, len(text))
    except RecursionError as error:
        raise UnreadableError("JSON that is nested too deeply") from error
    except json.JSONDecodeError:
        if text.lstrip().split("\n", 1)[0].rstrip().endswith("}"):
            return _documents(name, _lines(text), len(text))
        raise UnreadableError("not JSON") from None


def read_jsonl(content: bytes, name: str) -> list[Document]:
    """Read a record from each line, or else a file of JSON."""
    text = decode_text(content)
    try:
        return _documents(name, _lines(text), len(text))
    except UnreadableError:
        if text.split("\n", 1)[0].strip() not in ("{", "["):
            raise
    return read_json(content, name)


def read_table(content: bytes, name: str) -> list[Document]:
    """Read a record from each row of a table; its separator and its names of columns are found."""
    text = decode_text(content)
    said = _SEPARATOR.match(text)
    text = text[said.end() :] if said else text
    mark = said[1] if said else _separator(text, is_tsv=name.lower().endswith(".tsv"))
    try:
        return _documents(name, _table_rows(text, mark, int(said is not None)), len(text))
    except csv.Error as error:
        raise UnreadableError("not a table") from error


def _table_rows(text: str, mark: str, before: int) -> Iterator[_Row]:
    """Yield the rows of a table as objects, with ``before`` lines before it."""
    quoting = _quoting(text, mark)
    sample = list(islice(_parsed(text, mark, quoting), _SAMPLED_ROWS))
    if not sample:
        return
    has_names = _names_columns(sample[0].content)
    names = _names(sample[0].content) if has_names else _guessed_names(sample)
    known = len(names)
    for place, (number, cells, line, end) in enumerate(_parsed(text, mark, quoting)):
        if has_names and not place:
            continue
        names += [f"column {other + 1}" for other in range(len(names), len(cells))]
        row = {name: cell for name, cell in zip(names, cells, strict=False) if cell or name.lower() in _TEXTS}
        if len(cells) > known and (key := _key(row, _TEXTS)) is not None:
            row[key] = "\n".join([row[key], *_said({name: row.get(name) for name in names[known:]})])
        yield _Row(number + before, row, line + before, end + before)


def _loads(text: str) -> Any:
    if len(text) > MAX_VALUES and sum(map(text.count, ",[{")) > MAX_VALUES:
        raise UnreadableError(f"more than {MAX_VALUES:,} values of JSON")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of too many digits
        raise UnreadableError("not JSON that can be read") from error


def _lines(text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield _Row(number, _loads(line), number, number)
            except (ValueError, RecursionError) as error:
                raise UnreadableError(f"not JSON in line {number}") from error


def _loaded(content: Any, name: str, most: int) -> list[Document]:
    if (chat := read_chat(content, name)) is not None:
        return chat
    rows = content if isinstance(content, list) else _records(content)
    _check_number(len(rows or ()))
    words = _text(content) if isinstance(content, list) else ""
    if words and len(words) < _LONG * len(content):  # a list of words
        return _documents(name, [_Row(1, {"text": content})], most, is_alone=True)
    if rows is None or (isinstance(content, list) and len(rows) == 1):
        return _documents(name, [_Row(1, row) for row in rows or [content]], most, is_alone=True)
    parts = (part for row in rows for part in _parts(row))
    return _documents(name, (_Row(*row) for row in enumerate(parts, 1)), most)


def _records(content: Any, level: int = 0) -> list[Any] | None:
    """Find the one list of objects that is most of an object, below a key or several, or its objects by their ids."""
    if not isinstance(content, dict) or not content or level == MAX_LEVELS:
        return None
    most = len(repr(content)) // 2
    objects = [row for row in content.values() if isinstance(row, dict)]
    if len(objects) == len(content) > 1 and _have_texts(objects):
        return [{"_id": key} | row for key, row in content.items()]
    for rows in (part for part in content.values() if isinstance(part, list | dict) and len(repr(part)) > most):
        if isinstance(rows, dict):
            return _records(rows, level + 1)
        if rows and all(isinstance(row, dict) for row in rows):
            return rows if _have_texts(rows) or (len(rows) > 1 and _key(content, _TITLES) is None) else None
    return None


def _parts(row: Any) -> list[Any]:
    """Split a record without a text whose parts have one, as the paragraphs of an article of SQuAD."""
    if isinstance(row, dict) and _key(_unwrapped(row), _TEXTS) is None:
        parts = _records(row)
        if parts is not None and _have_texts(parts):
            title = _key(row, _TITLES)
            return [({"title": row[title]} if title else {}) | part for part in parts]
    return [row]


def _have_texts(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(_key(_unwrapped(row), _TEXTS) is not None for row in rows[:_SAMPLED_ROWS])


def _key(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the key of a text that has the first of the names, in any case."""
    keys = _lowered(tuple(row))
    return next((keys[name] for name in names if name in keys and _text(row[keys[name]])), None)


@lru_cache(maxsize=8)
def _lowered(keys: tuple[str, ...]) -> dict[str, str]:
    return {key.strip().lower(): key for key in keys}


def _text(value: Any) -> str:
    """Return a text, or a list of texts as lines; empty for others."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    return value.strip() if isinstance(value, str) else ""


def _unwrapped(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lift what stands below a key such as ``properties``."""
    for name in _WRAPPERS:
        if isinstance(inner := row.get(name), dict):
            return {**inner, **{key: row[key] for key in row if key != name and key not in inner}}
    return row


def _documents(name: str, rows: Iterable[_Row], most: int, *, is_alone: bool = False) -> list[Document]:
    taken: set[str] = set()
    found: list[Document] = []
    size = 0
    for row in rows:
        content = row.content
        key = "text" if isinstance(content, str) else ""
        is_said = isinstance(content, str | list)
        entries = _unwrapped(content if isinstance(content, dict) else {key: content} if is_said else {})
        own = _id(entries) or str(row.number)
        while own in taken:  # an id that came before
            own = f"{own}:{row.number}"
        taken.add(own)
        found.append(_document(name if is_alone else f"{name}#{own}", entries, row, is_alone=is_alone))
        size += sum(len(block.text) for block in found[-1].sections[0].blocks)
        if size > MAX_SAID + _MAX_GROWTH * most:
            raise UnreadableError("names that are repeated too often")
        _check_number(len(found))
    return found


def _check_number(records: int) -> None:
    if records > MAX_RECORDS:
        raise UnreadableError(f"more than {MAX_RECORDS:,} records")


def _id(row: Mapping[str, Any]) -> str:
    keys = _lowered(tuple(row))
    for value in (row[keys[name]] for name in _IDS if name in keys):
        if isinstance(value, str | int) and not isinstance(value, bool):
            own = "".join(part if part.isprintable() else " " for part in str(value)[:MAX_NAME])
            if own := " ".join(own.split()):
                return own
    return ""


def _document(name: str, row: Mapping[str, Any], place: _Row, *, is_alone: bool) -> Document:
    key = _key(row, _TEXTS)
    title_key = _key(row, [each for each in _TITLES if key is None or each != key.strip().lower()])
    title = " ".join(_text(row[title_key]).split())[:MAX_NAME] if title_key is not None else ""
    texts, cut = [_text(row[key])] if key is not None else [], 0
    if key is None or (is_alone and key.strip().lower() not in _ALL):
        keys = _lowered(tuple(row))
        left_out = (key, title_key, *(keys.get(each) for each in _IDS[:-1]))
        said, cut = _cut(_said({other: row[other] for other in row if other not in left_out}))
        texts += said if is_alone else ["\n".join(said)]
    if not any(texts) and not any(each in _lowered(tuple(row)) for each in _TEXTS):
        texts = [title]
    text, dropped = without_blobs("\n\0".join(texts))
    blocks = tuple(
        Block(part.strip(), place.line, is_whole=key is None and not is_alone, is_tight=number > 0)
        for number, part in enumerate(text.split("\n\0"))
        if part.strip()
    )
    title = title or (PurePosixPath(name).stem if is_alone else "")
    dropped |= {"lines of long records": cut} if cut else {}
    sections = (Section("", blocks, place.line, place.end),)
    return Document(name, title, sections, imports=_NOTHING, dropped=dropped or _NOTHING)


def _cut(lines: Iterator[str]) -> tuple[list[str], int]:
    kept: list[str] = []
    room = MAX_SAID
    for line in lines:
        room -= len(line)
        if room < 0:
            return kept, 1 + sum(1 for _ in lines)
        kept.append(line)
    return kept, 0


def _said(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Write what a record says as lines ``name: text``, names of nested ones by points, but for lists of numbers."""
    name = f"{path}: " if path else ""
    if isinstance(value, str):
        if text := value.strip():
            yield name + text
    elif isinstance(value, dict):
        for key, part in value.items() if depth < MAX_DEPTH else ():
            yield from _said(part, (f"{path}.{key}" if path else key)[:MAX_KEY], depth + 1)
    elif isinstance(value, list):
        if words := [part.strip() for part in value if isinstance(part, str) and part.strip()]:
            yield name + ", ".join(words)
        for part in value if depth < MAX_DEPTH else ():
            if isinstance(part, dict | list):
                yield from _said(part, path, depth + 1)
    elif isinstance(value, bool):
        yield name + str(value).lower()
    elif value is not None and value == value:  # no NaN
        yield f"{name}{value}"


def _separator(text: str, *, is_tsv: bool) -> str:
    """Return the mark by which most of the first rows have as many cells as each other, or one that is not there."""
    best, most = "\x1f", 0.0
    for mark in "\t,;|" if is_tsv else ",;\t|":
        widths = [len(row.content) for row in islice(_parsed(text[:_SAMPLE], mark), _SAMPLED_ROWS)]
        widths = widths[:-1] if len(text) > _SAMPLE and 1 < len(widths) < _SAMPLED_ROWS else widths
        width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        if width > 1 and widths[0] > 1 and count / len(widths) > most:
            best, most = mark, count / len(widths)
    return best


def _quoting(text: str, mark: str) -> int:
    """Return whether quotes are quotes: where one is open or, between tabs, wrong, none is."""
    try:
        deque(_parsed(text, mark, strict=True), maxlen=0)
    except csv.Error as error:
        if mark == "\t" or "unexpected end" in str(error):
            return csv.QUOTE_NONE
    return csv.QUOTE_MINIMAL


def _parsed(text: str, mark: str, quoting: int = csv.QUOTE_MINIMAL, *, strict: bool = False) -> Iterator[_Row]:
    """Yield the rows that are not empty, with their lines."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, quoting=quoting, strict=strict)  # type: ignore[arg-type]
    line = 1
    for cells in reader:
        if len(cells) > MAX_COLUMNS:
            raise UnreadableError(f"more than {MAX_COLUMNS:,} columns")
        if any(cells) and any(map(str.strip, cells)):
            yield _Row(line, [cell.strip() for cell in cells], line, reader.line_num)
        line = reader.line_num + 1


def _names_columns(cells: Sequence[str]) -> bool:
    if any(cell.lower() in (*_TEXTS, *_TITLES, *_IDS) for cell in cells):
        return True
    return not any(_NUMBER.fullmatch(cell) or len(cell.split()) > _LONG_WORDS or "\n" in cell for cell in cells)


def _names(cells: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    for place, cell in enumerate(cells, 1):
        name = cell[:MAX_KEY] or f"column {place}"
        while name in names:
            name = f"{name} {place}"
        names[name] = None
    return list(names)


def _guessed_names(rows: Sequence[_Row]) -> list[str]:
    """Name the columns of a table whose first row does not: a long one is the text, different words before it ids."""
    width = max(len(row.content) for row in rows)
    columns = [[row.content[place] for row in rows if place < len(row.content)] for place in range(width)]
    names = [f"column {place}" for place in range(1, width + 1)]
    longest = max(range(width), key=lambda place: sum(map(len, columns[place])))
    if sum(map(len, columns[longest])) > _LONG * len(rows):
        names[longest] = "text"
        if longest and len(set(columns[0])) == len(rows) and not any(" " in cell for cell in columns[0]):
            names[0] = "id"
    return names
