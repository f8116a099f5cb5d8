"""A corpus on disk: written part by part, opened in constant time, mapped and not read."""

from graphrerank.data.corpus_folder.compaction import compact_corpus
from graphrerank.data.corpus_folder.growth import EdgeError, Growth, NewEdge, grow_corpus
from graphrerank.data.corpus_folder.opening import is_corpus_folder, open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus

__all__ = [
    "EdgeError",
    "Growth",
    "NewEdge",
    "compact_corpus",
    "grow_corpus",
    "is_corpus_folder",
    "open_corpus",
    "prepare_corpus",
]
