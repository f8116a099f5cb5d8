"""Split documents into passages at headings, then between blocks, sentences and words, and finally characters."""

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from graphrerank.text.characters import whole_characters
from graphrerank.text.languages import ENGLISH, UNSPACED
from graphrerank.text.sentences import split_sentences
from graphrerank_documents.document import MAX_NAME, Document, Link, Section

#: Maximum number of characters of a passage. Code, table rows and other indivisible blocks are split only above it.
MAX_CHARS = 4000
_FEW = 4  # the last passage of a section is rebalanced if it has fewer than `max_words / _FEW` words
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PARAGRAPH = re.compile(  # successive lines that are not blank
    r"\S[^\n]*+(?:\n[^\S\n]*+\S[^\n]*+)*+"
)
_WINDOW = re.compile(r"\S(?:.{0,50000}(?=\s|\Z)|.{0,50000})", re.DOTALL)  # input of the sentence splitter
_LINE = re.compile(r"\S[^\n]*")
_CODE_LINE = re.compile(r"[^\n]*\S")  # with its indentation
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")
_Span = tuple[int, int]  # start and stop in a text
_Size = tuple[int, int]  # number of words and of characters
_Split = Callable[[str], Iterable[_Span]]


@dataclass(frozen=True, slots=True)
class Passage:
    """Passage of a document.

    Attributes:
        id: Name of the document, ``#`` and the anchor of the section. Further passages of a section end with ``~2``,
            ``~3`` and so on.
        title: Titles of the document and the section, such as ``page > section``.
        text: Text of the passage.
        document: Name of the document.
        number: Index of the passage within the document, 0-based.
        heading: Heading of the section.
        section: Index of the section within the document, 0-based.
        line: First line of the passage in the file, 1-based, or 0 if the format has no lines.
        links: Links in the passage.
    """

    id: str
    title: str
    text: str
    document: str
    number: int
    heading: str
    section: int
    line: int = 0
    links: tuple[Link, ...] = ()


@dataclass
class _Piece:
    """Block, or a part of a block that is too long.

    Attributes:
        text: Text of the piece.
        gap: White space between the previous piece and this one.
        line: First line in the file, 1-based, or 0 if the format has no lines.
        header: Table header to repeat before the text unless the previous piece has the same header.
        links: Links in the piece.
    """

    text: str
    gap: str
    line: int
    header: str = ""
    links: list[Link] = field(default_factory=list)

    @cached_property
    def words(self) -> int:
        return _count(self.text)


def passages_of(
    document: Document, *, max_words: int, max_chars: int = MAX_CHARS, language: str = ENGLISH
) -> Iterator[Passage]:
    """Yield the passages of a document.

    Indivisible blocks, such as code and table rows, may exceed ``max_words`` but not ``max_chars``. In scripts without
    spaces, two characters count as one word. Passage ids are unique within the document. The id of a passage depends
    only on its own section and on sections with the same anchor.

    Args:
        document: Document to split.
        max_words: Maximum number of words per passage.
        max_chars: Maximum number of characters per passage.
        language: Language code for splitting sentences.

    Yields:
        Passages in the order of the document.
    """
    cutter = _Cutter(max_words, max_chars, language)
    document_title = _name(document.title)
    number = 0
    for index, (section, section_id) in enumerate(zip(document.sections, _section_ids(document), strict=True)):
        heading = _name(section.heading)
        is_in_title = heading == document_title or document_title.endswith(f" > {heading}")
        title = " > ".join(filter(None, (document_title, "" if is_in_title else heading)))
        for number_in_section, pieces in enumerate(cutter.passages(section), 1):
            is_first = number_in_section == 1
            yield Passage(
                id=section_id if is_first else f"{section_id}~{number_in_section}",
                title=title,
                text=_joined(pieces),
                document=document.name,
                number=number,
                heading=heading,
                section=index,
                line=(section.line if is_first else 0) or pieces[0].line,
                links=tuple(link for piece in pieces for link in piece.links),
            )
            number += 1


class _Cutter:
    """Division of sections into passages within limits on words and characters."""

    def __init__(self, max_words: int, max_chars: int, language: str) -> None:
        self._max_words, self._max_chars = max_words, max_chars
        sentences = partial(split_sentences, language=language)
        # ways to split a block, the coarsest first
        self._prose: tuple[_Split, ...] = (
            partial(_match_spans, _PARAGRAPH),
            partial(_match_spans, _WINDOW),
            sentences,
            partial(_match_spans, _LINE),
        )
        self._code: tuple[_Split, ...] = (partial(_match_spans, _CODE_LINE),)

    def passages(self, section: Section) -> Iterator[list[_Piece]]:
        """Yield groups of pieces within the limits. The last two groups are balanced if the last one is short."""
        before: list[_Piece] = []
        current: list[_Piece] = []
        words = chars = 0
        for piece in self._pieces(section):
            more_words, more_chars = _size(piece, current)
            # a short text stays together with an oversized piece that it introduces
            is_full = words + more_words > self._max_words and not (
                piece.words > self._max_words and words * _FEW < self._max_words
            )
            if current and (is_full or chars + more_chars > self._max_chars):
                if before:
                    yield before
                before, current = current, []
                words = chars = 0
                more_words, more_chars = _size(piece, current)
            current.append(piece)
            words += more_words
            chars += more_chars
        if before and words * _FEW < self._max_words:
            before, current = self._balanced(before, current)
        yield from filter(None, (before, current))

    def _balanced(self, before: list[_Piece], last: list[_Piece]) -> tuple[list[_Piece], list[_Piece]]:
        """Move pieces from the first passage to the second until they have about the same length."""
        sizes = _sizes(before)
        sizes_after_first = _sizes(last)[1:]
        words_before = sum(words for words, _ in sizes)
        words, chars = (sum(size[unit] for size in sizes_after_first) for unit in (0, 1))
        first, num_moved = last[:1], 0  # first piece of the second passage, whose header may repeat the one before
        while num_moved < len(before) - 1:
            piece = before[-1 - num_moved]
            words_before -= sizes[-1 - num_moved][0]
            words, chars = _added((words, chars), *(_size(each, [piece]) for each in first))
            words_with, chars_with = _added((words, chars), _size(piece, []))
            if words_with > min(words_before, self._max_words) or chars_with > self._max_chars:
                break
            first, num_moved = [piece], num_moved + 1
        remaining = len(before) - num_moved
        return before[:remaining], [*before[remaining:], *last]

    def _pieces(self, section: Section) -> Iterator[_Piece]:
        above = header = ""  # header of the previous block: as parsed, and as displayed
        for block in section.blocks:
            if not (text := _clean(block.text).rstrip().lstrip("\n")):
                continue
            gap = "\n" if block.is_tight or (above and block.header == above) else "\n\n"
            if block.header != above:
                above = block.header
                header = _clean(above).strip()
                # a long header is not repeated
                if len(header) > self._max_chars // 2 or _count(header) > self._max_words // 2:
                    yield from self._cut(_Piece(header, gap, block.line), is_whole=False)
                    header, gap = "", "\n"
            yield from self._cut(_Piece(text, gap, block.line, header, list(block.links)), is_whole=block.is_whole)

    def _cut(self, block: _Piece, *, is_whole: bool) -> Iterator[_Piece]:
        """Split an oversized block at the coarsest boundaries first, then its oversized parts at finer boundaries."""
        max_words = self._max_words - _count(block.header)
        max_chars = self._max_chars - len(block.header) - bool(block.header)

        def fits(text: str) -> bool:
            return len(text) <= max_chars and (is_whole or _count(text) <= max_words)

        def spans(start: int, stop: int, splits: Sequence[_Split]) -> Iterator[_Span]:
            text = block.text[start:stop]
            if fits(text):
                yield start, stop
            elif splits:
                for first, last in splits[0](text):
                    yield from spans(start + first, start + last, splits[1:])
            else:
                for first, last in _word_spans(text, max_words, max_chars):
                    yield start + first, start + last

        if fits(block.text):
            yield block
            return
        last_line = block.line + block.text.count("\n")

        def is_in_block(link: Link) -> bool:
            return block.line <= link.line <= last_line

        # links without a valid line belong to the first piece
        links = deque(sorted(block.links, key=lambda link: link.line if is_in_block(link) else 0))
        end = 0  # end of the previous piece
        line = block.line
        gap = block.gap
        for start, stop in spans(0, len(block.text), self._code if is_whole else self._prose):
            if end:
                breaks = block.text.count("\n", end, start)
                line += breaks
                space = " " if start > end else ""
                gap = "\n" * min(breaks, 2) if breaks else space
            piece = _Piece(block.text[start:stop], gap, line if block.line else 0, block.header)
            line += piece.text.count("\n")
            while links and (links[0].line <= line or not is_in_block(links[0])):
                piece.links.append(links.popleft())
            end = stop
            yield piece


def _size(piece: _Piece, before: Sequence[_Piece]) -> _Size:
    """Return the number of words and characters that a piece adds to the pieces before it in a passage."""
    words = piece.words
    chars = len(piece.text) + (len(piece.gap) if before else 0)
    if piece.header and not (before and before[-1].header == piece.header):
        words += _count(piece.header)
        chars += len(piece.header) + 1
    return words, chars


def _sizes(pieces: Sequence[_Piece]) -> list[_Size]:
    """Return the numbers of words and of characters of each piece of a passage."""
    return [_size(piece, pieces[max(0, index - 1) : index]) for index, piece in enumerate(pieces)]


def _added(*sizes: _Size) -> _Size:
    return sum(words for words, _ in sizes), sum(chars for _, chars in sizes)


def _joined(pieces: Sequence[_Piece]) -> str:
    """Return the text of a passage. A table header is repeated unless the piece above has the same one."""
    parts: list[str] = []
    header = ""
    for piece in pieces:
        if parts:
            parts.append(piece.gap)
        if piece.header not in ("", header):
            parts += [piece.header, "\n"]
        parts.append(piece.text)
        header = piece.header
    return "".join(parts)


def _match_spans(pattern: re.Pattern[str], text: str) -> Iterator[_Span]:
    """Yield the spans of a pattern's matches without trailing white space."""
    return ((found.start(), found.start() + len(found[0].rstrip())) for found in pattern.finditer(text))


def _word_spans(text: str, max_words: int, max_chars: int) -> Iterator[_Span]:
    """Split a text between words into parts of similar length. Words that are too long are split as well."""

    def words() -> Iterator[_Span]:
        for start, stop in (word.span() for word in _WORD.finditer(text)):
            size = _even_size(stop - start, max_chars)
            for part_start in range(start, stop, size):
                yield part_start, min(stop, part_start + size)

    words_per_part = _even_size(sum(1 for _ in words()), max_words)
    part_start = part_stop = num_words = 0
    for start, stop in words():
        if num_words and (num_words == words_per_part or stop - part_start > max_chars):
            yield part_start, part_stop
            num_words = 0
        if not num_words:
            part_start = start
        part_stop = stop
        num_words += 1
    if num_words:
        yield part_start, part_stop


def _even_size(size: int, max_size: int) -> int:
    """Return the part size that divides ``size`` into as few nearly equal parts of at most ``max_size`` as possible."""
    num_parts = max(1, math.ceil(size / max_size))
    return math.ceil(size / num_parts)


def _section_ids(document: Document) -> list[str]:
    """Return a unique id for each section. The first section without a heading has the name of the document."""
    headings = [_name(section.heading) for section in document.sections]
    names = []
    for section, heading in zip(document.sections, headings, strict=True):
        anchor = _name(section.anchors[0]) if section.anchors else ""
        names.append("-".join(anchor.split()).replace("~", "-") or _slug(heading))
    first_plain = headings.index("") if "" in headings else -1  # section whose id is the name of the document
    reserved = frozenset(names)  # so that a numbered name does not equal the name of another section
    fragments: dict[str, None] = {}  # the part of each id behind `#`
    numbers: Counter[str] = Counter()
    for index, name in enumerate(names):
        is_plain = index == first_plain
        fragment = "" if is_plain else name
        while fragment in fragments or (not fragment and not is_plain) or (fragment != name and fragment in reserved):
            numbers[name] += 1
            fragment = f"{name or 'part'}-{numbers[name]}"
        fragments[fragment] = None
    return [f"{document.name}#{fragment}" if fragment else document.name for fragment in fragments]


def _count(text: str) -> int:
    return len(text.split()) if text.isascii() else len(_WORD.findall(text))


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", whole_characters(text))


def _name(text: str) -> str:
    return " ".join(_clean(text).split())[:MAX_NAME].rstrip()


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")
