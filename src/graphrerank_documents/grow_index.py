"""A corpus folder that follows a folder of documents."""

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


def grow_index(
    source: str | Path,
    corpus: str | Path,
    *,
    max_words: int = MAX_WORDS,
    workers: int | None = None,
    encoder: Encoder | None = None,
) -> tuple[IndexedFolder, Growth]:
    """Bring a corpus folder, prepared from what :func:`index_folder` wrote, up to date with the documents.

    Passages that are new or have another text are added with their links and neighbours, as
    :func:`~graphrerank.corpus_store.growth.grow_corpus` does, and those that the documents no longer have are
    removed; only added ones are encoded, by the encoder that the corpus was prepared with.
    """
    graph = open_corpus(corpus).graph
    removed = graph.passages.removed
    held = {
        node_id: text
        for number, (node_id, text) in enumerate(zip(graph.node_ids, graph.texts, strict=True))
        if removed is None or not removed[number]
    }
    with temporary_folder() as folder:
        made = index_folder(source, folder / "data", max_words=max_words, workers=workers)
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
