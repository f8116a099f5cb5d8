"""Build reference networks: corpus graphs of chunks of papers, joined with the papers that they cite."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import BeforeValidator, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.documents import CorpusRecord, read_documents
from graphrerank.data.readers.judgements import Splits, read_judged_queries
from graphrerank.data.readers.records import existing_folder
from graphrerank.text import normalize_entity
from graphrerank.utils.checks import UserError, check_choice
from graphrerank_papers.builders.chunker import split_chunks

#: Minimum number of words of a title that is searched in texts. Shorter titles occur by chance.
MIN_TITLE_WORDS = 3

_BIBLIOGRAPHY = re.compile(r"^\W*(?:\d+\W+)?(?:references|bibliography|works cited)\W*$", re.IGNORECASE | re.MULTILINE)
_BRACKETS = re.compile(r"\[([^\[\]]{1,200})\]")
_RANGE = re.compile(r"(\d{1,4})\s*[-–]\s*(\d{1,4})")  # noqa: RUF001
_NAME = r"[^\W\d_][\w'’\-]+"  # noqa: RUF001
_AUTHOR_YEAR = re.compile(
    rf"({_NAME})(?:\s+(et\s+al\.?|(?:and|&)\s+(?:{_NAME}\s+)*?({_NAME}))(?:'s|’s)?)?[,\s]*[(\[]?\s*"  # noqa: RUF001
    r"((?:1[89]|20)\d\d[a-z]?(?:\s*,\s*(?:1[89]|20)\d\d[a-z]?)*)"
)
_YEAR = re.compile(r"((?:1[89]|20)\d\d)([a-z]?)")


def _text(entry: Any) -> Any:
    """Convert None to an empty string and integers to text. Pydantic checks all other entries."""
    if entry is None:
        return ""
    return str(entry) if type(entry) is int else entry


Text = Annotated[str, BeforeValidator(_text)]


@dataclass(frozen=True)
class Reference:
    """Entry of a paper's bibliography. Unknown fields are empty.

    Attributes:
        id: Id of the cited paper.
        key: Key in square brackets, such as ``12`` or ``Smith20``.
        title: Title of the cited paper.
        authors: Names, such as "Ann Smith" or "Smith, Ann".
        year: Year, such as ``2020`` or ``2020a``.
    """

    id: str
    key: Text = ""
    title: Text = ""
    authors: Annotated[tuple[str, ...], BeforeValidator(lambda names: () if names is None else names)] = ()
    year: Text = ""


def cited_references(texts: Sequence[str], references: Sequence[Sequence[Reference]]) -> list[list[int]]:
    """Find the references that each text cites.

    Three patterns are searched, without a model:

    - A key in square brackets, alone or in a list. Ranges of numbers are expanded: "[3, 7-9; Smith20]".
    - The first author's surname and the year, optionally with "et al." or the second author: "(Smith et al., 2020a)",
      "Smith and Jones (2019, 2020)". A letter after the year must match if the reference has one.
    - A title of at least three words. Case and punctuation are ignored.

    Args:
        texts: Texts, such as chunks of papers.
        references: Bibliography of the paper of each text.

    Returns:
        Indices into the bibliography of each text, ascending.

    Example:
        >>> references = [Reference("a", key="1"), Reference("b", authors=("Ann Smith", "Bo Lee"), year="2020")]
        >>> cited_references(["As shown [1].", "Smith and Lee (2020) agree."], [references, references])
        [[0], [1]]
    """
    cited = []
    for text, entries in zip(texts, references, strict=True):
        keys, dated = (set(_keys(text)), set(_dated_names(text))) if entries else (set(), set())
        words = f" {normalize_entity(text)} "
        indices = []
        for index, entry in enumerate(entries):
            title = normalize_entity(entry.title)
            has_title = len(title.split()) >= MIN_TITLE_WORDS and f" {title} " in words
            if entry.key.strip("[] ").casefold() in keys or _names_and_year(entry, dated) or has_title:
                indices.append(index)
        cited.append(indices)
    return cited


def _keys(text: str) -> Iterator[str]:
    """Yield the keys in square brackets in lower case, with ranges expanded."""
    for group in _BRACKETS.findall(text):
        for key in map(str.strip, re.split(r"[,;]", group)):
            span = _RANGE.fullmatch(key)
            if span is not None and int(span[1]) < int(span[2]):
                yield from map(str, range(int(span[1]), int(span[2]) + 1))
            elif key:
                yield key.casefold()


class _DatedNames(NamedTuple):
    """Names and year of a likely citation, such as "Smith and Jones (2020)".

    Attributes:
        first: Normalised surname of the first author.
        second: Normalised surname of the second author, or empty.
        year: Year, which a letter may follow.
    """

    first: str
    second: str
    year: str


def _dated_names(text: str) -> Iterator[_DatedNames]:
    """Yield the names and year of each likely citation."""
    for match in _AUTHOR_YEAR.finditer(text):
        for year in re.split(r"\s*,\s*", match[4]):
            yield _DatedNames(normalize_entity(match[1]), normalize_entity(match[3] or ""), year)


def _names_and_year(entry: Reference, dated: set[_DatedNames]) -> bool:
    """Return whether a text cites a reference by the names of its authors and the year."""
    year = _YEAR.fullmatch(entry.year.strip())
    if year is None or not entry.authors:
        return False
    # The surname is the last word before the comma or, without a comma, of the name.
    surnames = [normalize_entity(author.partition(",")[0]).rpartition(" ")[2] for author in entry.authors]
    years = {year[0]} if year[2] else {year[1], *(f"{year[1]}{letter}" for letter in "abcdefgh")}
    return any(
        names.first == surnames[0] and names.year in years and (not names.second or names.second in surnames[1:])
        for names in dated
    )


def _numbered(references: Sequence[Reference]) -> str:
    lines = []
    for number, entry in enumerate(references, start=1):
        key = f"[{entry.key}]" if entry.key else ""
        known = filter(None, (key, ", ".join(entry.authors), entry.title, entry.year))
        lines.append(f"{number}. {'; '.join(known)}")
    return "\n".join(lines)


def load_reference_network(
    path: str | Path,
    *,
    name: str | None = None,
    splits: Splits = None,
    max_size: int = 4096,
    gold: str = "paper",
    drop_empty: bool = False,
    knn: int = 0,
) -> Dataset:
    """Read a data set folder of papers whose metadata list their ``references``.

    - A node is a chunk of whole sentences without overlap. Its id is ``<paper>#<number from 0>``, and its text is the
      title of the paper followed by the chunk.
    - A chunk is joined with all chunks of each paper in the corpus that it cites. Citations within the bibliography are
      ignored. The bibliography begins at the last line that consists of a heading such as "References".
    - ``references`` is a list of ``{"id": paper, "key"?, "title"?, "authors"?: [...], "year"?}``. References to papers
      outside the corpus are ignored.

    Source: "FastInsight", 2026, section 4.2.1.

    *Differences from the paper:* we split chunks between sentences (the paper only states 4,096 characters) and find
    citations by patterns (the paper uses GPT-5-nano).

    Args:
        path: Data set folder.
        name: Name of the data set. If None, the name of the folder.
        splits: Splits as in :meth:`~graphrerank.data.dataset.Dataset.from_folder`.
        max_size: Maximum number of characters of a chunk without the title.
        gold: Kind of id in the judgements. ``chunk``, or ``paper``, all of whose chunks are then relevant (section
            4.2.2).
        drop_empty: Whether to omit papers without title and text. If False, such a paper is an error.
        knn: Number of nearest neighbours by vectors with which each chunk is joined. 0 adds no such edges.

    Returns:
        Data set of the chunks.

    Raises:
        UserError: If a file is missing or invalid, or the corpus is empty.
    """
    check_choice(("paper", "chunk"), gold=gold)
    folder = existing_folder(path, needed="corpus.jsonl, queries.jsonl and qrels/<split>.tsv")
    papers = list(read_documents(folder, drop_empty=drop_empty))
    if not papers:
        raise UserError(f"{folder}: the corpus must contain at least one document, got none")
    index_of = {paper.doc_id: i for i, paper in enumerate(papers)}
    ids, texts = list[str](), list[str]()  # of each chunk
    texts_to_search: list[str] = []  # text of each chunk before the bibliography
    paper_of: list[int] = []  # paper of each chunk
    nodes_of: list[range] = []  # chunks of each paper
    for number, paper in enumerate(papers):
        chunks = split_chunks(paper.text, max_size=max_size)
        headings = list(_BIBLIOGRAPHY.finditer(paper.text))
        end = headings[-1].start() if headings else len(paper.text)
        first_node = len(ids)
        for chunk, (start, stop) in enumerate(chunks or [(0, 0)]):  # a paper without text is one empty chunk
            ids.append(f"{paper.doc_id}#{chunk}")
            texts.append(paper._replace(text=paper.text[start:stop]).passage)
            texts_to_search.append(paper.text[start : min(stop, end)])
            paper_of.append(number)
        nodes_of.append(range(first_node, len(ids)))
    references = [_references(folder, paper, index_of) for paper in papers]
    cited = cited_references(texts_to_search, [references[number] for number in paper_of])
    pairs: set[tuple[int, int]] = set()  # chunk and each chunk of a paper that it cites
    for node, entries in enumerate(cited):
        for entry in entries:
            cited_paper = index_of[references[paper_of[node]][entry].id]
            pairs.update((node, other) for other in nodes_of[cited_paper])
    edges = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
    graph = CorpusGraph.from_edges(ids, texts, edges, edge_type=REFERENCE)
    nodes_by_id = dict(zip(ids, range(len(ids)), strict=True)) if gold == "chunk" else index_of
    queries, judged = read_judged_queries(folder, splits, nodes_by_id)
    if gold == "paper":
        for split, listed in judged.items():
            judged[split] = [row._replace(node=node) for row in listed for node in nodes_of[row.node]]
    counts = {"citations": graph.num_edges // 2}
    return Dataset.from_queries(name or folder.resolve().name, graph, queries, judged, knn=knn, edge_counts=counts)


def _references(folder: Path, paper: CorpusRecord, index_of: Mapping[str, int]) -> list[Reference]:
    """Return a paper's references to other papers of the corpus."""
    listed = paper.metadata.get("references", [])
    try:
        entries = TypeAdapter(list[Reference]).validate_python(listed)
    except ValidationError as error:
        raise UserError(
            f'{folder}: `references` in the metadata of a paper must be a list of {{"id": "...", "key"?, "title"?, '
            f'"authors"?: [...], "year"?}}, got {str(listed)[:80]!r} in {paper.doc_id!r}'
        ) from error
    return [entry for entry in entries if entry.id in index_of and entry.id != paper.doc_id]
