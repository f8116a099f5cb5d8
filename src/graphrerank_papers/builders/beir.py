"""Build data sets from BEIR archives, and Natural Questions with the order of the chunks on their pages.

Source: Thakur et al. 2021, BEIR: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.
"""

from collections import Counter
from collections.abc import Iterator

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFile, RawFiles

SPLITS = ("train", "dev", "test")
#: Split, query id, document id and relevance score of one judgement.
Judgement = tuple[str, str, str, int]


@builder("beir", "A data set of BEIR", "that of the data set", "https://github.com/beir-cellar/beir")
def beir(files: RawFiles, writer: DatasetWriter) -> None:
    """Build a data set from a BEIR archive.

    All splits in the archive are read. Judgements of missing documents or missing queries are dropped and listed in
    ``dropped.jsonl``.

    Args:
        files: Files of the archive.
        writer: Writer of the data set folder.

    Raises:
        UserError: If the corpus, the queries or all judgements are missing.
    """
    known: dict[str, set[str]] = {}
    for kind, file in (("document", files.one("corpus.jsonl")), ("query", files.one("queries.jsonl"))):
        known[kind] = set()
        for record in _records(file):
            known[kind].add(record["_id"])
            writer.record(kind, record)
    for split, query_id, doc_id, score in _judgements(files):
        if query_id in known["query"] and doc_id in known["document"]:
            writer.judge(split, query_id, doc_id, score=score)
        else:
            missing = "document" if query_id in known["query"] else "query"
            writer.drop("judgement", f"{query_id} {doc_id}", f"of a {missing} that is not there")


@builder("nq", "Natural Questions as chunks of pages", "CC BY-SA 3.0", "https://github.com/beir-cellar/beir")
def nq(files: RawFiles, writer: DatasetWriter, *, all_pages: bool = False) -> None:
    """Build Natural Questions with the page and the position of each chunk.

    The positions give GraphER's contextual proximity: with ``adjacency=true`` in ``conf/data``, neighbouring chunks of
    a page are joined. BEIR lists the chunks of a page consecutively under the title of the page, so a new title starts
    a new page. The metadata of a chunk has ``doc_id``, the id of the first chunk of the page, and ``chunk_id``, the
    position on the page counted from 0.

    Source: GraphER, section 4, which uses only pages with a relevant chunk.

    Args:
        files: Files of BEIR's archive.
        writer: Writer of the data set folder.
        all_pages: Whether to write all 2.7 million chunks. By default, only pages with at least one relevant chunk are
            written.

    Raises:
        UserError: If the corpus, the queries or all judgements are missing.
    """
    corpus, judgements = files.one("corpus.jsonl"), list(_judgements(files))
    relevant = {doc_id for _, _, doc_id, score in judgements if score > 0}
    relevant_pages: set[str] = set()
    titles: Counter[str] = Counter()
    num_chunks = 0
    for record in _chunks(corpus):
        num_chunks += 1
        if record["_id"] in relevant:
            relevant_pages.add(record["metadata"]["doc_id"])
        titles[record.get("title", "")] += record["metadata"]["chunk_id"] == 0
    repeated = f"{sum(count > 1 for count in titles.values()):,} titles begin several pages"
    writer.notes.append(f"{titles.total():,} pages of {num_chunks:,} chunks in the archive; {repeated}.")
    if not all_pages:
        writer.notes.append(f"Only the {len(relevant_pages):,} pages with a relevant chunk are kept (GraphER).")
    for record in _chunks(corpus):
        if all_pages or record["metadata"]["doc_id"] in relevant_pages:
            writer.record("document", record)
    for record in _records(files.one("queries.jsonl")):
        writer.record("query", record)
    for split, query_id, doc_id, score in judgements:
        writer.judge(split, query_id, doc_id, score=score)


def _records(file: RawFile) -> Iterator[Record]:
    for record in file.records():
        texts = {key: record[key] for key in ("_id", "title", "text") if key != "title" or record.get(key) is not None}
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError(f"`_id`, `title` and `text` must be strings, got {str(record)[:100]}")
        yield texts | ({"metadata": record["metadata"]} if record.get("metadata") else {})


def _judgements(files: RawFiles) -> Iterator[Judgement]:
    """Yield the judgements of all splits in the archive. At least one split is required."""
    files.matching(*(f"qrels/{split}.tsv" for split in SPLITS), required=True)
    for split in SPLITS:
        if files.matching(f"qrels/{split}.tsv"):
            for row in files.one(f"qrels/{split}.tsv").rows(delimiter="\t"):
                yield split, row["query-id"], row["corpus-id"], int(row["score"])


def _chunks(corpus: RawFile) -> Iterator[Record]:
    """Yield the chunks in order, with page and position in their metadata."""
    title, page, chunk = None, "", 0
    for record in _records(corpus):
        if record.get("title", "") != title:
            title, page, chunk = record.get("title", ""), record["_id"], 0
        yield record | {"metadata": record.get("metadata", {}) | {"doc_id": page, "chunk_id": chunk}}
        chunk += 1
