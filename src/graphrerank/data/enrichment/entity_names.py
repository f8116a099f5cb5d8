"""The names of entities in passages, block by block."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from graphrerank.data.engines.local import LOCAL, Block, Engine
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor

BLOCK_TEXTS = 1 << 13  # extracted from at once, but for this process's own engine


def entity_names(extractor: KnowledgeExtractor, passages: Sequence[str], *, engine: Engine = LOCAL) -> list[list[str]]:
    """List the names of the entities in each of ``N`` passages.

    Args:
        extractor: Extracts them; each worker of the engine has a copy.
        passages: Texts.
        engine: Works on blocks of passages.

    Example:
        >>> from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
        >>> entity_names(PatternEntityExtractor(), ["In Metz, Lothair II paid.", "who?"])
        [['Metz', 'Lothair II'], []]
    """
    size = max(1, len(passages)) if engine is LOCAL else BLOCK_TEXTS  # one progress bar for all
    blocks = ({"texts": passages[start : start + size]} for start in range(0, len(passages), size))
    return [names for found in engine.map(_NamesOf(extractor), blocks) for names in _lists(found)]


class _NamesOf:
    """Extracts from the ``texts [n]`` of a block: ``names`` behind each other, and ``counts [n]`` of each text's."""

    def __init__(self, extractor: KnowledgeExtractor) -> None:
        self.extractor = extractor

    def __call__(self, block: Block) -> Block:
        extracted = [list(knowledge.names) for knowledge in self.extractor.extract(list(block["texts"]))]
        names = [name for of_text in extracted for name in of_text]
        return {"names": names, "counts": np.array([len(of_text) for of_text in extracted], dtype=np.int64)}


def _lists(found: Block) -> Iterator[list[str]]:
    offsets = np.cumsum([0, *found["counts"]]).tolist()
    return (list(found["names"][start:stop]) for start, stop in pairwise(offsets))
