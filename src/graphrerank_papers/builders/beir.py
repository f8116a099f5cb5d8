"""BEIR's archives: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``, taken as they are.

Source: Thakur et al. 2021, BEIR. Documents without title and text are dropped, and judgements of documents or queries
that are not there.
"""

from collections.abc import Iterator

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.draft import Draft, Dropped, Judgement
from graphrerank_papers.builders.raw_files import RawFile, RawFiles

SPLITS = ("train", "dev", "test")


def build_beir(files: RawFiles) -> Draft:
    """Read corpus, queries and the splits that are there."""
    corpus, queries = files.one("corpus.jsonl"), files.one("queries.jsonl")
    splits = qrels_files(files)
    dropped: list[Dropped] = []
    known: set[str] = set()
    asked: set[str] = set()
    qrels = {split: _known(file, known, asked, dropped) for split, file in splits.items()}
    return Draft(beir_records(corpus, known), beir_records(queries, asked), qrels, dropped=dropped)


def qrels_files(files: RawFiles) -> dict[str, RawFile]:
    """Find the files of judgements by split."""
    found = {split: files.one(f"qrels/{split}.tsv") for split in SPLITS if files.matching(f"qrels/{split}.tsv")}
    if not found:
        files.one(*(f"qrels/{split}.tsv" for split in SPLITS))
    return found


def beir_records(file: RawFile, seen: set[str]) -> Iterator[Record]:
    """Read lines of a corpus or of queries, and note their ids."""
    for place, record in file.records("_id", "text"):
        title, metadata = record.get("title"), record.get("metadata")
        if not isinstance(record["_id"], str) or not all(
            isinstance(text, str) for text in (record["text"], title or "")
        ):
            raise ValueError(f"{place}: needed strings as `_id`, `title` and `text`, found {str(record)[:100]}")
        seen.add(record["_id"])
        kept = {"_id": record["_id"], **({} if title is None else {"title": title}), "text": record["text"]}
        yield kept | ({"metadata": metadata} if metadata else {})


def beir_judgements(file: RawFile) -> Iterator[Judgement]:
    """Read the judgements of one split."""
    for place, row in file.rows("query-id", "corpus-id", "score", delimiter="\t"):
        try:
            yield Judgement(row["query-id"], row["corpus-id"], int(row["score"]))
        except ValueError as error:
            raise ValueError(f"{place}: needed an integer as score, found {row['score']!r}") from error


def _known(file: RawFile, known: set[str], asked: set[str], dropped: list[Dropped]) -> Iterator[Judgement]:
    for row in beir_judgements(file):
        if row.query_id in asked and row.doc_id in known:
            yield row
        else:
            what = "document" if row.query_id in asked else "query"
            dropped.append(Dropped("judgement", f"{row.query_id} {row.doc_id}", f"of a {what} that is not there"))
