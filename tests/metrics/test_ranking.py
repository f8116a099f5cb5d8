import pickle
import random

import ir_measures
import pytest
import torch
from torch import Tensor

from graphrerank.metrics import Measure, parse_measure

Qrels = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]

DEPTH = 15


def random_search(seed: int) -> tuple[Qrels, Run]:
    """Judge and rank 40 queries; grades 0 to 3, distinct scores, relevant documents that were not retrieved."""
    rng = random.Random(seed)
    documents = [f"d{i}" for i in range(60)]
    qrels: Qrels = {}
    run: Run = {}
    for query in (f"q{i}" for i in range(40)):
        judged = rng.sample(documents, rng.randint(1, 20))
        qrels[query] = {doc: rng.randint(0, 3) for doc in judged} | {judged[0]: rng.randint(1, 3)}
        retrieved = rng.sample(documents, rng.randint(1, DEPTH))
        run[query] = dict(zip(retrieved, rng.sample(range(1000), len(retrieved)), strict=True))
    return qrels, run


def as_tensors(qrels: Qrels, run: Run) -> tuple[Tensor, Tensor]:
    ranked_relevance = torch.zeros(len(run), DEPTH)
    gains = torch.zeros(len(run), 20)
    for row, query in enumerate(run):
        for rank, doc in enumerate(sorted(run[query], key=lambda doc: -run[query][doc])):
            ranked_relevance[row, rank] = qrels[query].get(doc, 0)
        positive = [gain for gain in qrels[query].values() if gain > 0]
        gains[row, : len(positive)] = torch.tensor(positive)
    return ranked_relevance, gains


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "oracle", "oracle_depth"),
    [
        ("R@1", "R@1", None),
        ("R@100", "R@100", None),
        ("nDCG@5", "nDCG@5", None),
        ("nDCG@100", "nDCG@100", None),
        ("MRR", "RR", None),
        ("MRR@3", "RR", 3),  # no cutoff in trec_eval: cut the run instead
    ],
)
def test_against_ir_measures(name: str, oracle: str, oracle_depth: int | None, seed: int) -> None:
    qrels, run = random_search(seed)
    cut_run = {
        query: dict(sorted(scores.items(), key=lambda item: -item[1])[:oracle_depth]) for query, scores in run.items()
    }
    expected = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.parse_measure(oracle)], qrels, cut_run)}
    measure = parse_measure(name)
    actual = measure(*as_tensors(qrels, run))
    assert actual.dtype == torch.float64
    assert len(set(actual.tolist())) > 2  # the oracle has something to tell apart
    assert actual.tolist() == pytest.approx([expected[query] for query in run])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("top_k", [1, 5, 10, 100])
@pytest.mark.parametrize("base", ["PR", "CR"])
def test_against_naive_loop(base: str, top_k: int, seed: int) -> None:
    qrels, run = random_search(seed)
    expected, multi = [], []
    for query, scores in run.items():
        relevant = {doc for doc, gain in qrels[query].items() if gain > 0}
        top = {*sorted(scores, key=lambda doc: -scores[doc])[:top_k]}
        capped = len(relevant & top) / min(top_k, len(relevant))
        expected.append(float(relevant <= top) if base == "PR" else capped)
        multi.append(len(relevant) > 1)
    arguments = as_tensors(qrels, run)
    assert parse_measure(f"{base}@{top_k}")(*arguments).tolist() == pytest.approx(expected)

    assert 0 < sum(multi) < len(multi)
    multi_only = parse_measure(f"{base}@{top_k}/multi")
    assert (~multi_only(*arguments).isnan()).tolist() == multi


@pytest.mark.parametrize("name", ["PR@10", "PR@10/multi", "R@5", "CR@10", "nDCG@10", "nDCG@3/multi", "MRR", "MRR@10"])
def test_name_survives_parsing_and_pickling(name: str) -> None:
    assert parse_measure(name).name == name
    assert pickle.loads(pickle.dumps(parse_measure(name))) == parse_measure(name)
    assert parse_measure("R_cap@5/multi") == parse_measure("CR@5/multi")  # one name


@pytest.mark.parametrize(
    "name",
    ["", "PR", "R@0", "R@01", "ndcg@10", "MRR@", "PR@10/single", "R@5\n"],
)
def test_unknown_name_is_refused_with_the_known_forms(name: str) -> None:
    with pytest.raises(ValueError, match=r"`name` must be PR@K, .*CR@K \(capped recall\).* got '"):
        parse_measure(name)


EVERY_BASE = pytest.mark.parametrize("name", ["PR@2", "R@2", "CR@2", "nDCG@2", "MRR", "MRR@2", "PR@2/multi"])


@EVERY_BASE
@pytest.mark.parametrize(
    ("ranked_relevance", "qrels", "match"),
    [
        ([[1, 0], [0, 0], [0, 0]], [[1], [0], [0]], r"`qrels` must contain a positive gain .* row 1\. Remove"),
        ([[1, 1], [0, 1]], [[1, 0], [1, 0]], r"`ranked_relevance` must not contain more .* in row 0\. Rank each"),
        ([[1, 0]], [[1], [1]], r"`qrels` must have one row per ranking, 1, got 2"),
        ([1, 0], [[1]], r"`ranked_relevance` must have two dimensions, .* got shape \(2,\)"),
        ([[1, 0]], [1], r"`qrels` must have two dimensions, .* got shape \(1,\)"),
    ],
)
def test_misfit_rankings_are_refused(name: str, ranked_relevance: list[int], qrels: list[int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        parse_measure(name)(torch.tensor(ranked_relevance), torch.tensor(qrels))
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        Measure(parse_measure(name).base, 0)(torch.tensor([[1]]), torch.tensor([[1]]))


@EVERY_BASE
def test_no_query_gives_no_score(name: str) -> None:
    assert parse_measure(name)(torch.zeros(0, 3), torch.zeros(0, 1)).shape == (0,)


@EVERY_BASE
def test_depth_of_padding_does_not_matter(name: str) -> None:
    ranked_relevance, qrels = torch.tensor([[0, 2, 1], [1, 0, 0]]), torch.tensor([[2, 1, 1], [1, 1, 0]])
    padded = torch.nn.functional.pad(ranked_relevance, (0, 4)), torch.nn.functional.pad(qrels, (3, 1))
    assert torch.equal(parse_measure(name)(*padded), parse_measure(name)(ranked_relevance, qrels))
