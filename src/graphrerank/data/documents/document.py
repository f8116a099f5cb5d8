"""Documents as they are read from a file, before they are divided."""

from dataclasses import dataclass

Link = tuple[int, str]


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, up to the next heading."""

    heading: str  # empty before the first one
    text: str  # paragraphs, separated by empty lines
    links: tuple[
        Link, ...
    ] = ()  # the place in the text, in characters, and the target as written; `[[NAME]]` of a wiki


@dataclass(frozen=True)
class Document:
    """A document of a file."""

    name: str  # the path within the folder; for one of several documents of a file with `#` and its id or line
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Chunk:
    """A passage of a document."""

    id: str
    title: str  # of its document, with the section's heading
    text: str
    document: str  # the name of its document
    number: int  # within the document
    heading: str  # of its section
    links: tuple[str, ...]  # targets as they are written
