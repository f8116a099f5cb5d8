import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.config.components import ComponentFactory
from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import Cost, DatasetResult
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.significance import across_datasets
from graphrerank.evaluation.systems import RankedDataset, RankedSystem

HOSTILE = "<script>document.title = 'broken'</script> & \"quoted\" <b onclick='x'>ü</b>"
NUM_NODES, NUM_QUERIES, DEPTH = 30, 60, 12
QUALITY = {"retriever": 0.1, "ppr": 0.2, "gcs": 0.15, "cross_encoder": 0.3, "their.run": 0.25, "mlp": 0.6, "gatv2": 0.6}
MS = {"retriever": 0.2, "ppr": 0.6, "gcs": 0.4, "cross_encoder": 412.0, "mlp": 1.3, "gatv2": 2.2}
PLAN = EvaluationPlan(("PR@10", "nDCG@10", "R@10"), ("PR@10", "nDCG@10"), resamples=2_000)


@pytest.fixture
def components(tmp_path: Path) -> ComponentFactory:
    return ComponentFactory(cache=tmp_path / "cache")


def toy_dataset(seed: int = 0, name: str = "toy") -> Dataset:
    """Thirty passages, one hostile, and edges of two types; two are relevant to each query, to the first ten one."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, NUM_NODES, (60, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]
    texts = [HOSTILE if number == 3 else f"word {'more ' * (number % 3)}" for number in range(NUM_NODES)]
    ids = [f"d{number}" for number in range(NUM_NODES)]
    graph = CorpusGraph.from_edges(ids, texts, edges, edge_type=torch.arange(len(edges)) % 2)
    query = torch.arange(NUM_QUERIES).repeat_interleave(2)
    node = torch.stack([torch.randperm(NUM_NODES, generator=generator)[:2] for _ in range(NUM_QUERIES)]).flatten()
    kept = torch.ones(len(query), dtype=torch.bool)
    kept[1:20:2] = False
    qrels = Qrels(query[kept], node[kept], torch.ones(int(kept.sum())))
    queries = [f"q{number:02}" for number in range(NUM_QUERIES)]
    texts = ["what is " + "so " * (number % 4) + "it" for number in range(NUM_QUERIES)]
    return Dataset(name, graph, queries, texts, {"test": qrels})


def ranked(data: Dataset, name: str, *, quality: float, seed: int, **more: object) -> RankedSystem:
    """Relevant nodes are scored higher by ``quality``; the last query finds nothing."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(NUM_QUERIES, NUM_NODES, generator=generator)
    qrels = data.split("test")
    noise[qrels.query, qrels.node] += quality
    scores, nodes = noise.topk(DEPTH, dim=1)
    nodes[-1], scores[-1] = -1, -math.inf
    return RankedSystem(name, "checkpoint", "runs/x", Ranking(nodes, scores), **more)  # type: ignore[arg-type]


def evaluated(name: str, seed: int) -> DatasetResult:
    """Seven systems; a run file misses more queries."""
    data = toy_dataset(seed, name)
    systems = {}
    for place, (key, quality) in enumerate(QUALITY.items()):
        cost, ms = None, MS.get(key)
        if ms is not None:
            total = {"p50": ms, "p95": 1.5 * ms}
            cost = Cost({"graph": {"p50": 0.1, "p95": 0.2}, "total": total}, peak_memory_mib=812.4)
        systems[key] = ranked(data, key, quality=quality, seed=seed + place, cost=cost)
    run, retriever = systems["their.run"], systems["retriever"].ranking
    nodes, scores = run.ranking.nodes.clone(), run.ranking.scores.clone()
    nodes[3:6], scores[3:6] = -1, -math.inf
    systems["their.run"] = replace(run, kind="run", source=HOSTILE, ranking=Ranking(nodes, scores))
    systems["gatv2"] = replace(
        systems["gatv2"],
        calibration=Calibration(slope=3.0, intercept=-3.0),
        confidence=ListConfidence(beyond=-1.0, within=0.5, intercept=0.0),
        on_other_edges={"shuffled": systems["mlp"].ranking, "removed": retriever},
    )
    candidates = replace(retriever, base_nodes=retriever.nodes[:, :6])
    queries = torch.arange(NUM_QUERIES)
    return measure_systems(RankedDataset(data, "test", queries, list(systems.values()), candidates), PLAN)


@pytest.fixture(scope="session")
def result() -> EvaluationResult:
    """Seven systems on two data sets; the queries of one can be looked at."""
    datasets = {"attack": evaluated("attack", 1), "scifact": evaluated("scifact", 50)}
    across = across_datasets(list(datasets.values()), permutations=2_000)
    settings = {"permutations": 2_000, "level": 0.05, "seed": 0, "ties": "own"}
    return EvaluationResult(
        "graphrerank evaluate 'datasets=[attack,scifact]' checkpoint=base", datasets, across, settings
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
