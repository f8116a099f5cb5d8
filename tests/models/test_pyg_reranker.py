"""Every convolution of PyTorch Geometric: a layer that obeys the laws of a reranker, or a refusal with its reason.

Oracles: our GATv2 reranker with the same weights, and the eager model where a scripted one is compared.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is optional")
from torch import Tensor
from torch_geometric.nn import conv as convolutions

from graphrerank import GraphReranker
from graphrerank.core import CandidateGraphs
from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import write_manifest
from graphrerank.models.pyg_reranker import UNSUITABLE, PyGReranker, convolution_names
from graphrerank.models.registry import find_model
from graphrerank.models.score_features import min_max_by_graph
from graphrerank.operators.gcs import GCS
from graphrerank.utils.checks import UserError
from tests.support.manifests import make_manifest
from tests.support.models import randomised

MakeBatch = Callable[..., CandidateGraphs]
SMALL = {"hidden_channels": 16, "num_layers": 1, "heads": 2, "restart_prob": 0.9, "edge_features": True}
ARGUMENTS: dict[str, dict[str, Any]] = {  # that constructors require
    "APPNP": {"K": 2, "alpha": 0.1},
    "ChebConv": {"K": 2},
    "GMMConv": {"kernel_size": 2},
    "GatedGraphConv": {"num_layers": 2},
    "MixHopConv": {"powers": [0, 1], "out_channels": 8},
    "PDNConv": {"hidden_channels": 8},
    "PNAConv": {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "deg": [3, 9, 4, 2]},
    "SSGConv": {"alpha": 0.1},
}
TYPED = ("FastRGCNConv", "RGATConv", "RGCNConv")  # need types of edges
every_convolution = pytest.mark.parametrize("conv", convolution_names())


def build(conv: str, **settings: Any) -> PyGReranker:
    types = 5 if conv in TYPED else 0
    return PyGReranker(
        conv=conv, **{"conv_arguments": ARGUMENTS.get(conv), "num_edge_types": types, **SMALL, **settings}
    )


@pytest.fixture
def make_graphs(random_batch: MakeBatch) -> MakeBatch:
    """Batches whose edges have one of five types."""

    def make(*args: Any, **settings: Any) -> CandidateGraphs:
        graphs = random_batch(*args, **settings)
        generator = torch.Generator().manual_seed(5)
        return replace(graphs, edge_type=torch.randint(5, (graphs.edge_index.shape[1],), generator=generator))

    return make


def scores(model: Any, graphs: CandidateGraphs) -> Tensor:
    found: Tensor = model(*graphs.model_inputs(model.inputs))
    return found


def test_each_convolution_of_the_package_is_a_layer_or_refused() -> None:
    assert set(convolution_names()) | set(UNSUITABLE) == set(convolutions.__all__)
    assert len(convolution_names()) >= 40


@pytest.mark.parametrize("conv", sorted(UNSUITABLE))
def test_what_cannot_be_a_layer_is_refused_with_the_reason(conv: str) -> None:
    for name in (conv, f"torch_geometric.nn.{conv}"):
        with pytest.raises(UserError, match=rf"^`conv` cannot be {conv}: [^\n]*$"):
            PyGReranker(conv=name)


@every_convolution
def test_relabelling_nodes_permutes_scores(conv: str, make_graphs: MakeBatch) -> None:
    graphs, model = make_graphs(sizes=(15,)), randomised(build(conv), std=0.2)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    of_edges = torch.randperm(graphs.edge_index.shape[1], generator=torch.Generator().manual_seed(2))
    moved = graphs.select_edges(of_edges)
    moved = replace(moved, x=graphs.x[order], edge_index=torch.argsort(order)[moved.edge_index])
    expected = scores(model, graphs)
    assert expected.unique().numel() == 15
    torch.testing.assert_close(scores(model, moved), expected[order], rtol=1e-4, atol=1e-4)


@every_convolution
@pytest.mark.parametrize("sizes", [(9, 14), (1, 6)])
def test_a_batch_equals_single_queries(conv: str, sizes: tuple[int, ...], make_graphs: MakeBatch) -> None:
    graphs, model = make_graphs(sizes=sizes), randomised(build(conv), std=0.2)
    single = []
    for number in range(2):
        of_query = graph_of_nodes(graphs.ptr, graphs.num_nodes) == number
        part = graphs.select_nodes(of_query)
        single.append(scores(model, replace(part, ptr=torch.tensor([0, int(of_query.sum())]))))
    torch.testing.assert_close(scores(model, graphs), torch.cat(single), rtol=1e-4, atol=1e-5)


@every_convolution
def test_without_edges_and_with_one_node_scores_are_finite(conv: str, make_graphs: MakeBatch) -> None:
    model = randomised(build(conv), std=0.2)
    for sizes, edges_per_node in (((6,), 0), ((1,), 0), ((1, 1), 0)):
        graphs = make_graphs(sizes=sizes, edges_per_node=edges_per_node)
        assert graphs.edge_index.shape[1] == 0
        assert scores(model, graphs).isfinite().all()


@every_convolution
def test_training_begins_at_gcs_and_reduces_the_loss(conv: str, make_graphs: MakeBatch) -> None:
    torch.manual_seed(0)
    graphs, model = make_graphs(sizes=(20, 30)), build(conv, dropout=0.0).train()
    scaled = replace(graphs, x=min_max_by_graph(graphs.x, graph_of_nodes(graphs.ptr, graphs.num_nodes), 2))
    torch.testing.assert_close(scores(model, graphs), GCS(restart_prob=0.9).score(scaled))
    relevance = (torch.rand(50, generator=torch.Generator().manual_seed(1)) > 0.8).float()
    target, mask = graphs.to_padded(relevance, fill=0.0), graphs.to_padded(torch.ones(50), fill=0.0) > 0
    losses = []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(12):
        optimizer.zero_grad()
        padded = graphs.to_padded(scores(model, graphs), fill=0.0)
        losses.append(listwise_softmax_cross_entropy(padded, target, mask))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]
    parameters = list(model.blocks[0].layer.parameters())
    assert not parameters or any(p.grad is not None and p.grad.any() for p in parameters)


@every_convolution
def test_it_reads_the_edges_and_their_attributes_where_it_says_so(conv: str, make_graphs: MakeBatch) -> None:
    graphs, model = make_graphs(), randomised(build(conv), std=0.3)
    layer = model.blocks[0].layer
    x = torch.randn(graphs.num_nodes, 16, generator=torch.Generator().manual_seed(0))
    attributes = torch.cat([graphs.edge_attr.unsqueeze(1), torch.nn.functional.one_hot(graphs.edge_type, 5)], dim=1)
    attributes = attributes[:, : 6 if conv in TYPED else 1]
    rowptr = torch.zeros(0, dtype=torch.int64)
    with torch.no_grad():
        found = layer(x, graphs.edge_index, attributes, rowptr)
        bare = layer(x, graphs.edge_index[:, :0], attributes[:0], rowptr)
        moved = layer(x, graphs.edge_index, attributes.roll(1, 0), rowptr)
    assert not torch.allclose(found, bare)
    assert (layer.reads_attr or layer.reads_weight or layer.reads_type) == (not torch.allclose(found, moved))


def test_with_gatv2conv_it_is_our_gatv2_reranker(make_graphs: MakeBatch) -> None:
    graphs, settings = make_graphs(), {**SMALL, "num_layers": 2}
    ours = randomised(GATv2Reranker(**settings))
    theirs = PyGReranker(conv="torch_geometric.nn.GATv2Conv", **settings).eval()
    names = {"lin_source": "lin_l", "lin_target": "lin_r", "lin_edge": "lin_edge", "attention": "att", "bias": "bias"}
    state = {name: value for name, value in ours.state_dict().items() if ".layer." not in name}
    for number, block in enumerate(ours.blocks):
        for name, value in block.layer.state_dict().items():
            first, *rest = name.split(".")
            state[".".join([f"blocks.{number}.layer.conv", names[first], *rest])] = value
    theirs.load_state_dict(state)
    torch.testing.assert_close(scores(theirs, graphs), scores(ours, graphs))


@pytest.mark.parametrize("conv", ["SAGEConv", "GCNConv", "TransformerConv", "RGCNConv"])
def test_scripted_equals_eager(conv: str, make_graphs: MakeBatch) -> None:
    model = randomised(build(conv), std=0.2)
    scripted = torch.jit.script(model)
    for sizes in ((9, 14), (1,), (30, 0, 7)):
        graphs = make_graphs(sizes=sizes)
        torch.testing.assert_close(scripted(*graphs.model_inputs(model.inputs)), scores(model, graphs))


@pytest.mark.parametrize("features", ["paper", "full"])
def test_it_reads_vectors_in_the_other_modes(features: str, make_graphs: MakeBatch) -> None:
    graphs, model = make_graphs(), randomised(build("SAGEConv", features=features, embedding_dim=8))
    turned = replace(graphs, inputs={name: -vectors for name, vectors in graphs.inputs.items()})
    assert not torch.allclose(scores(model, turned), scores(model, graphs))


def test_without_message_passing_it_is_the_mlp() -> None:
    model = PyGReranker(conv="GINConv", message_passing=False, **SMALL)
    assert model.state_dict().keys() == GATv2Reranker(message_passing=False, **SMALL).state_dict().keys()


def test_a_checkpoint_there_and_back(tmp_path: Path, make_graphs: MakeBatch) -> None:
    assert find_model("pyg_reranker") is PyGReranker
    graphs, model = make_graphs(), randomised(build("PNAConv", num_scores=3))
    arguments = {"conv": "PNAConv", "conv_arguments": ARGUMENTS["PNAConv"], "num_scores": 3, **SMALL}
    names = ["base_score", "bm25_score", "dense_score"]
    content = make_manifest(
        "pyg_reranker", arguments, features=model.feature_names(names), pair_encoder=None,
        retriever={"choice": "bm25", "feature_names": names},
    )  # fmt: skip
    write_manifest(tmp_path, content)
    save_weights(tmp_path, model)
    loaded = load_checkpoint(tmp_path)
    assert torch.equal(scores(loaded.model, graphs), scores(model, graphs))
    texts = [f"text {i}" for i in range(9)]
    given = {"scores": graphs.x[:9, 0].tolist(), "edges": [(0, 1), (1, 2)]}
    reranker = GraphReranker.from_pretrained(tmp_path)
    assert sorted(reranker.rerank("a question", texts, **given).indices) == list(range(9))
    assert reranker.rerank("a question", texts, **given).scores.unique().numel() > 1


@pytest.mark.parametrize("name", ["os.system", "torch_geometric.nn.Linear", "Nothing", 3])
def test_only_convolutions_can_be_named(name: Any) -> None:
    with pytest.raises(UserError, match=r"`conv` must be one of \['AGNNConv', .*'TransformerConv'.*\], got"):
        PyGReranker(conv=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conv": "ChebConv", "conv_arguments": None}, r"`conv_arguments` of ChebConv must have K, got \[\]"),
        ({"conv": "SAGEConv", "conv_arguments": {"nothing": 1}}, "`conv_arguments` do not fit SAGEConv: .*nothing"),
        ({"conv": "GCNConv", "conv_arguments": {"cached": True}}, "GCNConv must not set `cached`, because each batch"),
        ({"conv": "TAGConv", "conv_arguments": {"K": 10**6}}, "TAGConv must have K of at most 256, got 1000000"),
        (
            {"conv": "GATConv", "conv_arguments": {"heads": 3}},
            r"`hidden_channels` \(16\) .* multiple of `heads`, got 3",
        ),
        (
            {"conv": "MixHopConv", "conv_arguments": None},
            r"features of the width of its input, 16, but MixHopConv returned 48",
        ),
        ({"conv": "GINEConv", "edge_features": False}, "GINEConv without edge attributes"),
        ({"conv": "RGCNConv", "num_edge_types": 0}, "RGCNConv without edge types"),
    ],
)
def test_what_does_not_suit_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(**settings)
