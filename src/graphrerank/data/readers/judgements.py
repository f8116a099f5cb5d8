r"""Relevance judgements in BEIR's layout, ``qrels/<split>.tsv``, in TREC's format, or as CSV.

``splits: auto`` divides the questions into train, val and test by a hash. Near-duplicate questions are assigned to the
same split. Two questions are near-duplicates if the weighted overlap of their character trigrams (in lower case,
without punctuation) is at least 0.7,

.. math:: J(x, y) = \frac{\sum_{g \in x \cap y} w_g}{\sum_{g \in x \cup y} w_g} \ge 0.7, \quad
    w_g = \ln\left(1 + \frac{N}{N_g}\right)

where :math:`N_g` of the :math:`N` questions contain the trigram :math:`g`. Chains of near-duplicates form one group.
With ``auto_documents``, questions that share a relevant document are in one group, too. The SHA-256 of the
alphabetically first question of a group determines its split, so a new question moves others only if it connects their
groups.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
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

TRAIN, VAL, TEST = "train", "val", "test"  # Names of the splits in the configuration.
DEFAULT_SPLITS = (":80%", "80%:90%", "90%:")  # Train, val and test as shares of a single file of judgements.
AUTO, AUTO_DOCUMENTS = "auto", "auto_documents"
BOUNDS = {TRAIN: 0.8, VAL: 0.9, TEST: 1.0}  # Upper bound of each split for the hash, scaled to [0, 1).
DUPLICATE_SIMILARITY = 0.7  # Minimum weighted Jaccard similarity of near-duplicates.
SIMILARITY_ROUNDING = 1e-9  # Tolerance of comparisons with `DUPLICATE_SIMILARITY`.
_BREAK = re.compile(r"[\W_]+")
JUDGEMENT_HEADER = ["query-id", "corpus-id", "score"]
QUERY_NAMES = ("query-id", "queryid", "query", "qid", "topic", "topic-id")  # Names of the first column in a header.
ITERATIONS = ("0", "q0", "iter", "iteration")  # Values of the second of TREC's four columns.
SUFFIXES = (".tsv", ".csv", ".txt", ".qrels", ".trec")
Splits = str | Sequence[str] | Mapping[str, str] | None

_SLICE = re.compile(r"([^\[\]]+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?")


class Judgement(NamedTuple):
    """Relevance judgement.

    Attributes:
        query: Query number.
        node: Passage number.
        gain: Positive gain.
    """

    query: int
    node: int
    gain: float


class SoftLabel(NamedTuple):
    """Soft label of a passage for a query.

    Attributes:
        query: Query number.
        node: Passage number.
        label: Score of the passage for the query, any finite number.
    """

    query: int
    node: int
    label: float


class SplitSource(NamedTuple):
    """Judgements that form a split: a file, or a range of its queries.

    Attributes:
        file: Name of the file of judgements.
        start: Start of the range in percent of the queries.
        stop: End of the range in percent of the queries.
    """

    file: str
    start: int
    stop: int


def qrels_files(folder: Path) -> dict[str, Path]:
    """Find the files of judgements of a data set.

    Args:
        folder: Data set folder.

    Returns:
        Files by the name of the split: those in ``qrels/``, or TSV files with BEIR's header next to the corpus.

    Raises:
        UserError: If there are two files for one split.
    """
    if (folder / "qrels").is_dir():
        files = sorted(path for path in (folder / "qrels").iterdir() if path.suffix in SUFFIXES)
        files = [path for path in files if path.stem.lower() != "readme"]
    else:
        files = [
            path for path in sorted(folder.glob("*.tsv")) if next(read_tsv(path), (0, []))[1][:3] == JUDGEMENT_HEADER
        ]
    file_of: dict[str, Path] = {}
    for path in files:
        if file_of.setdefault(path.stem, path) != path:
            raise UserError(f"{path}: expected one file per split, got {file_of[path.stem].name} too")
    return file_of


def read_qrels(
    path: Path, query_number: Mapping[str, int], node_number: Mapping[str, int], *, drop_unknown: bool = False
) -> list[Judgement]:
    """Read the judgements with a positive score from a file.

    Args:
        path: File of judgements.
        query_number: Query number of each query id.
        node_number: Passage number of each document id. -1 marks documents that do not match ``corpus_where``, and -2
            marks documents without title and text, whose judgements are skipped with a warning.
        drop_unknown: Whether to skip judgements with unknown ids with a warning. By default, they raise an error.

    Returns:
        Judgements in the order of the file.

    Raises:
        UserError: If a line is invalid or contradicts an earlier one, if a judged document does not match
            ``corpus_where``, or if no judgement is positive. A file with a column of soft labels may have none.
    """
    judgements: list[Judgement] = []
    first_of: dict[tuple[str, str], tuple[int, float]] = {}  # line and gain of the first row of each pair
    left_out: defaultdict[str, list[int]] = defaultdict(list)
    for line, query_id, doc_id, score in _qrels_rows(path):
        query = query_number.get(query_id)
        node = node_number.get(doc_id)
        gain = max(parse_number(score), 0.0)
        if math.isnan(gain):
            needed = f"a number as score (columns {' '.join(JUDGEMENT_HEADER)}, or query-id 0 corpus-id score in TREC)"
            raise bad_line(path, line, needed=needed, actual=score)
        if query is None or node is None:
            table, key = ("queries", query_id) if query is None else ("corpus", doc_id)
            if not drop_unknown:
                raise bad_line(path, line, needed=f"an id of the {table} (or `drop_unknown`)", actual=key)
            left_out[f"id not in the {table}"].append(line)
            continue
        first_line, first_gain = first_of.setdefault((query_id, doc_id), (line, gain))
        if gain != first_gain:
            scores = f"{query_id} {doc_id} with {first_gain:g} in line {first_line} and {gain:g}"
            raise bad_line(path, line, needed="one score per query and document", actual=scores)
        if line != first_line:
            left_out["duplicate row"].append(line)
        elif gain > 0 and node == FILTERED:
            needed = "a document that matches `corpus_where` (or choose other `splits`)"
            raise bad_line(path, line, needed=needed, actual=doc_id)
        elif gain > 0 and node == EMPTY:
            left_out["document without title and text"].append(line)
        elif gain > 0:
            judgements.append(Judgement(query, node, gain))
    warn_left_out(path, left_out)
    has_soft_labels = bool(soft_label_columns(path)) and len(list(islice(read_table(path), 2))) == 2
    if not judgements and not has_soft_labels:
        raise UserError(f"{path}: expected a score above 0 in at least one row, got none")
    return judgements


def read_soft_labels(
    path: Path,
    query_number: Mapping[str, int],
    node_number: Mapping[str, int],
    *,
    column: str,
    drop_unknown: bool = False,
) -> list[SoftLabel]:
    """Read the soft labels in a column of a file of judgements, ``query-id corpus-id score <column>``.

    Args:
        path: File of judgements with a header.
        query_number: Query number of each query id. Rows of other queries are ignored.
        node_number: Passage number of each document id.
        column: Name of the column.
        drop_unknown: Whether to skip rows with unknown documents with a warning. By default, they raise an error.

    Returns:
        Soft labels of the rows in which the label is not blank.

    Raises:
        UserError: If there is no such column, or if a row is invalid. The message names file and line.
    """
    if column not in soft_label_columns(path):
        header = "\t".join([*JUDGEMENT_HEADER, column])
        raise UserError(f"{path}: expected a header with the column {column!r}, such as {header!r}, got none")
    labels: dict[tuple[int, int], float] = {}
    unknown: list[int] = []
    table = read_table(path)
    _, header_row = next(table)
    position = [name.strip() for name in header_row].index(column)
    for line, cells in table:
        check_columns(path, line, cells, count=len(header_row), names=", ".join(header_row))
        if not cells[position].strip() or cells[0] not in query_number:
            continue
        label = parse_number(cells[position])
        if math.isnan(label):
            raise bad_line(path, line, needed=f"a number or a blank in column {column!r}", actual=cells[position])
        node = node_number.get(cells[1])
        if node is None:
            if not drop_unknown:
                raise bad_line(path, line, needed="an id of the corpus (or `drop_unknown`)", actual=cells[1])
            unknown.append(line)
            continue
        if labels.setdefault((query_number[cells[0]], node), label) != label:
            pair = f"{cells[0]} {cells[1]} with two labels"
            raise bad_line(path, line, needed="one soft label per query and document", actual=pair)
    warn_left_out(path, {"id not in the corpus": unknown})
    return [SoftLabel(query, node, label) for (query, node), label in labels.items()]


def soft_label_columns(path: Path) -> list[str]:
    """Return the names of the columns after the score in the header of a file of judgements.

    Args:
        path: File of judgements.

    Returns:
        Names of the additional columns. Empty if there is no header or no additional column.
    """
    _, first = next(read_table(path), (0, []))
    is_judgements = len(first) > len(JUDGEMENT_HEADER) and _is_header(first) and not _is_trec_row(first)
    return [name.strip() for name in first[len(JUDGEMENT_HEADER) :]] if is_judgements else []


class _QrelsRow(NamedTuple):
    """Row of a file of judgements.

    Attributes:
        line: Line number.
        query_id: Id of the query.
        doc_id: Id of the document.
        score: Score as written.
    """

    line: int
    query_id: str
    doc_id: str
    score: str


def _qrels_rows(path: Path) -> Iterator[_QrelsRow]:
    """Yield each row of a file of judgements except the header.

    The first row determines whether there are three columns, or four as in TREC's format. CSV files, and files whose
    header names them, may have additional columns. A blank score then means that the pair was not judged.
    """
    may_have_more = path.suffix == ".csv" or bool(soft_label_columns(path))
    num_columns: int | None = None
    for line, columns in read_table(path):
        is_first = num_columns is None
        if num_columns is None:
            num_columns = 4 if _is_trec_row(columns) else len(JUDGEMENT_HEADER)
        if may_have_more:
            columns = columns[:num_columns]
        check_columns(path, line, columns, count=num_columns, names=", ".join(JUDGEMENT_HEADER))
        is_unjudged = may_have_more and not columns[-1].strip()
        if not (is_first and _is_header(columns)) and not is_unjudged:
            yield _QrelsRow(line, query_id=columns[0], doc_id=columns[-2], score=columns[-1])


def _is_header(columns: Sequence[str]) -> bool:
    return columns[0].strip().lower().replace("_", "-") in QUERY_NAMES


def _is_trec_row(columns: Sequence[str]) -> bool:
    return len(columns) > 1 and columns[1].strip().lower() in ITERATIONS


def plan_splits(splits: Splits, files: Collection[str]) -> dict[str, SplitSource]:
    """Return the file and the range of queries of each split.

    Args:
        splits: Names of files, a mapping from splits to files, or None for all files
            (:meth:`~graphrerank.data.dataset.Dataset.from_folder`).
        files: Names of the files of judgements.

    Returns:
        Judgements of each split by name.

    Raises:
        UserError: If a file does not exist, or if a range is invalid.
    """
    if isinstance(splits, str):
        raise UserError(f"`splits` must be a list of names, a mapping, auto or auto_documents, got {splits!r}")
    names = list(files) if splits is None else splits
    source_of = names if isinstance(names, Mapping) else {name: name for name in names}
    plan = {}
    for name, source in source_of.items():
        match = _SLICE.fullmatch(source)
        if match is None or match[1] not in files:
            raise UserError(f"`splits` must use the files {sorted(files)} of qrels, got {source!r} for {name!r}")
        start, stop = int(match[2] or 0), int(match[3] or 100)
        if not 0 <= start < stop <= 100:
            raise UserError(f"`splits` must use ranges between 0% and 100%, got {source!r} for {name!r}")
        plan[name] = SplitSource(match[1], start, stop)
    return plan


def read_judged_queries(
    folder: Path, splits: Splits, node_number: Mapping[str, int], *, drop_unknown: bool = False
) -> tuple[list[Query], dict[str, list[Judgement]]]:
    """Read the queries of a data set folder, and their judgements by split.

    Args:
        folder: Data set folder.
        splits: Judgements to read (:meth:`~graphrerank.data.dataset.Dataset.from_folder`). If None, all queries are
            returned. Otherwise only judged queries are returned.
        node_number: Passage number of each document id (:func:`read_qrels`).
        drop_unknown: Whether to skip judgements with unknown ids with a warning. By default, they raise an error.

    Returns:
        Queries, and judgements by split. Both are empty if the folder has neither queries nor judgements.

    Raises:
        UserError: If a file is missing or malformed, or if a split has no queries.
    """
    files = qrels_files(folder)
    if splits is None and not files and not find_record_files(folder, "queries", required=False):
        return [], {}
    queries = list(read_queries(folder))
    query_number = {query.query_id: i for i, query in enumerate(queries)}
    is_automatic = isinstance(splits, str) and splits in (AUTO, AUTO_DOCUMENTS)
    plan = plan_splits(None if is_automatic else splits, files)
    rows_of = {
        file: read_qrels(files[file], query_number, node_number, drop_unknown=drop_unknown)
        for file in dict.fromkeys(source.file for source in plan.values())
    }
    if is_automatic:
        judged = _divided(list(chain(*rows_of.values())), queries, by_documents=splits == AUTO_DOCUMENTS)
    else:
        judged = {split: _share(rows_of[file], start, stop) for split, (file, start, stop) in plan.items()}
    for split in [split for split in judged if split in files and not judged[split] and splits is None]:
        del judged[split]  # A file with soft labels alone: its queries are unjudged.
    for split, rows in judged.items():
        if not rows:
            raise UserError(f"split {split!r} of {folder} has no queries; choose a larger range in `splits`")
    if splits is None:
        return queries, judged
    judged_queries = sorted({row.query for rows in judged.values() for row in rows})
    new_number = {query: number for number, query in enumerate(judged_queries)}
    renumbered = {split: [row._replace(query=new_number[row.query]) for row in rows] for split, rows in judged.items()}
    return [queries[query] for query in judged_queries], renumbered


def _share(rows: Sequence[Judgement], start: int, stop: int) -> list[Judgement]:
    """Return the judgements of the queries from ``start`` to ``stop`` percent, in the order of their numbers."""
    queries = sorted({row.query for row in rows})
    selected = set(queries[len(queries) * start // 100 : len(queries) * stop // 100])
    return [row for row in rows if row.query in selected]


def _divided(rows: Sequence[Judgement], queries: Sequence[Query], *, by_documents: bool) -> dict[str, list[Judgement]]:
    """Divide all judgements with :func:`divide_queries`."""
    relevant: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        relevant[row.query].append(row.node)
    judged = sorted(relevant)
    documents = [relevant[query] for query in judged] if by_documents else None
    split_of = dict(zip(judged, divide_queries([queries[query].text for query in judged], documents), strict=True))
    return {split: [row for row in rows if split_of[row.query] == split] for split in BOUNDS}


def divide_queries(texts: Sequence[str], documents: Sequence[Iterable[Hashable]] | None = None) -> list[str]:
    """Assign questions to train, val and test by a hash, with near-duplicates in the same split.

    Args:
        texts: ``n`` questions.
        documents: Relevant documents of each question. Questions that share one are assigned to the same split. If
            None, documents are ignored.

    Returns:
        Split of each question.

    Raises:
        UserError: If a split would be empty.
    """
    parent = list(range(len(texts)))  # Union-find forest. Each tree is a group.

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    for query, duplicate in near_duplicates(texts):
        parent[root(query)] = root(duplicate)
    first_query: dict[Hashable, int] = {}
    for query, relevant in enumerate(documents or ()):
        for document in relevant:
            parent[root(query)] = root(first_query.setdefault(document, query))
    first_text: dict[int, str] = {}  # alphabetically first question of each group
    for query, text in enumerate(map(_normal, texts)):
        group = root(query)
        first_text[group] = min(first_text.get(group, text), text)
    split_of = [_split(first_text[root(query)]) for query in range(len(texts))]
    absent = [split for split in BOUNDS if split not in split_of]
    if absent:
        rule = AUTO if documents is None else AUTO_DOCUMENTS
        ranges = ", ".join(f'{split}: "FILE[{share}]"' for split, share in zip(BOUNDS, DEFAULT_SPLITS, strict=True))
        raise UserError(
            f"`splits={rule}` must assign a question to each split, got none in {absent} for {len(texts)} questions in "
            f"{len(first_text)} groups; divide a file of qrels by ranges instead: 'data.splits={{{ranges}}}'"
        )
    return split_of


def near_duplicates(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Find the pairs of near-duplicate texts.

    Only texts that share one of the rarest trigrams of either text are compared. Without such a trigram, the similarity
    cannot reach 0.7.

    Source: prefix filter of Bayardo, Ma and Srikant, "Scaling Up All Pairs Similarity Search", 2007.

    Args:
        texts: ``n`` texts.

    Yields:
        Positions of the two texts of a pair. Each of several equal texts is paired with the first of them.
    """
    first_of: dict[str, int] = {}
    distinct: list[int] = []
    for index, text in enumerate(map(_normal, texts)):
        if (first := first_of.setdefault(text, index)) != index:
            yield first, index
        else:
            distinct.append(index)
    grams = {index: _grams(_normal(texts[index])) for index in distinct}
    counts = Counter(gram for text_grams in grams.values() for gram in text_grams)
    weight = {gram: math.log1p(len(distinct) / count) for gram, count in counts.items()}
    total = {index: math.fsum(weight[gram] for gram in text_grams) for index, text_grams in grams.items()}
    indices_with: defaultdict[str, list[int]] = defaultdict(list)
    for index in distinct:
        text_grams = grams[index]
        candidates: set[int] = set()
        for gram in _prefix(text_grams, weight, total[index]):
            candidates.update(indices_with[gram])
            indices_with[gram].append(index)
        for other in sorted(candidates):
            shared = sum(weight[gram] for gram in text_grams & grams[other])
            if shared + SIMILARITY_ROUNDING >= DUPLICATE_SIMILARITY * (total[index] + total[other] - shared):
                yield other, index


def _prefix(grams: Iterable[str], weight: dict[str, float], total: float) -> list[str]:
    """Return the rarest trigrams such that the remaining ones have less than 0.7 of the total weight."""
    prefix: list[str] = []
    remaining = total
    for gram in sorted(grams, key=lambda gram: (-weight[gram], gram)):
        if remaining + SIMILARITY_ROUNDING < DUPLICATE_SIMILARITY * total:
            break
        prefix.append(gram)
        remaining -= weight[gram]
    return prefix


def _normal(text: str) -> str:
    return _BREAK.sub(" ", text.lower()).strip() or text


def _grams(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[start : start + 3] for start in range(max(1, len(padded) - 2)))


def _split(text: str) -> str:
    """Return the split that the hash of a text determines."""
    share = int.from_bytes(hash_text(text)[:6], "big") / 2**48
    return next(split for split, bound in BOUNDS.items() if share < bound)
