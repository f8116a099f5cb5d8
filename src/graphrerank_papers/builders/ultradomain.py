"""UltraDomain: books of a domain, and questions with answers about one of them; no judgements.

Source: Qian et al. 2024, MemoRAG, whose hub page has a file of JSONL for each domain; LightRAG's study takes the same
files. Equal contexts are one document. It is cut into chunks of whole sentences, with ``doc_id`` and ``chunk_id``.
"""

import hashlib
from collections.abc import Iterator

from graphrerank.data.enrichment.chunker import chunk_document
from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.draft import Draft, Edge, document, query
from graphrerank_papers.builders.raw_files import RawFiles


def build_ultradomain(files: RawFiles, *, chunk_words: int = 300, overlap_words: int = 30) -> Draft:
    """Read one domain, or several.

    Args:
        files: ``agriculture.jsonl``, ``cs.jsonl``, ``legal.jsonl``, ``mix.jsonl``, ...
        chunk_words: Largest chunk.
        overlap_words: Largest repeated part of neighbouring chunks.
    """
    sources = files.matching("*.jsonl")
    if not sources:
        files.one("*.jsonl")
    contexts: dict[str, tuple[str, str]] = {}
    queries: list[Record] = []
    for file in sources:
        domain = file.name.rsplit("/", 1)[-1].split(".")[0]
        for number, (place, record) in enumerate(file.records("input", "context")):
            if not isinstance(record["context"], str) or not isinstance(record["input"], str):
                raise ValueError(f"{place}: needed texts as `input` and `context`")
            doc_id = hashlib.sha256(record["context"].encode("utf-8", "surrogatepass")).hexdigest()[:12]
            meta = record.get("meta")  # some domains have none
            title = str(meta.get("title") or "") if isinstance(meta, dict) else ""
            contexts.setdefault(doc_id, (title, record["context"]))
            answers = record.get("answers")
            queries.append(query(f"{domain}:{number}", record["input"], answer=answers, domain=domain, doc_id=doc_id))
    chunks = {
        doc_id: chunk_document(doc_id, text, max_size=chunk_words, overlap=overlap_words)
        for doc_id, (_, text) in contexts.items()
    }
    notes = [f"{len(contexts):,} contexts, cut into chunks of at most {chunk_words} words."]

    def documents() -> Iterator[Record]:
        for doc_id, pieces in chunks.items():
            for piece in pieces:
                number = piece.chunk_id
                yield document(f"{doc_id}#{number}", contexts[doc_id][0], piece.text, doc_id=doc_id, chunk_id=number)

    edges = (
        Edge(f"{doc_id}#{piece.chunk_id - 1}", f"{doc_id}#{piece.chunk_id}", "next_chunk")
        for doc_id, pieces in chunks.items()
        for piece in pieces[1:]
    )
    return Draft(documents(), queries, {}, edges, notes=notes)
