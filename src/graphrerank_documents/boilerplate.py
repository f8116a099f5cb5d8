"""Remove blocks that the pages of a site repeat at their start and end, such as menus, notices and footers."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from posixpath import dirname

from graphrerank_documents.document import Block, Document
from graphrerank_documents.pages import path_of_document
from graphrerank_documents.paths import ancestors

_EDGE = 20  # number of blocks to compare at the start and at the end of a page
_MIN_PAGES, _SHARE = 10, 0.5  # minimum number of pages in a folder, and the share of pages that a block must exceed
DROPPED = "repeated blocks"


def edge_keys(document: Document) -> frozenset[int]:
    """Return the hashes of the blocks at the start and end of a web page. The hashes are the same in all processes.

    Args:
        document: Any document.

    Returns:
        Set of 64-bit hashes. Empty if the document is not a web page.
    """
    if not document.is_page:
        return frozenset()
    texts = [block.text for section in document.sections for block in section.blocks]
    return frozenset(map(_key, {*texts[:_EDGE], *texts[-_EDGE:]}))


def repeated_keys(pages: Mapping[str, Collection[int]]) -> dict[str, frozenset[int]]:
    """Return the repeated blocks of each page.

    Args:
        pages: Hashes from :func:`edge_keys` by page name.

    Returns:
        Hashes of repeated blocks by page name. A block is repeated if it occurs on more than half of the pages in a
        folder and its subfolders, which must have at least ten pages. Pages without repeated blocks are omitted.
    """
    total = Counter(key for keys in pages.values() for key in keys)
    frequent = {key for key, number in total.items() if number > _MIN_PAGES * _SHARE}
    folders = {name: ancestors(dirname(path_of_document(name))) for name in pages}
    sizes = Counter(folder for name in pages for folder in folders[name])
    candidates = {name: frequent.intersection(keys) for name, keys in pages.items()}
    counts: Counter[tuple[str, int]] = Counter()  # number of pages by folder and block
    for name, keys in candidates.items():
        counts.update((folder, key) for folder in folders[name] for key in keys)
    repeated = {
        (folder, key)
        for (folder, key), count in counts.items()
        if sizes[folder] >= _MIN_PAGES and count > sizes[folder] * _SHARE
    }
    repeated_on_page = {
        name: frozenset(key for key in keys if any((folder, key) in repeated for folder in folders[name]))
        for name, keys in candidates.items()
    }
    return {name: keys for name, keys in repeated_on_page.items() if keys}


def without_repeated(document: Document, keys: Collection[int]) -> Document:
    """Remove the repeated blocks at the start and end of a page and count them in :attr:`Document.dropped`.

    Args:
        document: Web page.
        keys: Hashes of the repeated blocks.

    Returns:
        Page without the blocks. The page is unchanged if it consists of repeated blocks only.
    """
    blocks = [block for section in document.sections for block in section.blocks]
    dropped = {
        *_run(blocks, range(len(blocks))[:_EDGE], keys),
        *_run(blocks, range(len(blocks))[: -_EDGE - 1 : -1], keys),
    }
    if len(dropped) in (0, len(blocks)):
        return document
    sections, start = [], 0
    for section in document.sections:
        remaining = tuple(block for index, block in enumerate(section.blocks, start) if index not in dropped)
        sections.append(replace(section, blocks=remaining))
        start += len(section.blocks)
    return replace(document, sections=tuple(sections), dropped={**document.dropped, DROPPED: len(dropped)})


def _run(blocks: Sequence[Block], indices: Iterable[int], keys: Collection[int]) -> Iterator[int]:
    """Yield the indices of repeated blocks. Stop at the second successive block that is not repeated."""
    num_others = 0  # number of successive blocks that are not repeated
    for index in indices:
        is_repeated = _key(blocks[index].text) in keys
        num_others = 0 if is_repeated else num_others + 1
        if num_others == 2:
            return
        if is_repeated:
            yield index


def _key(text: str) -> int:
    return int.from_bytes(blake2b(" ".join(text.split()).encode("utf-8", "replace"), digest_size=8).digest())
