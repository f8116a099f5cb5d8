"""UltraDomain: books of a domain, and questions with answers about one of them; no judgements."""

import hashlib

from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.chunker import split_chunks
from graphrerank_papers.builders.raw_files import RawFiles


@builder("ultradomain", "UltraDomain", "Apache-2.0", "https://huggingface.co/datasets/TommyChien/UltraDomain")
def ultradomain(files: RawFiles, writer: DatasetWriter, *, chunk_words: int = 300, overlap_words: int = 30) -> None:
    """Read domains: ``agriculture.jsonl``, ``cs.jsonl``, ``legal.jsonl``, ``mix.jsonl``, ...

    Source: Qian et al. 2024, MemoRAG; LightRAG's study takes the same files. Equal contexts are one document. It is cut
    into chunks of whole sentences, with ``doc_id`` and ``chunk_id``, and edges ``next_chunk``.

    ``chunk_words`` is the maximum of a chunk, ``overlap_words`` that of what neighbouring chunks share.
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
        for number, (start, stop) in enumerate(split_chunks(text, max_size=chunk_words, overlap=overlap_words)):
            writer.document(f"{doc_id}#{number}", title, text[start:stop], doc_id=doc_id, chunk_id=number)
            if number:
                writer.edge(f"{doc_id}#{number - 1}", f"{doc_id}#{number}", "next_chunk")
    writer.notes.append(f"{len(contexts):,} contexts, cut into chunks of at most {chunk_words} words.")
