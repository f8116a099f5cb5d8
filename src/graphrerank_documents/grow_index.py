"""Update a corpus folder from a folder of documents."""

from itertools import pairwise
from pathlib import Path

from graphrerank.core import Encoder
from graphrerank.corpus.edge_types import ADJACENCY, edge_type_of
from graphrerank.corpus_store.growth import Growth, NewEdge, grow_corpus
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.data.readers.documents import read_documents
from graphrerank.data.readers.records import read_tsv
from graphrerank.utils.files import temporary_folder
from graphrerank_documents.index_folder import EDGES, MAX_WORDS, IndexedFolder, index_folder
from graphrerank_documents.selection import FileSelection


def grow_index(
    source: str | Path,
    corpus: str | Path,
    *,
    max_words: int = MAX_WORDS,
    workers: int | None = None,
    encoder: Encoder | None = None,
    selection: FileSelection | None = None,
) -> tuple[IndexedFolder, Growth]:
    """Update a corpus folder to the current content of its documents.

    New and changed passages are encoded and added with their links and neighbours, as in
    :func:`~graphrerank.corpus_store.growth.grow_corpus`. Passages that no longer exist are removed.

    Args:
        source: Folder of documents.
        corpus: Corpus folder prepared from a data set folder of :func:`index_folder`.
        max_words: Maximum number of words per passage. A different value than before changes most passages.
        workers: Number of parser processes. Defaults to the number of processors.
        encoder: Text encoder with which the corpus was prepared, or None if the corpus has no vectors.
        selection: Choice of the files to read, as in :func:`index_folder`.

    Returns:
        Summary of the documents, and of the passages that were added and removed.

    Raises:
        ValueError: If ``source`` is not a folder or has no text, or ``encoder`` does not match the corpus.
    """
    graph = open_corpus(corpus).graph
    removed = graph.passages.removed
    held = {
        node_id: text
        for number, (node_id, text) in enumerate(zip(graph.node_ids, graph.texts, strict=True))
        if removed is None or not removed[number]
    }
    with temporary_folder() as folder:
        made = index_folder(source, folder / "data", max_words=max_words, workers=workers, selection=selection)
        documents = list(read_documents(made.folder))
        path = made.folder / EDGES
        rows = [columns for _, columns in read_tsv(path)][1:] if path.is_file() else []
    edges = [NewEdge(first, second, edge_type=edge_type_of(kind)) for first, second, kind in rows]
    if ADJACENCY in graph.edge_types():
        neighbours = (pair for pair in pairwise(documents) if pair[0].metadata["doc_id"] == pair[1].metadata["doc_id"])
        edges += [NewEdge(first.doc_id, second.doc_id, edge_type=ADJACENCY) for first, second in neighbours]
    added = [document for document in documents if held.get(document.doc_id) != document.passage]
    new = {document.doc_id for document in added}
    growth = grow_corpus(
        corpus,
        [document.doc_id for document in added],
        [document.passage for document in added],
        edges=[edge for edge in edges if edge.source in new or edge.target in new],
        remove=sorted(held.keys() - {document.doc_id for document in documents}),
        replace=True,
        encoder=encoder if added else None,
        title_lengths=[len(document.title) for document in added],
        metadata=[document.metadata for document in added],
    )
    return made, growth
