"""Settings of ``graphrerank prepare``."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphrerank.config.settings.base import RunSettings


@dataclass(kw_only=True)
class PrepareSettings(RunSettings):
    """Settings of writing a corpus folder, or of changing one.

    Attributes:
        folder: Corpus folder to write or to change. It is memory-mapped, for corpora of any size.
        vectors: Precision of the vectors. One of: float16, float32 (the encoder's own precision).
        index: Index of the vectors for approximate search (FAISS). One of: ivf, hnsw, null (none).
        add: Data set folder whose corpus.jsonl and edges.tsv (if any) are added to the corpus folder. null adds
            nothing.
        edge_meanings: Meanings of the edge types of the added folder, such as {works_for: reference}. null uses what
            their names mean.
        replace: Whether added passages replace those of the same ids. false refuses such passages.
        remove: File of the ids to remove from the corpus folder, one per line. null removes nothing.
        compact: Whether to prepare a corpus folder that has grown again, with the edges found in added texts.
    """

    folder: str
    vectors: str = "float16"
    index: str | None = None
    add: str | None = None
    edge_meanings: Mapping[str, str] | None = None
    replace: bool = False
    remove: str | None = None
    compact: bool = False
