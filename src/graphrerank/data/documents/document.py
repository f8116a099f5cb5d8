"""What is read of a file, before it is divided."""

from dataclasses import dataclass

Link = tuple[int, str]


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, up to the next heading.

    Attributes:
        heading: Empty before the first one.
        text: Paragraphs, separated by empty lines.
        links: Of each link its place in the text, in characters, and its target as it is written; ``[[NAME]]`` is one
            of a wiki.
    """

    heading: str
    text: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Document:
    """A document of a file.

    Attributes:
        name: The file's path within the folder, and for one of several documents of a file ``#`` and its id or line.
        title: Of the document.
        sections: In their order.
    """

    name: str
    title: str
    sections: tuple[Section, ...]
