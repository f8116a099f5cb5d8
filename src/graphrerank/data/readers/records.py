"""Records of JSONL, TSV, CSV and Parquet files, with line numbers for error messages."""

import csv
import gzip
import json
import math
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError
from graphrerank.utils.safe_loading import MAX_JSON_DEPTH, check_depth, check_values, shown_name

Record = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)
Written = Annotated[str, Field(strict=True, pattern=r"\S")]  # Non-blank string.
Id = Annotated[str, BeforeValidator(lambda key: as_id(key)), Field(strict=True)]
MAX_LINE_BYTES = 1 << 26  # A gzip file of 1 MB can contain a line of 1 GB.
MANY_CHARACTERS = 1 << 22  # The values in longer lines are counted, because 64 MiB of `[],` would take 1.6 GB.
SMALLEST, MAX_FLOAT32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # Range of normal float32 numbers.


def bad_line(path: Path, line: int, *, needed: str, actual: object) -> UserError:
    """Create the error for an invalid line of a file.

    Args:
        path: Path of the file with the invalid line.
        line: Line number, or row number in a Parquet file.
        needed: Description of the expected content.
        actual: Actual content.

    Returns:
        Error that names file, line, expected and actual content.
    """
    shown = repr(actual)
    shown = shown if len(shown) <= 120 else f"{shown[:117]}..."
    return UserError(f"{name_line(path, line)}: expected {needed}, got {shown}")


def name_line(path: Path, line: int) -> str:
    """Return the name of a line of a text file, or of a row of a Parquet file.

    Args:
        path: Path of the file.
        line: Line number or row number.

    Returns:
        File and line for error messages.
    """
    return f"{shown_name(path)}, {'row' if path.suffix == '.parquet' else 'line'} {line}"


def as_id(key: Any) -> Any:
    """Convert an integer id to a string.

    Args:
        key: Id in a file.

    Returns:
        String for an integer, otherwise the same object.
    """
    return str(key) if type(key) is int else key


def warn_left_out(path: Path, left_out: Mapping[str, Sequence[int]]) -> None:
    """Issue one warning about the lines of a file that were skipped.

    Args:
        path: Path of the file with the skipped lines.
        left_out: Numbers of the skipped lines by reason.
    """
    unit = "row" if path.suffix == ".parquet" else "line"
    reasons = [
        f"{len(lines):,} x {reason} ({unit} {lines[0]}{', ...' if len(lines) > 1 else ''})"
        for reason, lines in left_out.items()
        if lines
    ]
    if reasons:
        warnings.warn(f"{shown_name(path)}: skipped {', '.join(reasons)}", stacklevel=3)


def existing_folder(path: str | Path, *, needed: str) -> Path:
    """Return the path of an existing folder.

    Args:
        path: Path to check.
        needed: Names of the files that the folder must contain, used in error messages.

    Returns:
        The path.

    Raises:
        UserError: If the folder does not exist.
    """
    if not Path(path).is_dir():
        raise UserError(f"{path}: no such folder; it must contain {needed}")
    return Path(path)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read a UTF-8 text file line by line. Blank lines are skipped.

    Args:
        path: File, which may be compressed with gzip.

    Yields:
        Line number from 1, and the line without its line end.

    Raises:
        UserError: If the file is missing or damaged, is not UTF-8, or contains a line that is too long.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    line_number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for line_number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
                if len(raw) > MAX_LINE_BYTES:
                    raise UserError(f"{path}, line {line_number}: expected at most {MAX_LINE_BYTES:,} bytes, got more")
                line = raw.decode("utf-8-sig" if line_number == 1 else "utf-8").rstrip("\r\n")
                if line.strip(" "):
                    yield line_number, line
    except UnicodeDecodeError as error:
        raise bad_line(path, line_number, needed="UTF-8", actual=error.object[error.start : error.start + 8]) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: damaged gzip file after line {line_number} ({error})") from error


def read_jsonl(path: Path) -> Iterator[tuple[int, Record]]:
    """Read a JSON Lines file.

    Args:
        path: File with one JSON object per line.

    Yields:
        Line number from 1, and the object.

    Raises:
        UserError: If a line is not a JSON object, contains lone surrogates, or is nested too deeply.
    """
    for line_number, line in read_lines(path):
        if len(line) > MANY_CHARACTERS:
            check_values(line.encode(), MANY_CHARACTERS, f"{path}, line {line_number}")
        try:
            record = json.loads(line)
            if "\\ud" in line or "\\uD" in line:  # There may be a lone surrogate.
                json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            context = error.object[max(error.start - 10, 0) : error.end]
            needed = "valid characters without lone surrogates"
            raise bad_line(path, line_number, needed=needed, actual=context) from error
        except (ValueError, RecursionError) as error:
            raise bad_line(path, line_number, needed=f"JSON ({error})", actual=line) from error
        if not isinstance(record, dict):
            raise bad_line(path, line_number, needed="a JSON object", actual=record)
        if line.count("[") + line.count("{") > MAX_JSON_DEPTH:
            check_depth(record, f"{path}, line {line_number}")
        yield line_number, record


def checked(path: Path, line: int, record: Record, model: type[Model]) -> Model:
    """Validate the record of a line.

    Args:
        path: Path of the file, for error messages.
        line: Line number.
        record: Parsed JSON object.
        model: Pydantic model of a record.

    Returns:
        The validated record.

    Raises:
        UserError: If the record is invalid. The message names the first invalid field.
    """
    try:
        return model.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        needed = f"`{'.'.join(map(str, first['loc']))}`: {first['msg'].removeprefix('Value error, ')}"
        raise bad_line(path, line, needed=needed, actual=first["input"]) from None


def read_tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Read a file of tab-separated columns. Quotes have no special meaning.

    Args:
        path: Tab-separated file in UTF-8.

    Yields:
        Line number from 1, and the cells.

    Raises:
        UserError: If the file cannot be read (:func:`read_lines`).
    """
    for line_number, line in read_lines(path):
        yield line_number, line.split("\t")


def read_table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Read a file of columns separated by tabs, spaces, commas or semicolons. The first line determines the separator.

    Args:
        path: File. Commas and semicolons are read as CSV with quotes.

    Yields:
        Line number from 1, and the cells.

    Raises:
        UserError: If the file cannot be read (:func:`read_lines`), or if the CSV is malformed.
    """
    first = next((line for _, line in read_lines(path)), "")
    signs = max(map(first.count, ",;"))
    if not (path.suffix == ".csv" or ("\t" not in first and (signs > 1 or (signs == 1 and " " not in first)))):
        yield from read_tsv(path) if "\t" in first else ((line, text.split()) for line, text in read_lines(path))
        return
    lines = list(read_lines(path))
    reader = csv.reader((f"{line}\n" for _, line in lines), delimiter=max(",;\t", key=first.count), strict=True)
    try:
        for row in reader:
            if any(cells := [cell.strip() for cell in row]):
                yield lines[reader.line_num - 1][0], cells
    except csv.Error as error:
        line_number, line = lines[reader.line_num - 1]
        raise bad_line(path, line_number, needed=f"CSV ({error})", actual=line) from error


def read_parquet(path: Path) -> Iterator[tuple[int, Record]]:
    """Read the rows of a Parquet file.

    Args:
        path: Parquet file to read.

    Yields:
        Row number from 1, and the row.

    Raises:
        UserError: If the file is damaged, or if pyarrow is not installed.
    """
    arrow, parquet = optional("pyarrow", f"{path}: Parquet"), optional("pyarrow.parquet", f"{path}: Parquet")
    row_number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for record in (row for batch in file.iter_batches() for row in batch.to_pylist()):
                row_number += 1
                yield row_number, record
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: damaged Parquet file after row {row_number} ({error})") from error


def find_record_files(folder: Path, stem: str, *, required: bool = True) -> list[Path]:
    """Find the files of a table of a data set.

    Args:
        folder: Data set folder.
        stem: Name of the table, such as ``corpus``.
        required: Whether a missing table raises an error.

    Returns:
        ``stem.jsonl``, ``stem.jsonl.gz``, ``stem.parquet``, or the sorted files in a folder ``stem``. Empty if the
        table is missing and not required.

    Raises:
        UserError: If the table is missing and required.
    """
    for suffix in (".jsonl", ".jsonl.gz", ".parquet"):
        if (folder / f"{stem}{suffix}").is_file():
            return [folder / f"{stem}{suffix}"]
        if shards := sorted((folder / stem).glob(f"*{suffix}")):
            return shards
    if not required:
        return []
    raise UserError(
        f"{folder}: expected {stem}.jsonl (or {stem}.jsonl.gz, {stem}.parquet, or such files in a folder {stem}/), "
        "got none of them"
    )


def parse_number(text: str) -> float:
    """Parse a number in the range of float32.

    Args:
        text: Text of the number.

    Returns:
        Zero or a normal float32 number. NaN for everything else.
    """
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if number == 0 or SMALLEST <= abs(number) <= MAX_FLOAT32 else math.nan


def check_columns(path: Path, line: int, columns: Sequence[str], *, count: int, names: str) -> None:
    """Require a number of columns.

    Args:
        path: Path of the file, for error messages.
        line: Line number.
        columns: Cells of the line.
        count: Required number of cells.
        names: Names of the columns, used in error messages.

    Raises:
        UserError: If the line has another number of cells.
    """
    if len(columns) != count:
        raise bad_line(path, line, needed=f"{count} tab-separated columns ({names})", actual="\t".join(columns))
