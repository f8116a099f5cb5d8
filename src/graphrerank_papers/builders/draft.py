"""A data set before it is written, and the folder that is made of it: all of it or nothing, with a card."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.records import Record
from graphrerank.files import atomic_folder, hash_files, hash_json, write_chunks, write_json, write_text
from graphrerank_papers.builders.raw_files import RawFiles

CARD = "dataset.json"
DROPPED = "dropped.jsonl"  # beside the card where anything was dropped: one line each


class Judgement(NamedTuple):
    """A row of judgements."""

    query_id: str
    doc_id: str
    score: int = 1


class Edge(NamedTuple):
    """An edge, with perhaps further columns of the file."""

    source: str
    target: str
    type: str
    further: tuple[str, ...] = ()


class Dropped(NamedTuple):
    """What is not in the folder though the files have it, or hold it in part."""

    kind: str  # `query`, `document`, `judgement`, `edge`
    id: str
    reason: str  # the same words for the same reason, so that they can be counted
    detail: str = ""


@dataclass
class Draft:
    """A data set before it is written; what is iterated is iterated once, in this order."""

    documents: Iterable[Record]  # of :func:`document`
    queries: Iterable[Record]  # of :func:`query`
    qrels: Mapping[str, Iterable[Judgement]]  # by split
    edges: Iterable[Edge] = ()
    edge_columns: tuple[str, ...] = ()  # names of the further columns of edges
    dropped: list[Dropped] = field(default_factory=list)  # may grow while the others are iterated
    notes: list[str] = field(default_factory=list)  # for the card


@dataclass(frozen=True)
class Origin:
    """What a card says of where a data set comes from."""

    name: str
    license: str
    page: str
    builder: str  # the command


def document(doc_id: str, title: str, text: str, /, **metadata: Any) -> Record:
    """Return a line of the corpus; metadata that is None is left out."""
    return _record({"_id": doc_id, "title": title, "text": text}, metadata)


def query(query_id: str, text: str, /, **metadata: Any) -> Record:
    """Return a line of the queries; metadata that is None is left out."""
    return _record({"_id": query_id, "text": text}, metadata)


def write_dataset(draft: Draft, out: Path, origin: Origin, files: RawFiles) -> dict[str, Any]:
    """Write a data set folder with its card; documents and queries without a text are dropped, and what refers to them.

    Args:
        draft: The data set.
        out: The folder; must not exist, or be empty.
        origin: For the card.
        files: What the draft reads, for the card.

    Returns:
        The card.

    Raises:
        ValueError: If ``out`` holds files, or the folder would be refused by
            :meth:`~graphrerank.data.dataset.Dataset.from_folder`; nothing is written then.
    """
    check_empty(out)
    with atomic_folder(out) as folder:
        empty: set[str] = set()
        counts: dict[str, Any] = {
            "documents": _write_records(folder / "corpus.jsonl", draft.documents, "document", draft.dropped, empty),
            "queries": _write_records(folder / "queries.jsonl", draft.queries, "query", draft.dropped, empty),
            "qrels": {},
        }
        for split, rows in draft.qrels.items():
            kept = [row for row in rows if not {row.query_id, row.doc_id} & empty]
            if kept:
                lines = [f"{row.query_id}\t{row.doc_id}\t{row.score}\n" for row in kept]
                _write_lines(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore\n", *lines])
                counts["qrels"][split] = {"queries": len({row.query_id for row in kept}), "rows": len(kept)}
        edges = [edge for edge in draft.edges if not {edge.source, edge.target} & empty]
        if edges:
            header = "\t".join(("source", "target", "type", *draft.edge_columns)) + "\n"
            lines = ["\t".join((*edge[:3], *edge.further)) + "\n" for edge in edges]
            _write_lines(folder / "edges.tsv", [header, *lines])
        counts["edges"] = len(edges)
        if draft.dropped:
            lines = [json.dumps(each._asdict(), ensure_ascii=False) + "\n" for each in draft.dropped]
            _write_lines(folder / DROPPED, lines)
        Dataset.from_folder(folder)  # refuse now what every later load would refuse
        card = _card(draft, folder, origin, counts, files.sources())
        write_json(folder / CARD, card)
        write_text(folder / "README.md", _page(card))
    return card


def check_empty(out: Path) -> None:
    """Require a folder that does not exist or is empty; a ValueError that names it otherwise."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"`out` must be a new folder, got {out}, which exists; nothing is overwritten")


def _record(record: Record, metadata: Mapping[str, Any]) -> Record:
    given = {key: entry for key, entry in metadata.items() if entry is not None}
    return record | ({"metadata": given} if given else {})


def _write_records(path: Path, records: Iterable[Record], kind: str, dropped: list[Dropped], empty: set[str]) -> int:
    count = 0

    def lines() -> Iterator[str]:
        nonlocal count
        for record in records:
            if record["text"].strip() or record.get("title", "").strip():
                count += 1
                yield json.dumps(record, ensure_ascii=False) + "\n"
            else:
                empty.add(record["_id"])
                dropped.append(Dropped(kind, record["_id"], "no text"))

    _write_lines(path, lines())
    return count


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    def encoded() -> Iterator[bytes]:
        for line in lines:
            try:
                yield line.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(f"{path.name}: needed whole characters, found half of one in {line[:80]!r}") from error

    write_chunks(path, encoded())


def _card(
    draft: Draft, folder: Path, origin: Origin, counts: Mapping[str, Any], sources: list[dict[str, Any]]
) -> dict[str, Any]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {path.relative_to(folder).as_posix(): hash_files([path]) for path in files}
    reasons = Counter(f"{each.kind}: {each.reason}" for each in draft.dropped)
    return {
        "name": origin.name,
        "license": origin.license,
        "page": origin.page,
        "built_by": origin.builder,
        "files": sources,
        "counts": dict(counts),
        "dropped": dict(sorted(reasons.items())),
        "notes": draft.notes,
        "sha256": digests,
        "hash": hash_json(digests),
    }


def _page(card: Mapping[str, Any]) -> str:
    counts = card["counts"]
    lines = [f"# {card['name']}", "", f"Licence: {card['license']}. Home: <{card['page']}>.", ""]
    lines += [f"Made by `{card['built_by']}` from:", ""]
    lines += [f"- `{file['name']}`, {file['bytes']:,} bytes, SHA-256 `{file['sha256']}`" for file in card["files"]]
    lines += ["", "| what | count |", "| --- | --: |"]
    lines += [f"| {kind} | {counts[kind]:,} |" for kind in ("documents", "queries", "edges")]
    for split, judged in counts["qrels"].items():
        lines.append(f"| judged queries of `{split}` | {judged['queries']:,} ({judged['rows']:,} judgements) |")
    if card["dropped"]:
        lines += ["", f"Dropped, one by one in `{DROPPED}`:", ""]
        lines += [f"- {reason}: {count:,}" for reason, count in card["dropped"].items()]
    lines += ["", *[f"- {note}" for note in card["notes"]], *([""] if card["notes"] else [])]
    lines += [f"Hash of all files: `{card['hash']}`.", ""]
    return "\n".join(lines)
