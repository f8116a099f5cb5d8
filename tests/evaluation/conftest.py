from dataclasses import replace
from typing import Any

import pytest
import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.dataset_result import browse_queries
from graphrerank.evaluation.records import (
    Breakdown,
    Cost,
    Counterfactual,
    DatasetResult,
    EdgesOfType,
    HubBias,
    ListReliability,
    PairedTest,
    QueryDifference,
    Reliability,
    Replication,
    SeedSpread,
    SystemResult,
)
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.graphs import CorpusGraph, Ranking

HOSTILE = "<script>document.title = 'broken'</script> & \"quoted\" <b onclick='x'>ü</b>"
NUM_QUERIES = 200
SKILL = {
    "retriever": 0.45,
    "ppr": 0.5,
    "gcs": 0.46,
    "cross_encoder": 0.58,
    "their.run": 0.55,
    "mlp": 0.68,
    "gatv2": 0.7,
}
MS = {"retriever": 0.2, "ppr": 0.6, "gcs": 0.4, "cross_encoder": 412.0, "mlp": 1.3, "gatv2": 2.2}


def make_system(name: str, difficulty: torch.Tensor, *, seed: int) -> SystemResult:
    generator = torch.Generator().manual_seed(seed)
    score = (SKILL[name] + 0.3 * difficulty + 0.15 * torch.randn(NUM_QUERIES, generator=generator)).clamp(0, 1).double()
    values = {"PR@10": (score > 0.5).double(), "nDCG@10": score, "R@10": (score * 4).round() / 4}
    cost = None
    if name in MS:
        total = {"p50": MS[name], "p95": 1.5 * MS[name]}
        cost = Cost({"graph": {"p50": 0.1, "p95": 0.2}, "total": total}, peak_memory_mib=812.4)
    return SystemResult(
        name=name,
        kind="run" if name == "their.run" else "operator",
        source=f"somewhere/{name}",
        values=values,
        intervals={m: tuple(bootstrap_interval(v, samples=200).tolist()) for m, v in values.items()},
        cost=cost,
        missing=("q3", "q4", "q5", "q6") if name == "their.run" else (),
        tied_share=0.05,
    )


def make_dataset(name: str, *, seed: int, texts: list[str] | None = None) -> DatasetResult:
    difficulty = torch.randn(NUM_QUERIES, generator=torch.Generator().manual_seed(seed))
    systems = {key: make_system(key, difficulty, seed=seed + place) for place, key in enumerate(SKILL)}
    tests = []
    for measure in ("PR@10", "nDCG@10"):
        for key in list(SKILL)[:-1]:
            d = systems["gatv2"].values[measure] - systems[key].values[measure]
            low, high = bootstrap_interval(d, samples=200).tolist()
            p = 0.0001 if low > 0 or high < 0 else 0.4
            tests.append(
                PairedTest("gatv2", key, measure, NUM_QUERIES, float(d.mean()), (low, high),
                           float(d.mean() / d.std()), float((d != 0).double().mean()), p, p / 2, p)
            )  # fmt: skip
    texts = texts or [f"what is the answer to question number {i} of this data set" for i in range(NUM_QUERIES)]
    worst = [
        QueryDifference(f"q{i}", texts[i], "retriever", "PR@10", "gatv2", 2, 1 - score, score)
        for i, score in ((0, 1.0), (1, 1.0), (2, 0.0))
    ]
    means = {key: system.means["PR@10"] for key, system in systems.items()}
    shares = (0.01, 0.12, 0.26, 0.31, 0.47, 0.52, 0.66, 0.71, 0.88, 0.97)
    return DatasetResult(
        name=name,
        split="test",
        fingerprint="0123456789abcdef" * 4,
        query_ids=[f"q{i}" for i in range(NUM_QUERIES)],
        query_texts=texts,
        num_relevant=[2] * NUM_QUERIES,
        systems=systems,
        tested=("PR@10", "nDCG@10"),
        candidates=100,
        ceiling=0.869,
        base_ceiling=0.8,
        tests=tests,
        query_differences=worst,
        breakdowns=[Breakdown("relevant nodes", group, 100, "PR@10", means) for group in ("1", "2 to 3")],
        hub_bias=[HubBias(key, 0.1, 0.05, 1.4, 1.2, 17) for key in SKILL],
        counterfactuals=[Counterfactual("gatv2", edges, "PR@10", 0.6, 0.08, (0.05, 0.11), 0.001, 0.7)
                         for edges in ("shuffled", "removed")],
        edges_of_type=[EdgesOfType("reference", 41.3, 0.6, 0.2, 0.031, 0.01)],
        seed_spreads=[SeedSpread(("gatv2", "gatv2 (2)"), (1, 2), "PR@10", 0.7, 0.01, 0.69, 0.71)],
        reliability=[Reliability("gatv2", "logistic", 20_000, 0.02, 0.0031, 0.0123, (18_000, *range(900, 0, -100)),
                                 tuple(0.05 + 0.1 * i for i in range(10)), shares)],
        list_reliability=[ListReliability("gatv2", "PR@5", 200, 0.6, 0.61, 0.0321, 0.1512, 0.842)],
    )  # fmt: skip


def make_browser(result: DatasetResult) -> dict[str, Any]:
    """Rankings of thirty passages in a ring, one of them hostile; the first is relevant to every query."""
    ring = torch.arange(30)
    texts = [HOSTILE if number == 3 else f"text of passage {number}" for number in range(30)]
    ids = [f"passage-{number}" for number in range(30)]
    edges = torch.stack([ring, (ring + 1) % 30], dim=1)
    graph = CorpusGraph.from_edges(ids, texts, edges, edge_type=ring % 2)
    generator = torch.Generator().manual_seed(5)
    systems = {}
    for name in ("retriever", "gatv2"):
        nodes = torch.rand(NUM_QUERIES, 30, generator=generator).argsort(dim=1)
        systems[name] = replace(result.systems[name], ranking=Ranking(nodes, torch.zeros(NUM_QUERIES, 30)))
    return browse_queries(replace(result, systems=systems), graph, torch.zeros(NUM_QUERIES, 1, dtype=torch.int64))


@pytest.fixture(scope="session")
def result() -> EvaluationResult:
    """Seven systems on two data sets, one of whose queries is hostile, and can be looked at."""
    texts = [HOSTILE] + [f"a longer question, the one of number {i}, about something" for i in range(1, NUM_QUERIES)]
    datasets = {"attack": make_dataset("attack", seed=1, texts=texts), "scifact": make_dataset("scifact", seed=50)}
    datasets["attack"] = replace(datasets["attack"], browser=make_browser(datasets["attack"]))
    across = [
        Replication(key, "gatv2", "PR@10", tuple(datasets), 0.05, 2, tuple(datasets), 0.1, 0.001)
        for key in list(SKILL)[:-1]
    ]
    settings = {"permutations": 10_000, "level": 0.05, "seed": 0, "ties": "own"}
    return EvaluationResult(
        "python evaluate.py 'datasets=[attack,scifact]' checkpoint=base", datasets, across, settings
    )


@pytest.fixture(scope="session")
def dataset(result: EvaluationResult) -> DatasetResult:
    return result.datasets["attack"]


@pytest.fixture(scope="session")
def html(result: EvaluationResult) -> str:
    """The page of a result of two data sets."""
    return result.html()


@pytest.fixture
def prepared() -> PreparedDataset:
    """Two triangles of passages, three queries with two relevant passages each; one of the last is no candidate."""
    edges = torch.tensor([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]])
    graph = CorpusGraph.from_edges(list("abcdef"), [""] * 6, edges).with_embedding(torch.eye(6))
    qrels = Qrels(torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 3, 4, 2, 5]), torch.ones(6))
    dataset = Dataset("toy", graph, ["x", "y", "z"], ["", "", ""], {"val": qrels})
    nodes = torch.tensor([[3, 0, 4, 1], [3, 0, 4, -1], [2, 0, 1, 3]])
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.9, 0.8, 0.7, -torch.inf], [0.9, 0.8, 0.7, 0.6]])
    features = scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1)
    return PreparedDataset(dataset, torch.zeros(3, 6), Ranking(nodes, scores, features), ("base_score",), "fake", "f")
