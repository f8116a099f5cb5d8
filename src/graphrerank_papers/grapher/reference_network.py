"""Reference networks: chunks of papers, each joined with the papers that it cites."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from pydantic import BaseModel, TypeAdapter, ValidationError

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.documents import Document, read_documents
from graphrerank.data.readers.judgements import Judgement, Splits, read_judged_queries
from graphrerank.data.readers.records import existing_folder
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import REFERENCE
from graphrerank_papers.builders.chunker import chunk_document
from graphrerank_papers.grapher.citations import CitationDetector, CitationPatterns, Reference

GOLD = ("paper", "chunk")

_BIBLIOGRAPHY = re.compile(r"^\W*(?:\d+\W+)?(?:references|bibliography|works cited)\W*$", re.IGNORECASE | re.MULTILINE)


class _Entry(BaseModel):
    """An entry of ``references``."""

    id: str
    key: str | int | None = None
    title: str | int | None = None
    authors: list[str] | None = None
    year: str | int | None = None


_ENTRIES = TypeAdapter(list[_Entry])


def load_reference_network(
    path: str | Path,
    *,
    name: str | None = None,
    splits: Splits = None,
    max_size: int = 4096,
    citations: CitationDetector | None = None,
    gold: str = "paper",
    drop_empty: bool = False,
    knn: int = 0,
) -> Dataset:
    """Read a data set folder of papers whose metadata lists their ``references``.

    - A node is a chunk of whole sentences, without overlap, with the id ``<paper>#<number from 0>``; its text is the
      paper's title and the chunk.
    - A chunk is joined with every chunk of each paper of the corpus that it cites. Citations in a bibliography do not
      count: the text after the last line that says only "References".
    - ``references`` is a list of ``{"id": paper, "key"?, "title"?, "authors"?: [...], "year"?}``; papers that are not
      in the corpus are left out.

    Source: "FastInsight", 2026, section 4.2.1. We chunk by sentences (the paper says only 4,096 characters) and match
    patterns by default (the paper asks GPT-5-nano: ``LanguageModelCitations``).

    Args:
        path: The folder.
        name: As of :meth:`~graphrerank.data.dataset.Dataset.from_folder`.
        splits: As there.
        max_size: Characters of a chunk, without the title.
        citations: Citation detector; :class:`~graphrerank_papers.grapher.citations.CitationPatterns` when None.
        gold: Whether a ``corpus-id`` of the judgements names a ``chunk``, or a ``paper``, all of whose chunks are then
            relevant (the rule of section 4.2.2 for all nodes of a relevant document).
        drop_empty: Leave out papers without title and text, which are an error otherwise.
        knn: As of ``name``.

    Raises:
        ValueError: If a file is missing or malformed, naming file and line; ``references`` are malformed, naming the
            paper; or a setting is out of range.
    """
    if gold not in GOLD:
        raise ValueError(f"`gold` must be 'paper' or 'chunk', got {gold!r}")
    folder = existing_folder(path, needed="corpus.jsonl, queries.jsonl and qrels/<split>.tsv")
    papers = list(read_documents(folder, drop_empty=drop_empty))
    if not papers:
        raise ValueError(f"{folder}: the corpus must hold a document, found none")
    index_of = {paper.doc_id: i for i, paper in enumerate(papers)}
    ids, texts, searched, nodes_of = _chunks(papers, max_size)
    references = [_references(folder, paper, index_of) for paper in papers]
    paper_of = [paper for paper, nodes in enumerate(nodes_of) for _ in nodes]
    cited = (citations or CitationPatterns()).detect(searched, [references[paper] for paper in paper_of])
    pairs = {
        (node, other)
        for node, entries in enumerate(cited)
        for entry in entries
        for other in nodes_of[index_of[references[paper_of[node]][entry].paper_id]]
    }
    edges = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
    graph = CorpusGraph.from_edges(ids, texts, edges, edge_type=REFERENCE)
    if gold == "chunk":
        queries, judged = read_judged_queries(folder, splits, {node_id: i for i, node_id in enumerate(ids)})
    else:
        queries, of_papers = read_judged_queries(folder, splits, index_of)
        judged = {split: _of_chunks(rows, nodes_of) for split, rows in of_papers.items()}
    counts = {"citations": graph.num_edges // 2}
    return Dataset.from_queries(name or folder.resolve().name, graph, queries, judged, knn=knn, edge_counts=counts)


def _chunks(papers: Sequence[Document], max_size: int) -> tuple[list[str], list[str], list[str], list[range]]:
    """Split papers: ids of all chunks, their texts, their parts before the bibliography, and each paper's chunks."""
    ids: list[str] = []
    texts: list[str] = []
    searched: list[str] = []
    nodes_of: list[range] = []
    for paper in papers:
        chunks = chunk_document(paper.doc_id, paper.text, max_size=max_size, overlap=0, unit="characters")
        headings = list(_BIBLIOGRAPHY.finditer(paper.text))
        end = headings[-1].start() if headings else len(paper.text)
        pieces = [(chunk.text, paper.text[chunk.start : min(chunk.stop, end)]) for chunk in chunks] or [("", "")]
        nodes_of.append(range(len(ids), len(ids) + len(pieces)))
        for chunk_id, (text, before) in enumerate(pieces):
            ids.append(f"{paper.doc_id}#{chunk_id}")
            texts.append(paper._replace(text=text).passage)
            searched.append(before)
    return ids, texts, searched, nodes_of


def _references(folder: Path, paper: Document, index_of: Mapping[str, int]) -> list[Reference]:
    """Read a paper's references to other papers of the corpus."""
    given = paper.metadata.get("references", [])
    try:
        entries = _ENTRIES.validate_python(given, strict=True)
    except ValidationError as error:
        raise ValueError(
            f'{folder}: `references` in the metadata of a paper must be a list of {{"id": "...", "key"?, "title"?, '
            f'"authors"?: [...], "year"?}}, got {str(given)[:80]!r} in {paper.doc_id!r}'
        ) from error
    texts = [["" if text is None else str(text) for text in (entry.key, entry.title, entry.year)] for entry in entries]
    return [
        Reference(entry.id, key, title, tuple(entry.authors or ()), year)
        for entry, (key, title, year) in zip(entries, texts, strict=True)
        if entry.id in index_of and entry.id != paper.doc_id
    ]


def _of_chunks(rows: Sequence[Judgement], nodes_of: Sequence[range]) -> list[Judgement]:
    return [row._replace(node=node) for row in rows for node in nodes_of[row.node]]
