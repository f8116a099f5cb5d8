"""Time five GATv2 layers: ours against those of PyTorch Geometric.

``python benchmarks/gatv2_layers.py`` gives both stacks the same weights and checks that their outputs are equal to the
last bit. It prints milliseconds per query over batches of 32 candidate graphs without gradients, on one thread.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from interleaved import median_seconds
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from graphrerank.models.gatv2 import GATv2Layer, attention_edges

NUM_GRAPHS, NUM_CANDIDATES = 32, 100
CHANNELS, HEADS, NUM_LAYERS = 64, 4, 5


def candidate_edges(edges_per_node: float, *, hubs: float) -> Tensor:
    """Draw a batch of undirected graphs. If ``hubs`` is above 0, few nodes have most edges and many have none."""
    generator = torch.Generator().manual_seed(0)
    popularity = torch.arange(1.0, NUM_CANDIDATES + 1) ** -hubs
    parts = []
    for graph in range(NUM_GRAPHS):
        wanted = int(edges_per_node * NUM_CANDIDATES / 2)
        pairs = torch.multinomial(popularity.expand(4 * wanted, -1), 2, generator=generator).sort(1).values
        pairs = torch.unique(pairs, dim=0)
        pairs = pairs[torch.randperm(len(pairs), generator=generator)[:wanted]]
        parts.append(torch.cat([pairs, pairs.flip(1)]).T + graph * NUM_CANDIDATES)
    return torch.cat(parts, dim=1)


def equal_stacks() -> tuple[list[GATv2Layer], list[GATv2Conv]]:
    """Build both stacks with the same weights."""
    ours, pyg = [], []
    for _ in range(NUM_LAYERS):
        layer = GATv2Layer(CHANNELS, CHANNELS // HEADS, heads=HEADS).eval()
        conv = GATv2Conv(CHANNELS, CHANNELS // HEADS, heads=HEADS).eval()
        with torch.no_grad():
            conv.lin_l.load_state_dict(layer.lin_source.state_dict())
            conv.lin_r.load_state_dict(layer.lin_target.state_dict())
            conv.att.copy_(layer.attention)
            conv.bias.copy_(layer.bias)
        ours.append(layer)
        pyg.append(conv)
    return ours, pyg


def apply_layers(stack: list[GATv2Layer], x: Tensor, *edges: Tensor) -> Tensor:
    """Apply our layers to prepared edges."""
    for layer in stack:
        x = layer(x, *edges).relu()
    return x


def run_ours(stack: Callable[..., Tensor], x: Tensor, edge_index: Tensor) -> Tensor:
    """Prepare the edges once, then apply the layers."""
    return stack(x, *attention_edges(edge_index, x.new_zeros(edge_index.shape[1], 0), x.shape[0]))


def run_pyg(stack: list[GATv2Conv], x: Tensor, edge_index: Tensor) -> Tensor:
    """Apply PyTorch Geometric's layers."""
    for conv in stack:
        x = conv(x, edge_index).relu()
    return x


def main() -> None:
    """Check both implementations, time them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=60, help="number of timed repetitions (default: %(default)s)")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="also time our stack under torch.compile; needs a C++ compiler and rounds differently",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours, pyg = equal_stacks()
    stacks: dict[str, Callable[..., Tensor]] = {
        "eager": partial(apply_layers, ours),
        "scripted": partial(apply_layers, [torch.jit.script(layer) for layer in ours]),
    }
    if arguments.compile:
        stacks["compiled"] = torch.compile(stacks["eager"], dynamic=True)
    x = torch.randn(NUM_GRAPHS * NUM_CANDIDATES, CHANNELS)
    columns = ["edges per node", "without an edge", "PyG, ms/query", *(f"ours, {name}" for name in stacks), "ratios"]
    print(f"| {' | '.join(columns)} |")
    print(f"| {'--- | ' * (4 + len(stacks))}".rstrip())
    with torch.inference_mode():
        for edges_per_node, hubs in ((1.0, 0.8), (6.0, 0.0)):
            edge_index = candidate_edges(edges_per_node, hubs=hubs)
            expected = run_pyg(pyg, x, edge_index)
            for name, stack in stacks.items():
                found = run_ours(stack, x, edge_index)
                assert (
                    torch.allclose(found, expected, atol=1e-5) if name == "compiled" else torch.equal(found, expected)
                )
            calls = {name: partial(run_ours, stack, x, edge_index) for name, stack in stacks.items()}
            seconds = median_seconds({"pyg": partial(run_pyg, pyg, x, edge_index), **calls}, repeats=arguments.repeats)
            per_query = " | ".join(f"{1000 * s / NUM_GRAPHS:.3f}" for s in seconds.values())
            ratios = ", ".join(f"{seconds['pyg'] / seconds[name]:.2f}x" for name in stacks)
            isolated = 1 - len(edge_index[1].unique()) / len(x)
            print(f"| {edge_index.shape[1] / len(x):.1f} | {isolated:.0%} | {per_query} | {ratios} |")


if __name__ == "__main__":
    main()
