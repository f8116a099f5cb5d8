"""Our GATv2 reranker with PyTorch Geometric's own GATv2Conv as oracle; other convolutions, scripted too."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is optional")

from graphrerank.models.gatv2 import GATv2Layer
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.pyg_reranker import PyGReranker
from graphrerank.models.registry import find_model
from tests.support.models import randomised

SMALL = {"hidden_channels": 16, "num_layers": 2, "num_scores": 3}


def scores(model, graphs):
    return model(*graphs.model_inputs(model.inputs))


def test_with_gatv2conv_it_is_our_gatv2_reranker(random_batch):
    graphs = random_batch()
    ours = randomised(GATv2Reranker(**SMALL))
    theirs = PyGReranker(conv="torch_geometric.nn.GATv2Conv", **SMALL).eval()
    names = {"lin_source": "lin_l", "lin_target": "lin_r", "attention": "att", "bias": "bias"}
    state = {name: value for name, value in ours.state_dict().items() if ".layer." not in name}
    for number, block in enumerate(ours.blocks):
        for name, value in block.layer.state_dict().items():
            first, *rest = name.split(".")
            state[".".join([f"blocks.{number}.layer.conv", names[first], *rest])] = value
    theirs.load_state_dict(state)
    assert isinstance(ours.blocks[0].layer, GATv2Layer)
    torch.testing.assert_close(scores(theirs, graphs), scores(ours, graphs))


@pytest.mark.parametrize(
    ("conv", "arguments"),
    [
        ("TransformerConv", {"heads": 2}),
        ("GINConv", {}),
        ("GINEConv", {}),
        ("SAGEConv", {"aggr": "max"}),
        ("GCNConv", {}),
    ],
)
def test_convolutions_read_edges_learn_and_script(conv, arguments, random_batch):
    graphs = random_batch()
    model = randomised(PyGReranker(conv=conv, conv_arguments=arguments, edge_features=True, **SMALL))
    found = scores(model, graphs)
    assert not torch.allclose(found, scores(model, graphs.select_edges(torch.arange(3))))
    found.pow(2).sum().backward()
    assert all(parameter.grad is not None for parameter in model.blocks.parameters())
    inputs = graphs.model_inputs(model.inputs)
    torch.testing.assert_close(torch.jit.script(model)(*inputs, None), found)
    layer = model.blocks[0].layer
    heavier = [*inputs[:4], inputs[4] * 7, *inputs[5:]]
    reads = layer.reads_attr or layer.reads_weight
    with torch.no_grad():
        moved = layer(torch.ones(graphs.num_nodes, 16), inputs[3], heavier[4].unsqueeze(1), inputs[5])
        plain = layer(torch.ones(graphs.num_nodes, 16), inputs[3], inputs[4].unsqueeze(1), inputs[5])
    assert reads == (not torch.allclose(moved, plain))


def test_without_message_passing_it_is_the_mlp():
    model = PyGReranker(conv="GINConv", message_passing=False, **SMALL)
    assert model.state_dict().keys() == GATv2Reranker(message_passing=False, **SMALL).state_dict().keys()
    assert find_model("pyg_reranker") is PyGReranker


@pytest.mark.parametrize("name", ["os.system", "torch_geometric.nn.Linear", "MessagePassing", "Nothing", 3])
def test_only_convolutions_can_be_named(name):
    with pytest.raises(ValueError, match=r"`conv` must be a convolution of torch_geometric.nn"):
        PyGReranker(conv=name, **SMALL)


def test_what_does_not_suit_is_named(random_batch):
    with pytest.raises(ValueError, match=r"`conv_arguments` do not suit ChebConv.*'K'"):
        PyGReranker(conv="ChebConv", **SMALL)
    model = PyGReranker(conv="GATConv", conv_arguments={"heads": 2, "concat": True, "out_channels": 4}, **SMALL)
    with pytest.raises(ValueError, match=r"`conv` must keep the width \(16\), GATConv gave 8"):
        scores(model, random_batch())
