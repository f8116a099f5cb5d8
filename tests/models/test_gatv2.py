import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv

from graphrerank.models.gatv2 import GATv2Block, GATv2Layer, PerNodeLayer, attention_edges

Graph = tuple[Tensor, Tensor, Tensor]  # x, edge_index, edge_attr
IN_CHANNELS, OUT_CHANNELS = 10, 6
GRAPHS = {  # number of nodes, edges; random edges hold self-loops and parallel edges
    "sparse, isolated nodes": (40, 30),
    "dense": (25, 400),
    "self-loops and parallel edges": (4, 60),
    "no edges": (5, 0),
    "one node": (1, 0),
    "one node with self-loops": (1, 3),
    "no nodes": (0, 0),
}
every_graph = pytest.mark.parametrize(("num_nodes", "num_edges"), GRAPHS.values(), ids=GRAPHS.keys())
every_width = pytest.mark.parametrize(("heads", "edge_dim"), [(1, 0), (4, 0), (1, 1), (4, 1), (4, 3)])


def random_graph(
    num_nodes: int, num_edges: int, *, edge_dim: int = 0, channels: int = IN_CHANNELS, seed: int = 0
) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, max(num_nodes, 1), (2, num_edges), generator=generator)
    edge_index[1, : num_edges // 4] = 0  # a hub
    return (
        torch.randn(num_nodes, channels, generator=generator),
        edge_index,
        torch.randn(num_edges, edge_dim, generator=generator),
    )


def layer_and_pyg(
    in_channels: int, out_channels: int, *, heads: int, edge_dim: int = 0
) -> tuple[GATv2Layer, GATv2Conv]:
    torch.manual_seed(heads + 10 * edge_dim)
    layer = GATv2Layer(in_channels, out_channels, heads=heads, edge_dim=edge_dim)
    peer = GATv2Conv(in_channels, out_channels, heads=heads, edge_dim=edge_dim or None)
    with torch.no_grad():
        for bias in (layer.bias, layer.lin_source.bias, layer.lin_target.bias):
            bias.normal_()
        peer.lin_l.load_state_dict(layer.lin_source.state_dict())
        peer.lin_r.load_state_dict(layer.lin_target.state_dict())
        if edge_dim:
            peer.lin_edge.load_state_dict(layer.lin_edge.state_dict())
        peer.att.copy_(layer.attention)
        peer.bias.copy_(layer.bias)
    return layer, peer


def pyg_forward(peer: GATv2Conv, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
    out: Tensor = peer(x, edge_index, edge_attr if edge_attr.shape[1] else None)
    return out


@every_graph
@every_width
def test_against_pyg_gatv2conv_to_the_last_bit(heads: int, edge_dim: int, num_nodes: int, num_edges: int) -> None:
    layer, peer = layer_and_pyg(IN_CHANNELS, OUT_CHANNELS, heads=heads, edge_dim=edge_dim)
    x, edge_index, edge_attr = random_graph(num_nodes, num_edges, edge_dim=edge_dim)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    edges = attention_edges(edge_index, edge_attr, num_nodes)
    found, expected = layer(inputs[0], *edges), pyg_forward(peer, inputs[1], edge_index, edge_attr)
    assert torch.equal(found, expected)
    with torch.no_grad():  # in place
        assert torch.equal(layer(x, *edges), pyg_forward(peer, x, edge_index, edge_attr))
    direction = torch.randn(num_nodes, heads * OUT_CHANNELS)
    (found * direction).sum().backward()
    (expected * direction).sum().backward()
    names = {"lin_l": "lin_source", "lin_r": "lin_target", "lin_edge": "lin_edge", "att": "attention", "bias": "bias"}
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    ours = dict(layer.named_parameters())
    for name, parameter in peer.named_parameters():
        head, _, rest = name.partition(".")
        torch.testing.assert_close(ours.pop(f"{names[head]}.{rest}".rstrip(".")).grad, parameter.grad)
    assert not ours


def test_inputs_are_left_as_they_were() -> None:
    layer, _ = layer_and_pyg(IN_CHANNELS, OUT_CHANNELS, heads=4, edge_dim=1)
    x, edge_index, edge_attr = random_graph(20, 50, edge_dim=1)
    edges = attention_edges(edge_index, edge_attr, 20)
    held = [t.clone() for t in (x, *edges, *layer.parameters())]
    with torch.no_grad():
        layer(x, *edges)
    assert all(torch.equal(now, before) for now, before in zip((x, *edges, *layer.parameters()), held, strict=True))


def test_dropout_drops_attention_in_training_alone() -> None:
    layer = GATv2Layer(IN_CHANNELS, OUT_CHANNELS, dropout=0.5)
    x, edge_index, edge_attr = random_graph(20, 60)
    edges = attention_edges(edge_index, edge_attr, 20)
    assert not torch.equal(layer(x, *edges), layer(x, *edges))
    layer.eval()
    assert torch.equal(layer(x, *edges), layer(x, *edges))


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("message_passing", [True, False])
def test_block_against_its_parts(message_passing: bool, residual: bool) -> None:
    layer = GATv2Layer(12, 4, heads=3) if message_passing else PerNodeLayer(12)
    block = GATv2Block(12, layer, 0.0, residual=residual)
    x, edge_index, edge_attr = random_graph(20, 60, channels=12)
    edges = attention_edges(edge_index, edge_attr, 20)
    normalised = nn.functional.layer_norm(x, (12,))
    expected = (block.layer(normalised, *edges) if message_passing else block.layer.lin(normalised)).relu()
    torch.testing.assert_close(block(x, *edges), x + expected if residual else expected)
