"""Parse records in JSON, JSON Lines, text tables (CSV, TSV) and Parquet.

The text, title and id of a record are found by common field names. A record without a text field becomes lines of the
form ``name: value``.
"""

import csv
import io
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice, zip_longest
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank.installation.extras import optional
from graphrerank_documents.document import LABEL, MAX_NAME, Block, Document, Link, Section, UnreadableError
from graphrerank_documents.formats.chats import read_chat, user_names
from graphrerank_documents.formats.text import decode_text, without_blobs
from graphrerank_documents.json_comments import without_comments

#: Maximum depth of nested values in a record, and of the list of records in a file.
MAX_DEPTH, MAX_LEVELS = 32, 4
#: Maximum number of characters of the name of a value.
MAX_KEY = 100
# Limits on the text of all records, because it repeats names: a number of characters, plus a multiple of the file size.
_MIN_LIMIT, _MAX_GROWTH = 1_000_000, 10
_ALL = ("text", "content", "contents", "body", "passage", "page_content")  # fields with the complete text of a record
_TEXTS = (*_ALL, "abstract", "description", "summary", "context")
_TITLES = ("title", "name", "headline", "subject", "question", "heading", "summary")
_IDS = ("_id", "id", "doc_id", "docid", "uuid", "key")
_WRAPPERS = ("properties", "_source", "attributes", "fields", "node", "document")  # fields that contain other fields
_SAMPLE, _SAMPLED_ROWS = 65_536, 50  # number of characters and records from which the structure of a file is inferred
_SEPARATOR = re.compile(r"\"?sep=(.)\"?\n", re.IGNORECASE)
_NUMBER = re.compile(r"(?!(?:19|20)\d\d$)[-+]?\d[\d.,:/-]*")  # a year is excluded, because it may name a column
_LONG = 30  # minimum mean number of characters of the cells in a text column
_LONG_WORDS = 8  # maximum number of words in the name of a column


#: Kinds of omitted parts of a file of records.
DAMAGED, OTHER_FIELDS = "lines that are not JSON", "fields of records beside their text"
_PARENT_NAMES = """parent parentid parents replyto inreplyto replytoid inreplytoid replytomessageid inreplytostatusid
parentpostid parentcommentid acceptedanswerid related relatedid relatedids seealso references linkedids links
duplicateof"""
_PARENTS = frozenset(_PARENT_NAMES.split())  # fields with the id or title of another record, without separators
_BATCH = 1000  # number of rows of a Parquet file that are decoded together
_MAX_UNPACKED = 10_000_000  # a tenth of the maximum number of characters in a Parquet file, which is compressed
_PAGE_URL = re.compile(r"https?://[^\s<>\"'()\[\]{}|]{1,1000}")
_MAX_PARENTS = 100  # maximum number of references of a record


class _Row(NamedTuple):
    """Record of a file.

    Attributes:
        number: Number of the record, or the line in which it starts.
        content: Decoded value.
        line: First line, 1-based, or 0 if it is unknown.
        end: Last line, or 0 if it is unknown.
    """

    number: int
    content: Any
    line: int = 0
    end: int = 0


def read_json_documents(content: bytes, name: str) -> list[Document]:
    """Parse a JSON file: a list of records, which may be nested in an object, a single record or a chat export.

    A file that is not JSON is parsed as JSON Lines.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per record.

    Raises:
        UnreadableError: If ``content`` is binary or neither JSON nor JSON Lines, or its encoding is unknown.
    """
    text = decode_text(content)
    try:
        value = json.loads(text)
    except ValueError:
        if (value := _commented(text)) is None:
            return _line_documents(name, text)
    if (chat := read_chat(value, name)) is not None:
        return chat
    if names := user_names(value):
        documents = _documents(name, (_Row(*row) for row in enumerate(value, 1)), len(text))
        first, *others = documents or [Document(name, name, ())]
        return [replace(first, names=names), *others]
    rows = value if isinstance(value, list) else _records(value)
    num_omitted = 0 if rows is None or rows is value else _num_values(value) - _num_values(rows)
    if isinstance(value, list) and 0 < len(_text(value)) < _LONG * len(value):  # a list of words
        rows = [{"text": value}]
    is_text = rows is not value and isinstance(value, list)
    is_single = rows is value and isinstance(value, list) and len(value) == 1
    if rows is None or is_text or is_single:
        documents = _documents(name, [_Row(1, row) for row in rows or [value]], len(text), is_alone=True)
    else:
        numbered = (_Row(*row) for row in enumerate(chain.from_iterable(map(_split, rows)), 1))
        documents = _documents(name, numbered, len(text))
    return _noted(documents, num_omitted)


def read_jsonl_documents(content: bytes, name: str) -> list[Document]:
    """Parse a JSON Lines file into one document per line. Damaged lines, such as a truncated last one, are counted.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per line.

    Raises:
        UnreadableError: If ``content`` is binary, most lines are not JSON, or the encoding is unknown.
    """
    return _line_documents(name, decode_text(content))


def _line_documents(name: str, text: str) -> list[Document]:
    """Return one document per line of JSON. The number of damaged lines is noted in the first document."""
    rows, damaged = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(_Row(number, json.loads(line), number, number))
            except ValueError:
                damaged.append(number)
    if damaged and len(rows) <= len(damaged):
        raise UnreadableError(f"not JSON in line {damaged[0]}")
    return _noted(_documents(name, rows, len(text)), len(damaged), DAMAGED)


def _commented(text: str) -> Any:
    """Return the object or list in JSON with comments, or None."""
    try:
        value = json.loads(without_comments(text)) if text.lstrip()[:1] in ("{", "[", "/") else None
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _num_values(value: Any, depth: int = 0) -> int:
    """Return the number of texts and numbers in decoded JSON."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return sum(_num_values(part, depth + 1) for part in parts) if depth < MAX_DEPTH else 0
    return int(value is not None and value != "" and not isinstance(value, bool))


def _noted(documents: list[Document], count: int, kind: str = "") -> list[Document]:
    """Return the documents, with the number of omitted parts of their file in the first one."""
    if count and documents:
        first = documents[0]
        kind = kind or OTHER_FIELDS
        documents[0] = replace(first, dropped={**first.dropped, kind: first.dropped.get(kind, 0) + count})
    return documents


def read_table_documents(content: bytes, name: str) -> list[Document]:
    """Parse a text table. The separator and the header row are detected.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per row.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    text = decode_text(content)
    first_line = _SEPARATOR.match(text)
    likely_first = "\t,;|" if name.lower().endswith(".tsv") else ",;\t|"
    mark = first_line[1] if first_line else _separator(text, likely_first)
    quoting = csv.QUOTE_MINIMAL
    try:
        deque(_parsed(text, mark, quoting, strict=True), maxlen=0)
    except csv.Error as error:  # disable quoting if a quote is unclosed or, in a table with tabs, invalid
        quoting = csv.QUOTE_NONE if mark == "\t" or "unexpected end" in str(error) else quoting
    rows = islice(_parsed(text, mark, quoting), 1 if first_line else 0, None)
    return _documents(name, _with_names(rows), len(text))


def read_parquet_documents(content: bytes, name: str) -> list[Document]:
    """Parse a Parquet file.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document per row.

    Raises:
        UnreadableError: If ``content`` is not Parquet, or its text is too long.
    """
    arrow, parquet = (optional(module, "a Parquet file") for module in ("pyarrow", "pyarrow.parquet"))
    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        batches = file.iter_batches(batch_size=_BATCH)
        rows = (row for batch in batches for row in batch.to_pylist())
        return _documents(name, (_Row(*row) for row in enumerate(rows, 1)), _MAX_UNPACKED)
    except (arrow.ArrowException, OSError) as error:
        raise UnreadableError("not Parquet") from error


def _parsed(text: str, mark: str, quoting: int = csv.QUOTE_MINIMAL, *, strict: bool = False) -> Iterator[_Row]:
    """Yield the non-empty rows with their line numbers."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, quoting=quoting, strict=strict)  # type: ignore[arg-type]
    line = 1
    for cells in reader:
        if any(stripped := [cell.strip() for cell in cells]):
            yield _Row(line, stripped, line, reader.line_num)
        line = reader.line_num + 1


def _separator(text: str, marks: str) -> str:
    """Return the separator for which most of the first rows have the same number of cells.

    If no separator yields several cells, a control character is returned, so that each row is one cell.
    """
    best_mark, best_share = "\x1f", 0.0
    for mark in marks:
        widths = [len(row.content) for row in islice(_parsed(text[:_SAMPLE], mark), _SAMPLED_ROWS)]
        if len(text) > _SAMPLE and 1 < len(widths) < _SAMPLED_ROWS:
            widths.pop()  # the last row of the sample may be truncated
        width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        if width > 1 and widths[0] > 1 and count / len(widths) > best_share:
            best_mark, best_share = mark, count / len(widths)
    return best_mark


def _with_names(rows: Iterator[_Row]) -> Iterator[_Row]:
    """Yield the rows of a table as objects. Cells beyond the named columns are appended to the text."""
    sample = list(islice(rows, _SAMPLED_ROWS))
    first: Sequence[str] = sample[0].content if sample else ()
    has_header = _are_names(first)
    names = (_unique_names(first) if has_header else []) or _guessed_names(sample)
    num_named = len(names)
    for row in islice(chain(sample, rows), has_header, None):
        names += [f"column {number}" for number in range(len(names) + 1, len(row.content) + 1)]
        cells = {name: cell for name, cell in zip(names, row.content, strict=False) if cell or name.lower() in _TEXTS}
        if len(row.content) > num_named and (key := _key(cells, _TEXTS)) is not None:
            others = {name: cells.get(name) for name in names[num_named:]}
            cells[key] = "\n".join([cells[key], *_value_lines(others)])
        yield row._replace(content=cells)


def _are_names(cells: Sequence[str]) -> bool:
    """Return whether the first row of a table names its columns: with a common name, or without a number or text."""
    if any(cell.lower() in (*_TEXTS, *_TITLES, *_IDS) for cell in cells):
        return True
    return not any(_NUMBER.fullmatch(cell) or len(cell.split()) > _LONG_WORDS or "\n" in cell for cell in cells)


def _unique_names(cells: Sequence[str]) -> list[str]:
    """Return the names of columns, with numbers for empty and repeated names."""
    names: dict[str, None] = {}
    for number, cell in enumerate(cells, 1):
        name = cell[:MAX_KEY] or f"column {number}"
        while name in names:
            name = f"{name} {number}"
        names[name] = None
    return list(names)


def _guessed_names(rows: Sequence[_Row]) -> list[str]:
    """Name the columns of a table without a header.

    The longest column is the text if its cells are long. The first column is the id if its words are unique.
    """
    columns = list(zip_longest(*(row.content for row in rows), fillvalue=""))
    sizes = [sum(map(len, column)) for column in columns]
    names = [f"column {number}" for number in range(1, len(columns) + 1)]
    if sizes and max(sizes) > _LONG * len(rows):
        longest = sizes.index(max(sizes))
        names[longest] = "text"
        if longest and len(set(columns[0])) == len(rows) and not any(" " in cell for cell in columns[0]):
            names[0] = "id"
    return names


def _records(content: Any, level: int = 0) -> list[Any] | None:
    """Return the nested list of objects that makes up most of an object, or None if there is no such list.

    An object whose values are all objects with texts is converted to such a list. Its keys become ids.
    """
    if not isinstance(content, dict) or not content or level == MAX_LEVELS:
        return None
    if len(content) > 1 and all(isinstance(row, dict) for row in content.values()) and _have_texts([*content.values()]):
        return [{"_id": key} | row for key, row in content.items()]
    rows = max(content.values(), key=lambda part: len(repr(part)) * isinstance(part, list | dict))
    if len(repr(rows)) <= len(repr(content)) // 2:
        return None
    if isinstance(rows, dict):
        return _records(rows, level + 1)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return None
    return rows if _have_texts(rows) or (len(rows) > 1 and _key(content, _TITLES) is None) else None


def _split(row: Any) -> list[Any]:
    """Split a record without text whose nested records have one, such as an article of SQuAD with its paragraphs."""
    parts = _records(row) if isinstance(row, dict) and _key(_unwrapped(row), _TEXTS) is None else None
    if not parts or not _have_texts(parts):
        return [row]
    title = _key(row, _TITLES)
    return [({"title": row[title]} if title else {}) | part for part in parts]


def _have_texts(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(_key(_unwrapped(row), _TEXTS) is not None for row in rows[:_SAMPLED_ROWS])


def _key(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the key of the first named field with text, ignoring case, or None."""
    keys = _lowered(tuple(row))
    return next((keys[name] for name in names if name in keys and _text(row[keys[name]])), None)


@lru_cache(maxsize=8)
def _lowered(keys: tuple[str, ...]) -> dict[str, str]:
    return {key.strip().lower(): key for key in keys}


def _text(value: Any) -> str:
    """Return a string, or a list of strings joined as lines. Other values become an empty string."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    return value.strip() if isinstance(value, str) else ""


def _unwrapped(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record with the fields below a key such as ``properties`` moved to the top level."""
    for name in _WRAPPERS:
        if isinstance(inner := row.get(name), dict):
            return {**inner, **{key: row[key] for key in row if key != name and key not in inner}}
    return row


def _documents(name: str, rows: Iterable[_Row], file_size: int, *, is_alone: bool = False) -> list[Document]:
    """Return a document for each record of a file, with links to the records that it names as its parents."""
    documents: dict[str, Document] = {}
    with_parents: dict[str, Mapping[str, Any]] = {}  # fields of the records that name others, by id
    num_chars = 0
    for row in rows:
        fields = _fields(row.content)
        record_id = _id(fields) or str(row.number)
        while record_id in documents:  # make repeated ids unique
            record_id = f"{record_id}:{row.number}"
        document = _document(name if is_alone else f"{name}#{record_id}", fields, row, is_alone=is_alone)
        documents[record_id] = document
        if any(map(_is_parent, fields)):
            with_parents[record_id] = fields
        num_chars += sum(len(block.text) for block in document.sections[0].blocks)
        if num_chars > _MIN_LIMIT + _MAX_GROWTH * file_size:
            raise UnreadableError("text would be too long, because the records repeat long names")
    if with_parents:
        names = {document.title: document.name for document in reversed(documents.values())}
        names |= {record_id: document.name for record_id, document in documents.items()}
        for record_id, fields in with_parents.items():
            documents[record_id] = _with_parents(documents[record_id], fields, names)
    return list(documents.values())


def _fields(content: Any) -> Mapping[str, Any]:
    """Return the fields of a record. A string is its text, and a list has no name."""
    if isinstance(content, dict):
        return _unwrapped(content)
    if isinstance(content, str):
        return {"text": content}
    return {"": content} if isinstance(content, list) else {}


def _is_parent(key: str) -> bool:
    return re.sub(r"[\W_]", "", key).lower() in _PARENTS


def _with_parents(document: Document, row: Mapping[str, Any], names: Mapping[str, str]) -> Document:
    """Return a record with links to the records of the file that its fields name, such as ``parent_id``.

    ``names`` has the names of the documents by id and by title.
    """
    ids: dict[str, None] = {}
    for key, value in row.items():
        if _is_parent(key):
            entries = value if isinstance(value, list) else [value]
            texts = [str(entry).strip() for entry in entries if isinstance(entry, str | int)]
            ids |= dict.fromkeys(re.sub(r"^t\d_(?=\w)", "", text) for text in texts)  # `t3_` is a kind of Reddit
    others = [names[record_id] for record_id in ids if record_id in names]
    links = tuple(
        Link(other, document.sections[0].line, LABEL, "reply")
        for other in others[:_MAX_PARENTS]
        if other != document.name
    )
    if not links or not (blocks := document.sections[0].blocks):
        return document
    first = replace(blocks[0], links=(*blocks[0].links, *links))
    return replace(document, sections=(replace(document.sections[0], blocks=(first, *blocks[1:])),))


def _id(row: Mapping[str, Any]) -> str:
    keys = _lowered(tuple(row))
    for value in (row[keys[name]] for name in _IDS if name in keys):
        if isinstance(value, str | int) and not isinstance(value, bool):
            characters = (character if character.isprintable() else " " for character in str(value)[:MAX_NAME])
            if record_id := " ".join("".join(characters).split()):
                return record_id
    return ""


def _document(name: str, fields: Mapping[str, Any], row: _Row, *, is_alone: bool) -> Document:
    """Return the document of a record. If it is the only one of its file, its other fields become blocks, too."""
    keys = _lowered(tuple(fields))
    text_key = _key(fields, _TEXTS)
    title_key = _key(fields, [each for each in _TITLES if text_key is None or each != text_key.strip().lower()])
    title = " ".join(_text(fields[title_key]).split())[:MAX_NAME] if title_key is not None else ""
    texts = [_text(fields[text_key])] if text_key is not None else []
    if text_key is None or (is_alone and text_key.strip().lower() not in _ALL):
        omitted = (text_key, title_key, *(keys.get(each) for each in _IDS[:-1]))
        lines = list(_value_lines({key: value for key, value in fields.items() if key not in omitted}))
        texts += lines if is_alone else ["\n".join(lines)]
    if not any(texts) and not any(each in keys for each in _TEXTS):
        texts = [title]
    text, dropped = without_blobs("\n\0".join(texts))
    blocks = tuple(
        Block(block.strip(), row.line, is_whole=text_key is None and not is_alone, is_tight=number > 0)
        for number, block in enumerate(text.split("\n\0"))
        if block.strip()
    )
    title = title or (PurePosixPath(name).stem if is_alone else "")
    if text_key is not None and not is_alone:
        used = {text_key, title_key, *(keys.get(each) for each in _IDS)}
        if num_others := _num_values([value for key, value in fields.items() if key not in used]):
            dropped = {**dropped, OTHER_FIELDS: num_others}
    urls = islice(dict.fromkeys(found[0].rstrip(".,;:") for found in _PAGE_URL.finditer(text)), _MAX_PARENTS)
    if blocks and (links := tuple(Link(url, row.line) for url in urls)):
        blocks = (replace(blocks[0], links=links), *blocks[1:])
    labels = () if is_alone else (name,)
    return Document(name, title, (Section("", blocks, row.line, row.end, labels=labels),), dropped=dropped)


def _value_lines(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the values of a record as lines ``name: value``, with dotted names for nested values.

    Numbers in lists are omitted.
    """
    name = f"{path}: " if path else ""
    if isinstance(value, str):
        if text := value.strip():
            yield name + text
    elif isinstance(value, dict):
        for key, part in value.items() if depth < MAX_DEPTH else ():
            yield from _value_lines(part, (f"{path}.{key}" if path else key)[:MAX_KEY], depth + 1)
    elif isinstance(value, list):
        if words := [part.strip() for part in value if isinstance(part, str) and part.strip()]:
            yield name + ", ".join(words)
        for part in value if depth < MAX_DEPTH else ():
            if isinstance(part, dict | list):
                yield from _value_lines(part, path, depth + 1)
    elif isinstance(value, bool):
        yield name + str(value).lower()
    elif value is not None and value == value:  # skip NaN
        yield f"{name}{value}"
