"""Records of JSONL, TSV and Parquet files, with line numbers for error messages."""

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
Written = Annotated[str, Field(strict=True, pattern=r"\S")]  # a string that is not blank
Id = Annotated[str, BeforeValidator(lambda key: as_id(key)), Field(strict=True)]
MAX_LINE_BYTES = 1 << 26  # a gzip file of a megabyte may hold a line of a gigabyte
MANY_CHARACTERS = 1 << 22  # of a line with more, the values are counted: 64 MiB of `[],` took 1.6 GB
SMALLEST, MAX_FLOAT32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # normal float32


def bad_line(path: Path, line: int, *, needed: str, actual: object) -> UserError:
    """Build the error for one line of a file: path, line, expected and actual content."""
    shown = repr(actual)
    shown = shown if len(shown) <= 120 else f"{shown[:117]}..."
    return UserError(f"{name_line(path, line)}: needed {needed}, found {shown}")


def name_line(path: Path, line: int) -> str:
    """Name a line of a text file, or a row of a Parquet file."""
    return f"{shown_name(path)}, {'row' if path.suffix == '.parquet' else 'line'} {line}"


def as_id(key: Any) -> Any:
    """Return an integer id as a string, and anything else as it is."""
    return str(key) if type(key) is int else key


def warn_left_out(path: Path, left_out: Mapping[str, Sequence[int]]) -> None:
    """Warn once of the lines of a file that are left out, by reason."""
    unit = "row" if path.suffix == ".parquet" else "line"
    parts = [
        f"{len(lines):,} x {reason} ({unit} {lines[0]}{', ...' if len(lines) > 1 else ''})"
        for reason, lines in left_out.items()
        if lines
    ]
    if parts:
        warnings.warn(f"{shown_name(path)}: left out {', '.join(parts)}", stacklevel=3)


def existing_folder(path: str | Path, *, needed: str) -> Path:
    """Return a folder with the required files; a ValueError if one is missing."""
    if not Path(path).is_dir():
        raise UserError(f"{path}: no such folder; it must hold {needed}")
    return Path(path)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read a UTF-8 text file, gzipped or not, line by line with numbers from 1; blank lines are left out."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    line_number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for line_number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
                if len(raw) > MAX_LINE_BYTES:
                    raise UserError(f"{path}, line {line_number}: needed at most {MAX_LINE_BYTES:,} bytes, found more")
                line = raw.decode("utf-8-sig" if line_number == 1 else "utf-8").rstrip("\r\n")
                if line.strip(" "):
                    yield line_number, line
    except UnicodeDecodeError as error:
        raise bad_line(path, line_number, needed="UTF-8", actual=error.object[error.start : error.start + 8]) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: damaged gzip file after line {line_number} ({error})") from error


def read_jsonl(path: Path) -> Iterator[tuple[int, Record]]:
    """Read one JSON object a line; lone surrogates and deep nesting are refused."""
    for line_number, line in read_lines(path):
        if len(line) > MANY_CHARACTERS:
            check_values(line.encode(), MANY_CHARACTERS, f"{path}, line {line_number}")
        try:
            record = json.loads(line)
            if "\\ud" in line or "\\uD" in line:  # perhaps half of a surrogate pair
                json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            context = error.object[max(error.start - 10, 0) : error.end]
            needed = "whole characters, not half of a surrogate pair"
            raise bad_line(path, line_number, needed=needed, actual=context) from error
        except (ValueError, RecursionError) as error:
            raise bad_line(path, line_number, needed=f"JSON ({error})", actual=line) from error
        if not isinstance(record, dict):
            raise bad_line(path, line_number, needed="a JSON object", actual=record)
        if line.count("[") + line.count("{") > MAX_JSON_DEPTH:
            check_depth(record, f"{path}, line {line_number}")
        yield line_number, record


def checked(path: Path, line: int, record: Record, model: type[Model]) -> Model:
    """Return the record of a line as a model; the error names the first field that does not fit."""
    try:
        return model.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        needed = f"`{'.'.join(map(str, first['loc']))}`: {first['msg'].removeprefix('Value error, ')}"
        raise bad_line(path, line, needed=needed, actual=first["input"]) from None


def read_tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Read tab-separated columns; quotes have no meaning."""
    for line_number, line in read_lines(path):
        yield line_number, line.split("\t")


def read_table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Read columns separated by tabs, blanks, or as spreadsheets do by commas or semicolons, as the first line is."""
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
    """Read the rows of a Parquet file, numbered from 1."""
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
    """Find a table of a data set: ``stem.jsonl[.gz]``, ``stem.parquet``, or a folder ``stem`` of such files."""
    for suffix in (".jsonl", ".jsonl.gz", ".parquet"):
        if (folder / f"{stem}{suffix}").is_file():
            return [folder / f"{stem}{suffix}"]
        if shards := sorted((folder / stem).glob(f"*{suffix}")):
            return shards
    if not required:
        return []
    raise UserError(
        f"{folder}: needed {stem}.jsonl (or {stem}.jsonl.gz, {stem}.parquet, or such files in a folder {stem}/), "
        "found none of them"
    )


def parse_number(text: str) -> float:
    """Parse zero or a normal float32; everything else gives NaN."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if number == 0 or SMALLEST <= abs(number) <= MAX_FLOAT32 else math.nan


def check_columns(path: Path, line: int, columns: Sequence[str], *, count: int, names: str) -> None:
    """Require a row of ``count`` columns."""
    if len(columns) != count:
        raise bad_line(path, line, needed=f"{count} tab-separated columns ({names})", actual="\t".join(columns))
