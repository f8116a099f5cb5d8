r"""Relevance judgements in BEIR's layout, ``qrels/<split>.tsv``, in TREC's, or as a spreadsheet writes them (CSV).

``splits: auto`` divides the questions into train, val and test by a hash, near-duplicates together: those whose
character trigrams (of the text in lower case, all that is no letter or digit read as one space) overlap in 0.7 of their
weight,

.. math:: J(x, y) = \frac{\sum_{g \in x \cap y} w_g}{\sum_{g \in x \cup y} w_g} \ge 0.7, \quad
    w_g = \ln\left(1 + \frac{N}{N_g}\right)

with :math:`N_g` of the :math:`N` questions holding the trigram. Chains of near-duplicates are one group; with
``auto_documents`` so are questions that share a relevant document. The SHA-256 of the first of a group's questions, in
the order of their letters, says its split. A question that is added moves others only if it joins their group.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from graphrerank.data.readers.documents import EMPTY, FILTERED, Query, read_queries
from graphrerank.data.readers.records import (
    bad_line,
    check_columns,
    find_record_files,
    parse_number,
    read_table,
    read_tsv,
    warn_left_out,
)
from graphrerank.utils.caching import hash_text
from graphrerank.utils.checks import UserError

TRAIN, VAL, TEST = "train", "val", "test"  # as conf names them
DEFAULT_SPLITS = (":80%", "80%:90%", "90%:")  # of a file that holds all judgements
AUTO, AUTO_DOCUMENTS = "auto", "auto_documents"
BOUNDS = {TRAIN: 0.8, VAL: 0.9, TEST: 1.0}  # of the hash
DUPLICATE_SIMILARITY = 0.7  # weighted Jaccard similarity from which on two questions are near-duplicates
SIMILARITY_ROUNDING = 1e-9
_BREAK = re.compile(r"[\W_]+")
JUDGEMENT_HEADER = ["query-id", "corpus-id", "score"]
QUERY_NAMES = ("query-id", "queryid", "query", "qid", "topic", "topic-id")  # of the first column of a header
ITERATIONS = ("0", "q0", "iter", "iteration")  # the second of four columns, as TREC writes them
SUFFIXES = (".tsv", ".csv", ".txt", ".qrels", ".trec")
Splits = str | Sequence[str] | Mapping[str, str] | None

_SLICE = re.compile(r"([^\[\]]+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?")


class Judgement(NamedTuple):
    """One row: a query's number, a node's number and a gain above 0."""

    query: int
    node: int
    gain: float


def qrels_files(folder: Path) -> dict[str, Path]:
    """Find the judgements of a data set by split: ``qrels/*.tsv`` and ``*.csv``, or TSV files next to the corpus."""
    if (folder / "qrels").is_dir():
        files = sorted(path for path in (folder / "qrels").iterdir() if path.suffix in SUFFIXES)
        files = [path for path in files if path.stem.lower() != "readme"]
    else:
        files = [path for path in sorted(folder.glob("*.tsv")) if next(read_tsv(path), (0, []))[1] == JUDGEMENT_HEADER]
    found: dict[str, Path] = {}
    for path in files:
        if found.setdefault(path.stem, path) != path:
            raise UserError(f"{path}: needed one file of a split, found {found[path.stem].name} too")
    return found


def read_qrels(
    path: Path, query_number: Mapping[str, int], node_number: Mapping[str, int], *, drop_unknown: bool = False
) -> list[Judgement]:
    """Read a file of judgements: those with a positive score.

    A node number of -1 marks a document that is left out, one of -2 a document without text, whose judgements are left
    out. So are those of unknown ids if ``drop_unknown``; a warning counts them.
    """
    rows: list[Judgement] = []
    seen: dict[tuple[str, str], tuple[int, float]] = {}
    left_out: defaultdict[str, list[int]] = defaultdict(list)
    for line, query_id, doc_id, score in _qrels_rows(path):
        query, node, gain = query_number.get(query_id), node_number.get(doc_id), max(parse_number(score), 0.0)
        if math.isnan(gain):
            needed = f"a number as score (columns {' '.join(JUDGEMENT_HEADER)}, or TREC's query-id 0 corpus-id score)"
            raise bad_line(path, line, needed=needed, actual=score)
        if query is None or node is None:
            table, key = ("queries", query_id) if query is None else ("corpus", doc_id)
            if not drop_unknown:
                raise bad_line(path, line, needed=f"an id of the {table} (or `drop_unknown`)", actual=key)
            left_out[f"an id that is not in the {table}"].append(line)
            continue
        before, score_before = seen.setdefault((query_id, doc_id), (line, gain))
        if gain != score_before:
            found = f"{query_id} {doc_id} with {score_before:g} in line {before} and {gain:g}"
            raise bad_line(path, line, needed="one score of each query and document", actual=found)
        if before != line:
            left_out["a row that came before"].append(line)
        elif gain > 0 and node == FILTERED:
            needed = "a document that `corpus_where` keeps (or name other `splits`)"
            raise bad_line(path, line, needed=needed, actual=doc_id)
        elif gain > 0 and node == EMPTY:
            left_out["a document without title and text"].append(line)
        elif gain > 0:
            rows.append(Judgement(query, node, gain))
    warn_left_out(path, left_out)
    if not rows:
        raise UserError(f"{path}: needed a score above 0 in at least one row, found none")
    return rows


def _qrels_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Read line, query, document and score as written, without the header.

    The first row decides whether rows have three columns, or four as TREC writes them. Spreadsheets may have further
    columns, and a blank score in them means that the pair was not judged.
    """
    is_csv = path.suffix == ".csv"
    num_columns: int | None = None
    for line, columns in read_table(path):
        is_first = num_columns is None
        if num_columns is None:
            num_columns = 4 if _is_trec_row(columns) else len(JUDGEMENT_HEADER)
        if is_csv:
            columns = columns[:num_columns]
        check_columns(path, line, columns, count=num_columns, names=", ".join(JUDGEMENT_HEADER))
        is_header = is_first and columns[0].strip().lower().replace("_", "-") in QUERY_NAMES
        is_unjudged = is_csv and not columns[-1]
        if not is_header and not is_unjudged:
            yield line, columns[0], columns[-2], columns[-1]


def _is_trec_row(columns: Sequence[str]) -> bool:
    return len(columns) > 1 and columns[1].strip().lower() in ITERATIONS


def plan_splits(splits: Splits, files: Collection[str]) -> dict[str, tuple[str, int, int]]:
    """Choose for each split the file, and the percentages of its queries at which the split starts and stops."""
    if isinstance(splits, str):
        raise UserError(f"`splits` must be a list of names, a mapping, auto or auto_documents, got {splits!r}")
    names = list(files) if splits is None else splits
    source_of = names if isinstance(names, Mapping) else {name: name for name in names}
    plan = {}
    for name, source in source_of.items():
        parts = _SLICE.fullmatch(source)
        if parts is None or parts[1] not in files:
            raise UserError(f"`splits` must be of {sorted(files)} (files of qrels), got {source!r} for {name!r}")
        start, stop = int(parts[2] or 0), int(parts[3] or 100)
        if not 0 <= start < stop <= 100:
            raise UserError(f"`splits` must take a share between 0% and 100%, got {source!r} for {name!r}")
        plan[name] = (parts[1], start, stop)
    return plan


def read_judged_queries(
    folder: Path, splits: Splits, node_number: Mapping[str, int], *, drop_unknown: bool = False
) -> tuple[list[Query], dict[str, list[Judgement]]]:
    """Read the queries of a data set folder, and their judgements by split.

    ``splits`` are as of :meth:`~graphrerank.data.dataset.Dataset.from_folder`; unless None, only judged queries are
    kept. ``node_number`` and ``drop_unknown`` are as of :func:`read_qrels`. A folder with neither
    queries nor judgements is a corpus to search in.
    """
    files = qrels_files(folder)
    if splits is None and not files and not find_record_files(folder, "queries", required=False):
        return [], {}
    queries = list(read_queries(folder))
    query_number = {query.query_id: i for i, query in enumerate(queries)}
    divided = isinstance(splits, str) and splits in (AUTO, AUTO_DOCUMENTS)
    plan = plan_splits(None if divided else splits, files)
    rows_of = {
        file: read_qrels(files[file], query_number, node_number, drop_unknown=drop_unknown)
        for file in dict.fromkeys(file for file, _, _ in plan.values())
    }
    if divided:
        judged = _divided(list(chain(*rows_of.values())), queries, by_documents=splits == AUTO_DOCUMENTS)
    else:
        judged = {split: _share(rows_of[file], start, stop) for split, (file, start, stop) in plan.items()}
    for split, part in judged.items():
        if not part:
            raise UserError(f"`splits` must each hold a query, got none for {split!r} of {folder}")
    if splits is None:
        return queries, judged
    kept = sorted({row.query for rows in judged.values() for row in rows})
    renumbered = {query: i for i, query in enumerate(kept)}
    judged = {s: [row._replace(query=renumbered[row.query]) for row in rows] for s, rows in judged.items()}
    return [queries[query] for query in kept], judged


def _share(rows: Sequence[Judgement], start: int, stop: int) -> list[Judgement]:
    """Keep the judgements of the queries from ``start`` to ``stop`` percent, in the order of their numbers."""
    queries = sorted({row.query for row in rows})
    kept = set(queries[len(queries) * start // 100 : len(queries) * stop // 100])
    return [row for row in rows if row.query in kept]


def _divided(rows: Sequence[Judgement], queries: Sequence[Query], *, by_documents: bool) -> dict[str, list[Judgement]]:
    """Divide all judgements by :func:`divide_queries`."""
    relevant: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        relevant[row.query].append(row.node)
    judged = sorted(relevant)
    documents = [relevant[query] for query in judged] if by_documents else None
    split_of = dict(zip(judged, divide_queries([queries[query].text for query in judged], documents), strict=True))
    return {split: [row for row in rows if split_of[row.query] == split] for split in BOUNDS}


def divide_queries(texts: Sequence[str], documents: Sequence[Iterable[Hashable]] | None = None) -> list[str]:
    """Return the split of each question; ``documents`` are the relevant ones of each, for ``auto_documents``."""
    above = list(range(len(texts)))  # a forest, whose trees are the groups

    def root(number: int) -> int:
        while above[number] != number:
            above[number] = number = above[above[number]]
        return number

    for one, other in near_duplicates(texts):
        above[root(one)] = root(other)
    holders: dict[Hashable, int] = {}
    for query, relevant in enumerate(documents or ()):
        for document in relevant:
            above[root(query)] = root(holders.setdefault(document, query))
    first: dict[int, str] = {}
    for query, text in enumerate(map(_normal, texts)):
        first[root(query)] = min(first.get(root(query), text), text)
    split_of = [_split(first[root(query)]) for query in range(len(texts))]
    absent = [split for split in BOUNDS if split not in split_of]
    if absent:
        rule = AUTO if documents is None else AUTO_DOCUMENTS
        by_place = ", ".join(f'{split}: "FILE[{share}]"' for split, share in zip(BOUNDS, DEFAULT_SPLITS, strict=True))
        raise UserError(
            f"`splits={rule}` must give each split a question, got none in {absent} of {len(texts)} questions in "
            f"{len(first)} groups; by place in a file of qrels instead: 'data.splits={{{by_place}}}'"
        )
    return split_of


def near_duplicates(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """List the pairs of near-duplicate texts by their positions; equal texts are chained.

    Only texts that share one of the rarest trigrams of either, with which the similarity could not reach 0.7 otherwise,
    are compared.

    Source: the prefix filter of Bayardo, Ma and Srikant, "Scaling Up All Pairs Similarity Search", 2007.
    """
    alike: dict[str, int] = {}
    distinct: list[int] = []
    for place, text in enumerate(map(_normal, texts)):
        if (first := alike.setdefault(text, place)) != place:
            yield first, place
        else:
            distinct.append(place)
    grams = {place: _grams(_normal(texts[place])) for place in distinct}
    counts = Counter(gram for own in grams.values() for gram in own)
    weight = {gram: math.log1p(len(distinct) / count) for gram, count in counts.items()}
    total = {place: math.fsum(weight[gram] for gram in own) for place, own in grams.items()}
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for place in distinct:
        own, seen = grams[place], set()
        for gram in _prefix(own, weight, total[place]):
            seen.update(holders[gram])
            holders[gram].append(place)
        for other in sorted(seen):
            shared = sum(weight[gram] for gram in own & grams[other])
            if shared + SIMILARITY_ROUNDING >= DUPLICATE_SIMILARITY * (total[place] + total[other] - shared):
                yield other, place


def _prefix(grams: Iterable[str], weight: dict[str, float], total: float) -> list[str]:
    """Return the rarest trigrams without which less than 0.7 of the weight is left."""
    taken, left = [], total
    for gram in sorted(grams, key=lambda gram: (-weight[gram], gram)):
        if left + SIMILARITY_ROUNDING < DUPLICATE_SIMILARITY * total:
            break
        taken.append(gram)
        left -= weight[gram]
    return taken


def _normal(text: str) -> str:
    return _BREAK.sub(" ", text.lower()).strip() or text


def _grams(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[start : start + 3] for start in range(max(1, len(padded) - 2)))


def _split(text: str) -> str:
    """Return the split of a text's hash."""
    share = int.from_bytes(hash_text(text)[:6], "big") / 2**48
    return next(split for split, bound in BOUNDS.items() if share < bound)
