import math
import random
import re
from collections import Counter
from itertools import chain, combinations
from pathlib import Path

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.judgements import AUTO_DOCUMENTS, DUPLICATE_SIMILARITY, divide_queries, near_duplicates
from tests.support.folders import write_dataset

TEXTS = [f"What does {name} number {i * i} do?" for i, name in enumerate(["Ada", "Bo", "Cy", "Di", "Ed"] * 12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [(f"q{i}", f"p{i // 4}") for i in range(50)]
    return write_dataset(
        tmp_path / "mine",
        corpus=[{"_id": f"p{i}", "text": f"passage {i}"} for i in range(20)],
        queries=[{"_id": f"q{i}", "text": text, "metadata": {"answer": str(i)}} for i, text in enumerate(TEXTS)],
        train=rows[:20],
        other=rows[20:],
    )


def test_auto_divides_the_judged_queries_of_all_files(folder: Path) -> None:
    dataset = Dataset.from_folder(folder, splits="auto")
    assert list(dataset.query_texts) == TEXTS[:50]
    expected = divide_queries(TEXTS[:50])
    assert list(dataset.splits) == ["train", "val", "test"]
    for name, qrels in dataset.splits.items():
        assert qrels.queries.tolist() == [i for i, split in enumerate(expected) if split == name]
        assert qrels.node.tolist() == [query // 4 for query in qrels.query.tolist()]
    assert dataset.answers["q3"] == ["3"]
    assert Dataset.from_folder(folder, splits="auto").fingerprint == dataset.fingerprint
    together = Dataset.from_folder(folder, splits="auto_documents")
    nodes = [set(qrels.node.tolist()) for qrels in together.splits.values()]
    assert sum(map(len, nodes)) == len(set(chain(*nodes))) == 13
    assert together.fingerprint != dataset.fingerprint


CSV = (
    'query-id,corpus-id,score,query,text\nq0,p0,1,"Which, one?","two\nlines"\nq0,p1,0,,\nq1,p2,,,not judged\n'
    "q2,p3,2,,\n"
)


@pytest.mark.parametrize("text", [CSV, "\ufeff" + CSV.replace("\n", "\r\n"), CSV.replace(",", ";")])
def test_a_judged_pool(folder: Path, text: str) -> None:
    for path in (folder / "qrels").iterdir():
        path.unlink()
    (folder / "qrels" / "test.csv").write_text(text, encoding="utf-8", newline="")
    qrels = Dataset.from_folder(folder).splits["test"]
    assert list(zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True)) == [
        (0, 0, 1.0),
        (2, 3, 2.0),
    ]


def test_a_pool_with_errors_names_the_line(folder: Path) -> None:
    path = folder / "qrels" / "pool.csv"
    for text, message in (
        (CSV.replace("p3", "none"), r"pool\.csv, line 6: expected an id of the corpus .*, got 'none'"),
        (CSV.replace("p3,2", "p3,yes"), r"pool\.csv, line 6: expected a number as score .*got 'yes'"),
        (CSV.replace("query-id", "number"), r"pool\.csv, line 1: expected a number as score .*got 'score'"),
        (CSV.splitlines()[0], r"pool\.csv: expected a score above 0 in at least one row"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Dataset.from_folder(folder)
    path.unlink()
    (folder / "qrels" / "train.csv").write_text(CSV, encoding="utf-8")
    with pytest.raises(ValueError, match=r"train\.tsv: expected one file per split, got train\.csv too"):
        Dataset.from_folder(folder)


WORDS = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet", "bread", "castle", "Straße", "東"]


def questions(count: int, seed: int = 0) -> list[str]:
    """Draw questions of one template, some of them again with other case and punctuation, or a word more."""
    rng, drawn = random.Random(seed), []
    for number in range(count):
        if number % 5 == 4:
            again = rng.choice(drawn)
            drawn.append(rng.choice([again.upper(), again.replace(" ", "  ") + "?!", again + " " + rng.choice(WORDS)]))
        else:
            drawn.append(f"Which {rng.choice(WORDS)} has {' '.join(rng.choices(WORDS, k=rng.randint(1, 4)))}?")
    return drawn


def naive_pairs(texts: list[str]) -> set[tuple[int, int]]:
    """Compare every pair by the equation of the module."""
    normal = [re.sub(r"[\W_]+", " ", text.lower()).strip() for text in texts]
    grams = [{f" {text} "[i : i + 3] for i in range(len(text))} for text in normal]
    distinct = dict(zip(normal, grams, strict=True))
    counts = Counter(gram for own in distinct.values() for gram in own)
    weight = {gram: math.log(1 + len(distinct) / count) for gram, count in counts.items()}

    def alike(x: set[str], y: set[str]) -> bool:
        return sum(weight[g] for g in x & y) >= DUPLICATE_SIMILARITY * sum(weight[g] for g in x | y) - 1e-6

    return {(i, j) for i, j in combinations(range(len(texts)), 2) if alike(grams[i], grams[j])}


@pytest.mark.parametrize("seed", range(4))
def test_against_every_pair(seed: int) -> None:
    """Pairs of equal texts are chained, not listed each with each, and so are pairs with one of them."""
    texts = questions(120, seed)
    naive, found = naive_pairs(texts), set(near_duplicates(texts))
    assert found <= naive
    assert len(found) > 5
    assert _components(len(texts), found) == _components(len(texts), naive)


def _components(count: int, pairs: set[tuple[int, int]]) -> set[frozenset[int]]:
    group = {number: {number} for number in range(count)}
    for one, other in pairs:
        if group[one] is not group[other]:
            group[one] |= group[other]
            for member in group[other]:
                group[member] = group[one]
    return {frozenset(members) for members in group.values()}


def test_shares_of_many_questions() -> None:
    """Large groups are no more likely to be in one split than small ones."""
    texts = [f"{word} {number * 7919 % 100003}" for number in range(4000) for word in ("violin", "castle")]
    for chosen in (texts, [text for text in texts[::2] for text in (text, text.upper(), text + "!")]):
        count = Counter(divide_queries(chosen))
        assert count["train"] / len(chosen) == pytest.approx(0.8, abs=0.03)
        assert count["val"] / len(chosen) == pytest.approx(0.1, abs=0.02)


def test_the_split_of_a_question_does_not_depend_on_the_others() -> None:
    texts = [f"{word} of {other} {number}" for number, (word, other) in enumerate(combinations(WORDS, 2))]
    assert list(near_duplicates(texts)) == []
    whole = dict(zip(texts, divide_queries(texts), strict=True))
    part = texts[::-2]
    assert list(near_duplicates(part)) == []
    assert divide_queries(part) == [whole[text] for text in part]


def test_questions_with_a_common_document_are_together() -> None:
    texts = [f"{word} of {other} {number}" for number, (word, other) in enumerate(combinations(WORDS, 2))]
    documents = [[number // 3, f"own {number}"] for number in range(len(texts))]
    split_of = divide_queries(texts, documents)
    assert all(len(set(split_of[start : start + 3])) == 1 for start in range(0, len(texts), 3))
    assert split_of != divide_queries(texts)
    with pytest.raises(
        ValueError, match=rf"`splits={AUTO_DOCUMENTS}` must assign a question to each split, .* in 1 groups; divide"
    ):
        divide_queries(texts, [["one"]] * len(texts))


def test_too_few_questions_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"got none in \['.*'\] for 2 questions .*'data\.splits=\{train: \"FILE\[:80%\]"
    ):
        divide_queries(["one river", "two stones"])
