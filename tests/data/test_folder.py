import gzip
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.documents import CorpusRecord, read_documents, read_queries, split_passage
from tests.support.graphs import named_edges

HEADER = "query-id\tcorpus-id\tscore\n"


def edges_of(dataset: Any) -> dict[tuple[str, str], float]:
    """The largest weight of each pair."""
    found: dict[tuple[str, str], float] = {}
    for (one, other, _), weight in named_edges(dataset.graph).items():
        found[one, other] = max(weight, found.get((one, other), 0.0))
    return found


def judged(dataset: Any, split: str) -> dict[tuple[str, str], float]:
    qrels = dataset.split(split)
    return {
        (dataset.query_ids[q], dataset.graph.node_ids[n]): g
        for q, n, g in zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True)
    }


def test_every_part_of_a_small_folder(write_folder) -> None:
    folder = write_folder()
    dataset = Dataset.from_folder(folder)
    assert dataset.name == "small"
    assert list(dataset.graph.node_ids) == ["a", "b", "c", "d d"]
    assert list(dataset.graph.texts) == ["Ant. An insect.", "A bird.", "Cat", "A dog."]
    assert edges_of(dataset) == {("a", "b"): 1, ("b", "a"): 1, ("c", "d d"): 1, ("d d", "c"): 1}
    assert list(dataset.query_ids) == ["q1", "q2", "q3"]  # q3 is in no split, and stays
    assert list(dataset.query_texts) == ["Which insect?", "Which pets?", "Nothing?"]
    assert list(dataset.splits) == ["test", "train"]
    assert judged(dataset, "train") == {("q1", "a"): 1}  # a score of 0 is judged not relevant
    assert judged(dataset, "test") == {("q2", "c"): 2, ("q2", "d d"): 1}
    documents, queries = list(read_documents(folder)), list(read_queries(folder))
    assert documents[0] == ("a", "Ant", "An insect.", {})
    assert (documents[3].metadata, queries[1].metadata) == ({"split": "dev"}, {"kind": "list"})
    named = Dataset.from_folder(folder, splits=["test"])
    assert (list(named.query_ids), judged(named, "test")) == (["q2"], judged(dataset, "test"))


@pytest.mark.parametrize(
    ("title", "text", "passage"),
    [("Who?", "Me.", "Who? Me."), ("Ant", "It", "Ant. It"), ("A.", "", "A."), ("", "B", "B"), ("A", "A b", "A. A b")],
)
def test_passage(title: str, text: str, passage: str) -> None:
    assert CorpusRecord("1", title, text, {}).passage == passage
    assert split_passage(passage, len(title)) == (title, text)


# --- what is read the same -------------------------------------------------------------------------------------------


def same(one: Path, other: Path) -> bool:
    return bool(Dataset.from_folder(one).fingerprint == Dataset.from_folder(other).fingerprint)


def test_blank_lines_carriage_returns_marks_gzip_shards_and_flat_qrels_change_nothing(
    write_folder, tmp_path: Path
) -> None:
    plain, odd, packed = write_folder(), tmp_path / "odd", tmp_path / "packed"
    (odd / "qrels").mkdir(parents=True)
    for file in (file for file in plain.rglob("*.*") if file.is_file()):
        content = b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n\r\n")
        (odd / file.relative_to(plain)).write_bytes(content)
    assert same(plain, odd)
    (packed / "corpus").mkdir(parents=True)
    lines = (plain / "corpus.jsonl").read_bytes().splitlines(keepends=True)
    (packed / "corpus" / "0.jsonl").write_bytes(b"".join(lines[:2]))
    (packed / "corpus" / "1.jsonl").write_bytes(b"".join(lines[2:]))
    (packed / "queries.jsonl.gz").write_bytes(gzip.compress((plain / "queries.jsonl").read_bytes()))
    for name in ("edges.tsv", "qrels/train.tsv", "qrels/test.tsv"):
        (packed / Path(name).name).write_bytes((plain / name).read_bytes())
    assert same(plain, packed)


def test_parquet_of_the_hub_changes_nothing(write_folder, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    corpus = [{"_id": i, "title": "T", "text": f"text {i}"} for i in range(5)]
    queries = [{"_id": "q1", "text": "one"}]
    qrels = {"train": HEADER + "q1\t3\t1\n", "test": None, "edges": None}
    texts = [record | {"_id": str(record["_id"])} for record in corpus]
    plain, odd = write_folder(corpus=texts, queries=queries, **qrels), tmp_path / "odd"
    write_folder(odd, corpus=None, queries=None, **qrels)
    (odd / "corpus").mkdir()
    parquet.write_table(arrow.Table.from_pylist(corpus[:3]), odd / "corpus" / "corpus-00000-of-00002.parquet")
    parquet.write_table(arrow.Table.from_pylist(corpus[3:]), odd / "corpus" / "corpus-00001-of-00002.parquet")
    parquet.write_table(arrow.Table.from_pylist(queries), odd / "queries.parquet")
    assert same(plain, odd)
    parquet.write_table(arrow.Table.from_pylist([{"_id": "x", "text": ""}]), odd / "queries.parquet")
    with pytest.raises(ValueError, match=r"queries\.parquet, row 1: expected a `text`"):
        Dataset.from_folder(odd)
    (odd / "queries.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(ValueError, match=r"queries\.parquet: damaged Parquet file after row 0"):
        Dataset.from_folder(odd)


def test_parquet_without_its_package_says_what_to_install(write_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(corpus=None)
    (folder / "corpus.parquet").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"corpus\.parquet: Parquet needs pyarrow, which is not installed"):
        Dataset.from_folder(folder)


def test_line_separators_of_unicode_and_surrogate_pairs_are_text(write_folder) -> None:
    corpus = '{"_id": "a", "text": "one\u2028two\x85 \\ud83d\\ude00 and \\\\ud800"}\n'
    dataset = Dataset.from_folder(write_folder(corpus=corpus, edges=None, train=HEADER + "q1\ta\t1\n", test=None))
    assert list(dataset.graph.texts) == ["one\u2028two\x85 \U0001f600 and \\ud800"]


# --- splits, edges and filters ---------------------------------------------------------------------------------------


def test_shares_of_a_split_part_its_queries_in_order(write_folder) -> None:
    queries = [{"_id": f"q{i}", "text": "?"} for i in range(10)]
    rows = HEADER + "".join(f"q{i}\ta\t1\nq{i}\tb\t1\n" for i in reversed(range(10)))
    folder = write_folder(queries=queries, train=rows, test=None)
    dataset = Dataset.from_folder(folder, splits={"train": "train[:70%]", "val": "train[70%:]"})
    assert {query for query, _ in judged(dataset, "train")} == {f"q{i}" for i in range(7)}
    assert judged(dataset, "val") == {(f"q{i}", node): 1 for i in (7, 8, 9) for node in "ab"}
    with pytest.raises(ValueError, match=r"split 'val' of .* has no queries"):
        Dataset.from_folder(folder, splits={"val": "train[:1%]"})
    with pytest.raises(ValueError, match="must not share queries"):
        Dataset.from_folder(folder, splits={"train": "train", "val": "train[:50%]"})


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ("train", r"`splits` must be a list of names, a mapping, auto or auto_documents, got 'train'"),
        (["dev"], r"`splits` must use the files \['test', 'train'\] of qrels, got 'dev'"),
        ({"dev": "train[:x%]"}, r"got 'train\[:x%\]' for 'dev'"),
        ({"dev": "train[90%:90%]"}, r"`splits` must use ranges between 0% and 100%"),
        ({"dev": "train[80%:20%]"}, r"`splits` must use ranges between 0% and 100%"),
    ],
)
def test_bad_splits(write_folder, splits: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset.from_folder(write_folder(), splits=splits)


def test_a_corpus_to_search_in_needs_no_queries_or_judgements(write_folder, tmp_path: Path) -> None:
    dataset = Dataset.from_folder(write_folder(tmp_path / "queries", train=None, test=None))
    assert (dict(dataset.splits), len(dataset.query_ids)) == ({}, 3)
    dataset = Dataset.from_folder(write_folder(train=None, test=None, queries=None))
    assert dataset.graph.num_nodes == 4
    assert list(dataset.query_ids) == []
    with pytest.raises(ValueError, match=r"expected queries\.jsonl"):
        Dataset.from_folder(write_folder(train=None, test=None, queries=None), splits=["test"])
    with pytest.raises(ValueError, match=r"expected queries\.jsonl"):  # judgements are there
        Dataset.from_folder(write_folder(queries=None))


def test_parallel_edges_become_one_with_the_largest_weight(write_folder) -> None:
    edges = "source\ttarget\ttype\tsource_column\tweight\na\tb\tx\tk\t0.5\nb\ta\ty\tk\t3\na\tb\ty\t\t2\n"
    folder = write_folder(edges=edges)
    assert edges_of(Dataset.from_folder(folder)) == {("a", "b"): 3, ("b", "a"): 3}
    assert edges_of(Dataset.from_folder(folder, edge_types=["x"])) == {("a", "b"): 0.5, ("b", "a"): 0.5}


def test_self_loops_and_repeated_lines_are_counted(write_folder) -> None:
    rows = ["a\ta\tx", "a\tb\tx", "a\tb\tx", "b\ta\tx", "a\tb\ty", "c\tc\ty", "a\tb\tx"]
    folder = write_folder(edges="\n".join(rows) + "\n")
    counted = "self-loops, which are left out: 2; repeated edges, which are read once: 2$"
    with pytest.warns(UserWarning, match=counted):
        assert edges_of(Dataset.from_folder(folder)) == {("a", "b"): 1, ("b", "a"): 1}


def test_edges_keep_what_their_type_means(write_folder) -> None:
    folder = write_folder(edges="a\tb\tfollows\t2\na\tb\tcites\t1\nb\tc\tlikes\t1\n")
    with pytest.warns(UserWarning, match=r"edges of the types 'likes' are read as `other`.*\{likes: reference\}"):
        dataset = Dataset.from_folder(folder, edge_meanings={"follows": "adjacency"})
    one_way = {("a", "b", "adjacency"): 2.0, ("a", "b", "reference"): 1.0, ("b", "c", "other"): 1.0}
    assert named_edges(dataset.graph) == one_way | {(b, a, kind): w for (a, b, kind), w in one_way.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meant = Dataset.from_folder(folder, edge_meanings={"other": "reference"})
    assert {kind for _, _, kind in named_edges(meant.graph)} == {"reference"}
    with pytest.raises(ValueError, match=r"`edge_types` must name types in .*got 'other'"):
        Dataset.from_folder(folder, edge_types=["other"], edge_meanings={"other": "reference"})
    with pytest.raises(ValueError, match=r"`edge_meanings\['follows'\]` must be one of"):
        Dataset.from_folder(folder, edge_meanings={"follows": "next"})
    with pytest.raises(ValueError, match=r"`edge_meanings` must name types in .*got 'like'; .* \['cites', 'fol"):
        Dataset.from_folder(folder, edge_meanings={"like": "reference"})


def test_edge_files_can_be_chosen_and_lack_a_header(write_folder, tmp_path: Path) -> None:
    plain = write_folder(tmp_path / "other", edges="a\tb\tx\t0.25\n")
    assert edges_of(Dataset.from_folder(plain)) == {("a", "b"): 0.25, ("b", "a"): 0.25}
    folder = write_folder()
    (folder / "more.tsv").write_text("a\tc\tmore\n", encoding="utf-8")
    assert Dataset.from_folder(folder, edges=[]).graph.num_edges == 0
    assert set(edges_of(Dataset.from_folder(folder, edges=["more.tsv"]))) == {("a", "c"), ("c", "a")}
    both = ["edges.tsv", "more.tsv"]
    assert Dataset.from_folder(folder, edges=both).graph.num_edges == 6
    assert Dataset.from_folder(folder, edges=both, edge_types=["more", "likes"]).graph.num_edges == 4
    with pytest.raises(ValueError, match=r"none\.tsv: no such file"):
        Dataset.from_folder(folder, edges=["none.tsv"])
    with pytest.raises(ValueError, match=r"`edge_types` must name types .* got 'love'; .* \['hates', 'likes'\]"):
        Dataset.from_folder(folder, edge_types=["likes", "love"])


CORPUS_OF_TWO = [
    {"_id": "a", "text": "A", "metadata": {"split": "train", "db": 1}},
    {"_id": "b", "text": "B", "metadata": {"split": "dev"}},
    {"_id": "c", "text": "C", "metadata": {"split": "dev", "db": 2}},
    {"_id": "d d", "text": "D"},
]


def test_corpus_where_keeps_documents_and_their_edges(write_folder) -> None:
    edges = "a\tb\tx\nb\tc\tx\nc\td d\tx\n"
    rows = HEADER + "q2\tc\t1\nq2\ta\t0\n"
    folder = write_folder(corpus=CORPUS_OF_TWO, edges=edges, test=rows)
    dataset = Dataset.from_folder(folder, corpus_where={"split": "dev"}, splits=["test"])
    assert list(dataset.graph.node_ids) == ["b", "c"]
    assert set(edges_of(dataset)) == {("b", "c"), ("c", "b")}
    assert judged(dataset, "test") == {("q2", "c"): 1}
    both = Dataset.from_folder(folder, corpus_where={"split": ["dev", "train"], "db": [1, 2]})
    assert list(both.graph.node_ids) == ["a", "c"]


def test_judgements_of_what_is_left_out_are_refused(write_folder, tmp_path: Path) -> None:
    corpus = [{"_id": "a", "text": "A"}, {"_id": "e", "title": " ", "text": ""}]
    folder = write_folder(tmp_path / "empty", corpus=corpus, edges=None, test=None, train=HEADER + "q1\ta\t1\n")
    assert list(Dataset.from_folder(folder, drop_empty=True).graph.node_ids) == ["a"]
    (folder / "qrels" / "train.tsv").write_text(HEADER + "q1\te\t1\n", encoding="utf-8")
    with (
        pytest.warns(UserWarning, match=r"train\.tsv: skipped 1 x document without title and text \(line 2\)"),
        pytest.raises(ValueError, match=r"train\.tsv: expected a score above 0 in at least one row, got none"),
    ):
        Dataset.from_folder(folder, drop_empty=True)
    folder = write_folder(corpus=CORPUS_OF_TWO, edges=None, test=HEADER + "q2\tc\t1\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 2: expected a document that matches `corpus_where` .* 'a'"):
        Dataset.from_folder(folder, corpus_where={"split": "dev"})
    with pytest.raises(ValueError, match=r"must contain a document with {'split': 'no'} in its metadata"):
        Dataset.from_folder(folder, corpus_where={"split": "no"})


# --- every error names file and line ---------------------------------------------------------------------------------

ANT = '{"_id": "a", "text": "A"}\n'


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        ("corpus", ANT + '{"_id": "b", "text": \n', r"corpus\.jsonl, line 2: expected JSON \(.*\), got"),
        ("corpus", ANT + "[1]\n", r"corpus\.jsonl, line 2: expected a JSON object, got \[1\]"),
        ("corpus", "[" * 100_000 + "\n", r"corpus\.jsonl, line 1: expected JSON"),
        (
            "corpus",
            '{"_id": 0.5, "text": "A"}\n',
            r"corpus\.jsonl, line 1: expected `_id`: a non-empty string or .* got 0\.5",
        ),
        ("corpus", '{"id": "a", "docno": "b", "text": "A"}\n', r"line 1: expected `_id`, or one of its synonyms, got"),
        ("corpus", '{"_id": " a", "text": "A"}\n', r"corpus\.jsonl, line 1: expected `_id`: .* got ' a'"),
        ("corpus", '{"_id": "a\\tb", "text": "A"}\n', r"corpus\.jsonl, line 1: expected `_id`: "),
        ("corpus", ANT + "\n" + ANT, r"corpus\.jsonl, line 3: expected unique `_id`, got 'a \(duplicate\)'"),
        ("corpus", '{"_id": "a", "title": "A"}\n', r"corpus\.jsonl, line 1: expected `text`: Field required, got"),
        ("corpus", '{"_id": "a", "title": [], "text": "A"}\n', r"line 1: expected `title`: .*string, got \[\]"),
        ("corpus", '{"_id": "a", "title": "", "text": " \\n"}\n', r"line 1: expected a `title` or a `text`"),
        ("corpus", json.dumps({"_id": "a", "text": ["x" * 10_000]}) + "\n", r"expected .{,300}$"),
        ("corpus", '{"_id": "a", "text": "A", "metadata": []}\n', r"line 1: expected `metadata`: .*dictionary"),
        (
            "corpus",
            '{"_id": "a", "text": "A\\ud800"}\n',
            r"corpus\.jsonl, line 1: expected valid characters without lone surrogates",
        ),
        ("corpus", ANT.encode() + b'{"_id": "b", "text": "caf\xe9"}\n', r"corpus\.jsonl, line 2: expected UTF-8, got"),
        ("corpus", b'{"_id": "a", "text": "\xed\xa0\x80"}\n', r"corpus\.jsonl, line 1: expected UTF-8"),
        ("corpus", "", r"the corpus must contain a document, got none"),
        ("corpus", None, r"expected corpus\.jsonl \(or corpus\.jsonl\.gz, corpus\.parquet, .* got none of them"),
        (
            "corpus",
            '{"_id": "a", "text": "x", "principals": ["hr"]}\n',
            r"corpus\.jsonl, line 1: expected `principals` in `metadata`",
        ),
        *(
            (
                "corpus",
                f'{ANT}{{"_id": "b", "text": "x", {odd}}}\n',
                rf"corpus\.jsonl, line 2: expected .* got '{path}'",
            )
            for odd, path in {
                '"principal": ["hr"]': "principal",
                '"Principals": ["hr"]': "Principals",
                '"Metadata": {"principals": ["hr"]}': r"Metadata\.principals",
                '"meta": [{"pricipals": []}]': r"meta\.pricipals",
            }.items()
        ),
        *(
            ("corpus", f'{ANT}{{"_id": "b", "text": "x", "metadata": {odd}}}\n', rf"corpus\.jsonl, line 2: {message}")
            for odd, message in {
                '{"Principals": ["hr"]}': r"`metadata\.Principals` must be named `metadata\.principals` if it",
                '{"acl": {"principals": []}}': r"`metadata\.acl\.principals` must be named `metadata\.principals`",
                '{"valid_to": "next year"}': r"`metadata\.valid_to`: expected a time in ISO 8601, .* got 'next year'",
                '{"valid_from": 20250131}': r"`metadata\.valid_from`: expected a time in ISO 8601, .* got 20250131",
            }.items()
        ),
        ("edges", "source\ttarget\tprincipal\na\tb\thr\n", r"line 1: expected `principals` as the name of the column"),
        ("edges", "source,target,type,Allowed Principals\na,b,x,hr\n", r"line 1: expected .*got 'Allowed Principals'"),
        ("queries", None, r"expected queries\.jsonl"),
        ("queries", '{"_id": "q1", "text": " "}\n', r"queries\.jsonl, line 1: expected a `text`"),
        ("train", HEADER + "q1\ta\t0\n", r"train\.tsv: expected a score above 0 in at least one row, got none"),
        ("train", "q1\ta\tone\n", r"train\.tsv, line 1: expected a number as score \(columns query-id .* got 'one'"),
        ("train", HEADER + "q1 a 1\n", r"train\.tsv, line 2: expected 3 tab-separated columns"),
        ("train", HEADER + "q9\ta\t1\n", r"line 2: expected an id of the queries \(or `drop_unknown`\), got 'q9'"),
        ("train", HEADER + "q1\tz\t1\n", r"line 2: expected an id of the corpus \(or `drop_unknown`\), got 'z'"),
        ("train", HEADER + "q1\ta\tnan\n", r"train\.tsv, line 2: expected a number as score .* got 'nan'"),
        ("train", HEADER + "q1\ta\t1\nq1\ta\t0\n", r"line 3: expected one score .* 'q1 a with 1 in line 2 and 0'"),
        ("train", HEADER + "q1\ta\t1\nq2\ta\t1\n", r"`splits` must not share queries, got 'q2' in 'train'"),
        ("edges", "a\n", r"edges\.tsv, line 1: expected columns source, target, and optionally type"),
        ("edges", "source\ttarget\ttype\na\tb\n", r"edges\.tsv, line 2: expected 3 tab-separated columns"),
        ("edges", "a\tb\tx\na\tz\tx\n", r"line 2: expected an id of the corpus \(or `drop_unknown`\), got 'z'"),
        *(
            ("edges", f"a\tb\tx\t{bad}\n", rf"edges\.tsv, line 1: expected a weight above 0, got '{bad}'")
            for bad in ("x", "nan", "-inf", "1,5", "0x1", "1e39", "-1e-50")
        ),
    ],
)
def test_bad_content(write_folder, table: str, content: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset.from_folder(write_folder(**{table: content}))


@pytest.mark.parametrize(
    "rows",
    [
        "q1\ta\t2\nq1\tb\t0\n",  # no header
        "q1 0 a 2\nq1 0 b -1\n",
        "q1\tQ0\ta\t2.0\nq1\tQ0\tb\t0\n",
        "qid iter docno rel\nq1 0 a 2\n",
        "query_id,doc_id,score\nq1,a,2\n",
        HEADER.replace("\t", " ") + "q1 a 2\n",
    ],
)
def test_forms_of_judgements(write_folder, rows: str) -> None:
    assert judged(Dataset.from_folder(write_folder(train=rows)), "train") == {("q1", "a"): 2}


@pytest.mark.parametrize(
    "edges",
    [
        "a,b,link\n",
        "source,target,type\na,b,link\n",
        "head\trelation\ttail\na\tlink\tb\n",
        "a b\n",
        "source\ttarget\tweight\na\tb\t0.5\n",
        "a\tb\tlink\t\n",
        'to;from;label;date\nb;a;"a; link";2024-01-01\n',
    ],
)
def test_forms_of_edges(write_folder, edges: str) -> None:
    dataset = Dataset.from_folder(write_folder(edges=edges), edge_meanings={"other": "reference"})
    assert edges_of(dataset) == dict.fromkeys((("a", "b"), ("b", "a")), 0.5 if "0.5" in edges else 1.0)


def test_bad_items_are_left_out_and_counted(write_folder) -> None:
    folder = write_folder(
        corpus=[
            {"id": 1, "contents": "An insect."},
            {"id": 2, "title": None, "text": None},
            {"id": 3, "body": "A cat."},
        ],
        edges="1\t2\tlink\n1\t3\tlink\n3\tz\tlink\n",
        train=HEADER + "q1\t1\t1\nq1\t1\t1\nq1\tz\t1\nq9\t1\t1\nq1\t2\t1\n",
        test=None,
    )
    with pytest.raises(ValueError, match=r"expected an id of the corpus \(or `drop_unknown`\), got 'z'"):
        Dataset.from_folder(folder)
    with pytest.warns(UserWarning, match="skipped") as warned:
        dataset = Dataset.from_folder(folder, drop_unknown=True)
    assert [str(warning.message).rpartition("/")[2] for warning in warned] == [
        "corpus.jsonl: skipped 1 x document without title and text (line 2)",
        "train.tsv: skipped 1 x duplicate row (line 3), 1 x id not in the corpus (line 4), "
        "1 x id not in the queries (line 5), 1 x document without title and text (line 6)",
        "edges.tsv: skipped 1 x id not in the corpus (line 3)",
    ]
    assert list(dataset.graph.node_ids) == ["1", "3"]
    assert judged(dataset, "train") == {("q1", "1"): 1}
    assert set(edges_of(dataset)) == {("1", "3"), ("3", "1")}


def test_settings_that_are_given_win_over_auto(write_folder) -> None:
    texts = ["An ant walks to Bonn.", "Bonn is a town.", "The Rhine flows through Bonn."]
    rows = [
        {"_id": str(i), "title": title, "text": text, "metadata": {"doc_id": "d", "chunk_id": i}}
        for i, (title, text) in enumerate(zip(["Ant", "Bonn", "Rhine"], texts, strict=True))
    ]
    folder = write_folder(corpus=rows, edges=None, train=None, test=HEADER + "q1\t0\t1\n")
    auto = Dataset.from_folder(folder, edges="auto")
    assert auto.edge_counts.keys() > {"mentions", "neighbouring chunks"}
    assert auto.knn == 10
    off = Dataset.from_folder(folder, edges="auto", adjacency=False, mentions=False, entities=None, knn=0)
    assert (off.graph.num_edges, off.knn, off.knn_below) == (0, 0, None)
    assert Dataset.from_folder(folder, edges="auto", adjacency=False).edge_counts.keys() >= {"mentions"}
    assert Dataset.from_folder(folder, entities="auto").graph.entities is None


@pytest.mark.parametrize(
    "content", [b"plain text", gzip.compress(b'{"_id": "q1", "text": "?"}\n' * 9)[:30]], ids=["plain", "cut"]
)
def test_damaged_gzip(write_folder, content: bytes) -> None:
    folder = write_folder(queries=None)
    (folder / "queries.jsonl.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"queries\.jsonl\.gz: damaged gzip file"):
        Dataset.from_folder(folder)


# --- laws ------------------------------------------------------------------------------------------------------------


def random_folder(write: Any, path: Path, seed: int) -> tuple[Path, dict[str, Any]]:
    """Write a random data set and return what it says."""
    rng = random.Random(seed)
    alphabet = "abz é漢😀\\\"'/{}\u2028-_.:#"

    def word() -> str:
        return "".join(rng.choices(alphabet, k=rng.randint(1, 12)))

    ids = [f"{i}{word()}".strip() for i in range(rng.randint(2, 20))]
    corpus = {i: (word(), word() + "x") for i in ids}
    queries = {f"q{i}": word() + "?" for i in range(rng.randint(1, 9))}
    truth: dict[str, dict[tuple[str, str], float]] = {}
    for number, query in enumerate(queries):
        split = truth.setdefault(f"s{number % 3}", {})
        split.update({(query, i): rng.choice([0.5, 1.0, 2.0]) for i in rng.sample(ids, rng.randint(1, len(ids)))})
    edges: dict[tuple[str, ...], float] = {}
    rows = []
    for _ in range(rng.randint(0, 30)):
        a, b = rng.sample(ids, 2)
        weight = rng.choice([0.25, 1.0, 4.0])
        pair = tuple(sorted((a, b)))
        edges[pair] = max(weight, edges.get(pair, 0))
        rows.append(f"{a}\t{b}\tt{rng.randint(0, 2)}\t{weight}\n")
    folder = write(
        path,
        corpus="".join(
            json.dumps({"_id": i, "title": t, "text": x}, ensure_ascii=rng.random() < 0.5) + "\n"
            for i, (t, x) in corpus.items()
        ),
        queries=[{"_id": i, "text": t} for i, t in queries.items()],
        edges="".join(rows) or None,
        train=None,
        test=None,
        **{
            split: HEADER + "".join(f"{q}\t{d}\t{gain}\n" for (q, d), gain in pairs.items())
            for split, pairs in truth.items()
        },
    )
    return folder, {"corpus": corpus, "queries": queries, "truth": truth, "edges": edges}


@pytest.mark.parametrize("seed", range(25))
def test_what_is_written_is_read(write_folder, tmp_path: Path, seed: int) -> None:
    folder, said = random_folder(write_folder, tmp_path / "random", seed)
    dataset = Dataset.from_folder(folder)
    assert list(dataset.graph.node_ids) == list(said["corpus"])
    for text, (title, body) in zip(dataset.graph.texts, said["corpus"].values(), strict=True):
        assert text.startswith(title.strip())
        assert text.endswith(body.strip())
    assert dict(zip(dataset.query_ids, dataset.query_texts, strict=True)) == {
        i: t.strip() for i, t in said["queries"].items()
    }
    assert {split: judged(dataset, split) for split in dataset.splits} == said["truth"]
    assert edges_of(dataset) == {pair: w for (a, b), w in said["edges"].items() for pair in ((a, b), (b, a))}


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_edges_and_judgements_changes_nothing(write_folder, tmp_path: Path, seed: int) -> None:
    folder, _ = random_folder(write_folder, tmp_path / "random", seed)
    before = Dataset.from_folder(folder)
    for file in [*folder.glob("qrels/*.tsv"), *folder.glob("edges.tsv")]:
        first, *rest = file.read_text(encoding="utf-8").split("\n")[:-1]
        head, rows = ([first], rest) if "qrels" in file.parts else ([], [first, *rest])
        random.Random(seed).shuffle(rows)
        file.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")
    after = Dataset.from_folder(folder)
    assert edges_of(before) == edges_of(after)
    assert all(judged(before, split) == judged(after, split) for split in before.splits)


@pytest.mark.parametrize("seed", range(5))
def test_any_broken_byte_is_an_error_of_ours_or_harmless(write_folder, tmp_path: Path, seed: int) -> None:
    folder, _ = random_folder(write_folder, tmp_path / "random", seed)
    rng = random.Random(seed)
    files = [file for file in folder.rglob("*") if file.is_file()]
    for _ in range(40):
        file = rng.choice(files)
        content = file.read_bytes()
        at = rng.randrange(len(content))
        file.write_bytes(content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :])
        try:
            Dataset.from_folder(folder)
        except ValueError as error:
            assert str(folder) in str(error)  # noqa: PT017 (both outcomes are right)
        file.write_bytes(content)
