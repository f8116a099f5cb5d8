"""Natural Questions as chunks of their pages, with the order of the chunks: GraphER's contextual proximity.

Source: BEIR's archive of NQ; the filter is GraphER's, section 4: only pages of which a chunk is relevant to a query are
kept. BEIR lists the chunks of a page one after the other under the page's title; so a change of the title begins a new
page. ``metadata`` has ``doc_id``, the id of the page's first chunk, and ``chunk_id``; ``adjacency=true`` joins
neighbours.
"""

from collections.abc import Iterator

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.beir import beir_judgements, beir_records, qrels_files
from graphrerank_papers.builders.draft import Draft
from graphrerank_papers.builders.raw_files import RawFile, RawFiles


def build_nq(files: RawFiles, *, all_pages: bool = False) -> Draft:
    """Read BEIR's archive of NQ.

    Args:
        files: The archive.
        all_pages: Keep all 2.7 million chunks.
    """
    corpus = files.one("corpus.jsonl")
    qrels = {split: list(beir_judgements(file)) for split, file in qrels_files(files).items()}
    relevant = {row.doc_id for rows in qrels.values() for row in rows if row.score > 0}
    kept: set[str] = set()
    titles: dict[str, int] = {}
    num_chunks = 0
    for record in _chunks(corpus):
        num_chunks += 1
        page, chunk = record["metadata"]["doc_id"], record["metadata"]["chunk_id"]
        if record["_id"] in relevant:
            kept.add(page)
        if chunk == 0:
            titles[record.get("title", "")] = titles.get(record.get("title", ""), 0) + 1
    notes = [
        f"{sum(titles.values()):,} pages of {num_chunks:,} chunks in the archive; "
        f"{sum(count > 1 for count in titles.values()):,} titles begin several pages."
    ]
    if not all_pages:
        notes.append(f"Only the {len(kept):,} pages with a relevant chunk are kept (GraphER).")
    documents = (each for each in _chunks(corpus) if all_pages or each["metadata"]["doc_id"] in kept)
    return Draft(documents, beir_records(files.one("queries.jsonl"), set()), qrels, notes=notes)


def _chunks(corpus: RawFile) -> Iterator[Record]:
    """Read the chunks in order, each with the page and the place in it."""
    title, page, chunk = None, "", 0
    for record in beir_records(corpus, set()):
        if record.get("title", "") != title:
            title, page, chunk = record.get("title", ""), record["_id"], 0
        yield record | {"metadata": record.get("metadata", {}) | {"doc_id": page, "chunk_id": chunk}}
        chunk += 1
