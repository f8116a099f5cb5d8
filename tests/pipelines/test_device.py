"""A pipeline's state is where its graph is, and moves with it.

Without a GPU a device is made up: tensors that say they are on it, compute on the CPU, and refuse to meet a tensor that
is not. What would fail on a GPU for a tensor left behind fails here.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from graphrerank.graphs import CorpusGraph, EntityIncidence, Queries
from graphrerank.inference.checkpoint_scorer import CheckpointScorer
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import ExpandRetriever, HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import (
    AlternateFrontier,
    GRanker,
    GraphRerank,
    PageRank,
    Rerank,
    STeX,
    UntilBudget,
    VectorSearch,
)
from graphrerank_papers.g_retriever import SteinerTree

MADE_UP = torch.device("meta")  # torch guards its own devices alone; no pipeline uses this one
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Moved(Tensor):
    """A tensor on the made-up device, around one on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Moved":
        made: Moved = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=MADE_UP
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def tolist(self) -> list[Any]:
        """Copy to the CPU, as from any device."""
        return self.inner.tolist()


def run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    given = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]
    moved = [leaf for leaf in given if isinstance(leaf, Moved)]
    wanted = kwargs.get("device")
    if moved and func not in MOVES:
        behind = [tuple(leaf.shape) for leaf in given if not isinstance(leaf, Moved) and leaf.dim()]
        assert not behind, f"{func}: tensors of shapes {behind} are not on the device"
    at_home = {**kwargs, **({"device": torch.device("cpu")} if wanted is not None else {})}
    inner_args, inner_kwargs = tree_map(lambda leaf: leaf.inner if isinstance(leaf, Moved) else leaf, (args, at_home))
    result = func(*inner_args, **inner_kwargs)
    if func._schema.is_mutable and given and result is next(iter(tree_leaves(inner_args))):
        return args[0]  # changed in place
    on_device = bool(moved) if wanted is None else torch.device(wanted) == MADE_UP
    if func is torch.ops.aten.copy_.default:
        return args[0]
    return tree_map(lambda leaf: Moved(leaf) if on_device and isinstance(leaf, Tensor) else leaf, result)


class MadeUpDevice(TorchDispatchMode):
    """Makes tensors on the device where it is asked for them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@pytest.fixture
def device() -> Iterator[torch.device]:
    with MadeUpDevice():
        yield MADE_UP


class Texts:
    fingerprint = "texts"

    def encode(self, texts: Sequence[str]) -> Tensor:
        raise AssertionError(texts)


class Pairs:
    """A pair encoder whose vectors come from the CPU, as all do, and whose head works where the vectors are."""

    hidden_size, fingerprint = 3, "pairs"

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        pairs = zip(query_texts, passages, strict=True)
        return torch.tensor([[len(a + b), 7 * len(a) % 5, sum(map(ord, b)) % 11] for a, b in pairs]).float()

    def head(self, vectors: Tensor) -> Tensor:
        return torch.tanh(vectors / 9).sum(-1)


def search(top_k: int | None = None, **settings: Any) -> Any:
    return partial(VectorSearch, top_k=top_k, **settings)


LOOP = [partial(STeX, batch=4), partial(GRanker, smoothing=0.3)]
BASE = partial(GraphRerank, scorer=partial(CheckpointScorer, checkpoint="base", device="cpu"))
EXPAND = {"base_k": 9, "num_seeds": 5}
SYSTEMS: dict[str, list[Any]] = {
    "vector_search": [search()],
    "bm25": [search(retriever=partial(BM25Retriever))],
    "re2": [search(), Rerank],
    "gar": [search(4), Rerank, partial(UntilBudget, steps=[partial(AlternateFrontier, batch=4), Rerank])],
    "fastinsight": [search(4), LOOP[1], partial(UntilBudget, steps=LOOP)],
    "g_retriever": [search(5), SteinerTree],
    "hipporag2_ppr": [search(6), PageRank],
    "grapher": [search(retriever=partial(HybridRetriever)), BASE],
    "expand_then_rerank": [search(retriever=partial(HybridExpandRetriever, **EXPAND)), BASE],
    "bm25_expand": [search(retriever=partial(ExpandRetriever, base=partial(BM25Retriever), **EXPAND)), BASE],
}


def corpus(*, entities: bool) -> CorpusGraph:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 36, (50, 2), generator=generator)
    texts = [f"fox{i % 7} dog{i % 5} stone{i}" for i in range(40)]
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(40)], texts, edges[edges[:, 0] != edges[:, 1]])
    graph = graph.with_embedding(torch.nn.functional.normalize(torch.randn(40, 6, generator=generator), dim=1))
    if not entities:
        return graph
    return graph.with_entities(EntityIncidence.from_names([[f"e{i % 7}", f"f{i % 11}"] for i in range(40)]))


def queries() -> Queries:
    vectors = torch.nn.functional.normalize(torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), dim=1)
    return Queries(list("abcde"), ["fox1", "dog2 stone7", "zebra", "", "fox3 dog3"], vectors)


def retrieve(name: str, graph: CorpusGraph) -> Any:
    if name == "g_retriever":
        pytest.importorskip("pcst_fast", reason="pcst_fast is optional")
    pipeline = Pipeline(
        graph, steps=SYSTEMS[name], budget=15, pair_encoder=Pairs(), text_encoder=Texts(), batch_queries=3
    )
    with torch.no_grad():  # made-up tensors have no views in inference mode
        return Pipeline.retrieve.__wrapped__(pipeline, queries())  # type: ignore[attr-defined]


def same(one: Any, other: Any) -> None:
    assert torch.equal(one.ranking.nodes, other.ranking.nodes)
    torch.testing.assert_close(one.ranking.scores, other.ranking.scores)
    assert torch.equal(one.num_encodings, other.num_encodings)
    assert not isinstance(other.ranking.nodes, Moved)  # what is found comes back to the CPU


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "hipporag2_ppr"])
def test_all_is_on_the_graphs_device(name: str, device: torch.device) -> None:
    graph = corpus(entities=name not in ("g_retriever", "vector_search"))
    same(retrieve(name, graph), retrieve(name, graph.to(device)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", SYSTEMS)
def test_on_a_gpu_as_on_the_cpu(name: str) -> None:
    graph = corpus(entities=name not in ("g_retriever", "vector_search"))
    same(retrieve(name, graph), retrieve(name, graph.to("cuda")))


def test_a_graph_moves_with_all_it_holds(device: torch.device) -> None:
    graph = corpus(entities=True).to(device)
    held = [graph.indptr, graph.indices, graph.weight, graph.embedding, graph.num_neighbours]
    held += [graph.entities.indptr, graph.entities.indices, graph.entities.sizes, graph.entities.num_partners]
    assert all(isinstance(tensor, Moved) for tensor in held)
    assert {tensor.device for tensor in held} == {graph.device} == {MADE_UP}
    back = graph.to("cpu")
    assert torch.equal(back.indices, corpus(entities=True).indices)
    assert back.device == torch.device("cpu")
