"""Blocks that the pages of a site repeat at their starts and ends: menus, notices, footers."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from posixpath import dirname

from graphrerank_documents.document import Block, Document
from graphrerank_documents.pages import ancestors, path_of_document

_EDGE = 20  # blocks at the start and at the end of a page
_MIN_PAGES, _SHARE = 10, 0.5  # pages of a folder that tell; what a block must have more of
DROPPED = "repeated blocks"


def edge_keys(document: Document) -> frozenset[int]:
    """Return the hashes of the blocks at the start and end of a page, the same in each process; empty for others."""
    if not document.is_page:
        return frozenset()
    texts = [block.text for section in document.sections for block in section.blocks]
    return frozenset(map(_key, {*texts[:_EDGE], *texts[-_EDGE:]}))


def repeated_keys(pages: Mapping[str, Collection[int]]) -> dict[str, frozenset[int]]:
    """Return what to leave out of each page that has such blocks.

    Args:
        pages: The names of pages with their :func:`edge_keys`.

    Returns:
        Names of pages, and those of their keys that stand on more than half of the pages of a folder of at least ten.
    """
    total = Counter(key for keys in pages.values() for key in keys)
    frequent = {key for key, number in total.items() if number > _MIN_PAGES * _SHARE}
    folders = {name: ancestors(dirname(path_of_document(name))) for name in pages}
    sizes = Counter(folder for name in pages for folder in folders[name])
    found = {name: frequent.intersection(keys) for name, keys in pages.items()}
    within = Counter((folder, key) for name, keys in found.items() for folder in folders[name] for key in keys)
    repeated = {
        pair for pair, number in within.items() if sizes[pair[0]] >= _MIN_PAGES and number > sizes[pair[0]] * _SHARE
    }
    dropped = {
        name: frozenset(key for key in keys if any((folder, key) in repeated for folder in folders[name]))
        for name, keys in found.items()
    }
    return {name: keys for name, keys in dropped.items() if keys}


def without_repeated(document: Document, keys: Collection[int]) -> Document:
    """Leave blocks out of a page, which are counted in ``dropped``; a page that has no others stays as it is."""
    blocks = [block for section in document.sections for block in section.blocks]
    dropped = {
        *_run(blocks, range(len(blocks))[:_EDGE], keys),
        *_run(blocks, range(len(blocks))[: -_EDGE - 1 : -1], keys),
    }
    if len(dropped) in (0, len(blocks)):
        return document
    sections, start = [], 0
    for section in document.sections:
        left = tuple(block for place, block in enumerate(section.blocks, start) if place not in dropped)
        sections.append(replace(section, blocks=left))
        start += len(section.blocks)
    return replace(document, sections=tuple(sections), dropped={**document.dropped, DROPPED: len(dropped)})


def _run(blocks: Sequence[Block], places: Iterable[int], keys: Collection[int]) -> Iterator[int]:
    """Yield the places of the repeated blocks from an edge on, up to two others that follow one another."""
    others = 0
    for place in places:
        is_repeated = _key(blocks[place].text) in keys
        others = 0 if is_repeated else others + 1
        if others == 2:
            return
        if is_repeated:
            yield place


def _key(text: str) -> int:
    return int.from_bytes(blake2b(" ".join(text.split()).encode("utf-8", "replace"), digest_size=8).digest())
