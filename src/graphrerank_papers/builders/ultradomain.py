"""Build UltraDomain: books of a domain, and questions with answers about one book each."""

import hashlib

from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.chunker import split_chunks
from graphrerank_papers.builders.raw_files import RawFiles


@builder("ultradomain", "UltraDomain", "Apache-2.0", "https://huggingface.co/datasets/TommyChien/UltraDomain")
def ultradomain(files: RawFiles, writer: DatasetWriter, *, chunk_words: int = 300, overlap_words: int = 30) -> None:
    """Build domains of UltraDomain, such as ``agriculture.jsonl``, ``cs.jsonl``, ``legal.jsonl`` or ``mix.jsonl``.

    Contexts with the same text are one document. A document is split into chunks of whole sentences, with ``doc_id``
    and ``chunk_id`` in their metadata, and consecutive chunks are joined by edges of the type ``next_chunk``. The data
    set has answers and no judgements, so it can be searched and answered but not measured by retrieval measures.

    Source: Qian et al. 2024, MemoRAG. The study of LightRAG uses the same files.

    Args:
        files: Files that include at least one ``<domain>.jsonl``.
        writer: Writer of the data set folder.
        chunk_words: Maximum number of words of a chunk.
        overlap_words: Maximum number of words that consecutive chunks share. At most half of ``chunk_words``.

    Raises:
        UserError: If no file is there, or a number of words is invalid.
    """
    contexts: dict[str, tuple[str, str]] = {}
    for file in files.matching("*.jsonl", required=True):
        domain = file.stem.split(".")[0]
        for number, record in enumerate(file.records()):
            doc_id = hashlib.sha256(record["context"].encode("utf-8", "surrogatepass")).hexdigest()[:12]
            meta = record.get("meta")  # some domains have none
            title = str(meta.get("title") or "") if isinstance(meta, dict) else ""
            contexts.setdefault(doc_id, (title, record["context"]))
            answers = record.get("answers")
            writer.query(f"{domain}:{number}", record["input"], answer=answers, domain=domain, doc_id=doc_id)
    for doc_id, (title, text) in contexts.items():
        chunks = split_chunks(text, max_size=chunk_words, overlap=overlap_words, unit="words")
        for number, (start, stop) in enumerate(chunks):
            writer.document(f"{doc_id}#{number}", title, text[start:stop], doc_id=doc_id, chunk_id=number)
            if number:
                writer.edge(f"{doc_id}#{number - 1}", f"{doc_id}#{number}", "next_chunk")
    writer.notes.append(f"{len(contexts):,} contexts, split into chunks of at most {chunk_words} words.")
