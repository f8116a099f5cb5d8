"""Decode the bytes of text files, and parse plain text and code in languages without a grammar."""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import PurePosixPath

from graphrerank.installation.extras import optional
from graphrerank_documents.document import Block, Document, Section, UnreadableError

_MARKS = (  # UTF-32 before UTF-16, because the mark of UTF-32-LE starts with that of UTF-16-LE
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_REFUSED = ("idna", "punycode", "undefined", "utf-7", "unicode_escape", "raw_unicode_escape")  # not used for files
_GUESSES = [  # charset-normalizer supports more encodings, but mistakes short texts for EBCDIC
    *("cp1252", "gb18030", "cp932", "euc_jp", "cp949", "big5"),
    *("cp1251", "koi8_r", "cp1250", "cp1253", "cp1254", "cp1255", "cp1256"),
]
_WESTERN = re.compile(r"[\x00-\x7f\xa0-\xb2\xb4-\xb8\xba-\xbe\xc0-\xcf\xd1-\xdc\xdf-\xef\xf1-\xfc€‚„…‰‹‘’“”•–—™›œŒ]*")  # noqa: RUF001
_HIGH, _HIGHS = re.compile(r"[^\W\x00-\x7f]"), re.compile(r"[^\W\x00-\x7f]{3}")
_SIMPLIFIED = re.compile(rb"(?:[\x00-\x7f]|[\xa1-\xa3\xb0-\xd7][\xa1-\xfe])*.?", re.DOTALL)  # common characters of GBK
_NOT_KOREAN = re.compile(rb"(?:[\x00-\x7f]|[\xa1-\xa3\xb0-\xc8][\xa1-\xfe])*[\xc9-\xd7]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
DATA_URI = re.compile(r"data:[\w.+-]{1,50}/[\w.+-]{1,80}(?:;[\w=.+-]{1,50}){0,3};base64,[\w+/=%-]*")
_SAMPLE = 65_536  # number of bytes or characters from which the encoding is detected
_MAX_LINE, _MIN_SPACES = 1000, 0.08  # a longer line with a smaller share of white space is minified
_PROSE = (".txt", ".text")
_NAMED = re.compile(r"[A-Z]+\Z")  # file such as README
_MAX_TITLE = 100  # maximum number of characters of a first line that is used as the title


def decode_text(content: bytes, said: str = "") -> str:
    r"""Decode the bytes of a text file.

    The encoding is determined by a byte order mark, else UTF-8 if the bytes are valid, else the declared encoding, else
    by detection.

    Args:
        content: Bytes of the file.
        said: Encoding declared in the file. Empty if there is none.

    Returns:
        Text with ``\n`` as line separator and without byte order mark, NUL characters and unpaired surrogates.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    mark, encoding = next((pair for pair in _MARKS if content.startswith(pair[0])), (b"", ""))
    text = content[len(mark) :].decode(encoding or _encoding(content, said), "replace")
    controls = len(_CONTROLS.findall(text, 0, _SAMPLE))
    if "\0" in text or controls > 2 + min(len(text), _SAMPLE) / 20:
        raise UnreadableError("binary, not a text")
    return text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")


def _encoding(content: bytes, said: str) -> str:
    sample = content[:_SAMPLE]
    if b"\0" in sample:
        even, odd = (sample[place::2].count(0) * 4 > len(sample) for place in range(2))
        if even == odd:
            return "utf-8"
        return "utf-16-be" if even else "utf-16-le"
    try:
        said = codecs.lookup(said).name
        # decoding raises an error for codecs that are not text encodings, such as "hex"
        said = said if said not in _REFUSED and b"a".decode(said, "replace") else ""
    except (LookupError, ValueError):
        said = ""
    if said.startswith(("iso2022", "hz")):  # these encodings use only ASCII bytes, so the text is also valid UTF-8
        return said
    with suppress(UnicodeError):
        content.decode("utf-8")
        return "utf-8"
    text = content.decode("utf-8", "replace")
    wrong, others = text.count("\ufffd"), len(text) - len(text.encode("ascii", "ignore"))
    if wrong * 10 < others:  # UTF-8 with a few invalid bytes
        return "utf-8"
    return said or _guess(sample)


def _guess(sample: bytes) -> str:
    western = sample.decode("cp1252", "replace")
    letters = sum(map(str.isalpha, western))
    if _WESTERN.fullmatch(western) and not _HIGHS.search(western) and len(_HIGH.findall(western)) * 2 <= letters:
        return "cp1252"
    if _SIMPLIFIED.fullmatch(sample) and _NOT_KOREAN.match(sample):
        return "gb18030"
    found = optional("charset_normalizer", "a text that is not UTF-8").from_bytes(sample, cp_isolation=_GUESSES).best()
    if found is None:
        raise UnreadableError("not UTF-8, and the encoding is unknown")
    return str(found.encoding)


def without_blobs(text: str) -> tuple[str, dict[str, int]]:
    """Remove the content of data URIs and minified lines from a text.

    Args:
        text: Text of a file.

    Returns:
        Text with the same number of lines, and the number of removed data URIs and minified lines by kind.
    """
    text, uris = DATA_URI.subn("data:,", text)  # leave an empty data URI, because a link or image needs a target
    lines = text.split("\n")
    minified = [i for i, line in enumerate(lines) if len(line) > _MAX_LINE and _is_minified(line)]
    for i in minified:
        lines[i] = ""
    counts = {"data URIs": uris, "minified lines": len(minified)}
    return "\n".join(lines), {name: count for name, count in counts.items() if count}


def _is_minified(line: str) -> bool:
    ascii_only = line.encode("ascii", "ignore")
    return len(ascii_only) > 0.9 * len(line) and sum(map(ascii_only.count, b" \t")) < _MIN_SPACES * len(line)


def read_plain_text(content: bytes, name: str) -> list[Document]:
    """Parse plain text into paragraphs, or code into one block.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source. The suffix distinguishes text from code.

    Returns:
        One document without headings.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    path = PurePosixPath(name)
    text, dropped = without_blobs(decode_text(content))
    end = text.rstrip().count("\n") + 1
    blocks = (
        tuple(_paragraphs(text)) if path.suffix.lower() in _PROSE or _NAMED.match(path.name) else code_block(text, 1)
    )
    title = path.name
    if len(blocks) > 1 and "\n" not in (first := blocks[0].text) and len(first) <= _MAX_TITLE and first[-1] != ".":
        title = first
    return [Document(name, title, (Section("", blocks, 1, end),) if blocks else (), dropped=dropped)]


def _paragraphs(text: str) -> Iterator[Block]:
    for has_text, rows in groupby(enumerate(text.split("\n"), 1), lambda row: bool(row[1].strip())):
        if has_text:
            numbers, held = zip(*rows, strict=True)
            yield Block("\n".join(map(str.rstrip, held)).strip(), numbers[0])


def code_block(text: str, line: int) -> tuple[Block, ...]:
    """Return code as an indivisible block.

    Args:
        text: Code of the block.
        line: Line number of the first line in the file, 1-based.

    Returns:
        One block, or an empty tuple if ``text`` is blank.
    """
    if not text.strip():
        return ()
    lead = len(text) - len(text.lstrip("\n"))
    return (Block(text.strip("\n").rstrip(), line + lead, is_whole=True),)
