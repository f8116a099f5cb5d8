"""Settings of ``graphrerank prepare``."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphrerank.config.settings.base import RunSettings


@dataclass(kw_only=True)
class PrepareSettings(RunSettings):
    """Settings of writing or changing a corpus folder.

    Attributes:
        folder: Corpus folder to write or to change. Its files are memory-mapped when they are used, so that the corpus
            may be larger than the memory.
        vectors: Precision of the stored vectors. One of: float16, float32 (the precision of the encoder).
        index: FAISS index of the vectors for approximate search. One of: ivf, hnsw, null (exact search).
        part_size: Maximum number of passages per shard, at least 1. Each shard is encoded as a whole and written to
            one file. Smaller shards share a small corpus between the workers of an engine, and an interrupted
            preparation loses less.
        add: Data set folder whose corpus.jsonl and edges.tsv (optional) are added to the corpus folder. null adds
            nothing.
        edge_meanings: Meanings of the edge types in the added folder, such as {works_for: reference}. null derives the
            meanings from the names of the types.
        replace: Whether added passages replace passages with the same id. If false, an existing id is an error.
        remove: Text file with the ids of the passages to remove, one per line. null removes nothing.
        compact: Whether to rewrite a corpus folder after additions and removals. This also finds edges in the texts of
            added passages.
    """

    folder: str
    vectors: str = "float16"
    index: str | None = None
    part_size: int = 32768
    add: str | None = None
    edge_meanings: Mapping[str, str] | None = None
    replace: bool = False
    remove: str | None = None
    compact: bool = False
