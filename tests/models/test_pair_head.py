import pytest
import torch

from graphrerank.models.pair_head import PairHead


@pytest.mark.parametrize("edge_dim", [0, 3])
def test_each_node_gets_its_best_pair(edge_dim: int) -> None:
    torch.manual_seed(0)
    head, num_nodes, num_edges = PairHead(8, edge_dim), 7, 12
    torch.nn.init.normal_(head.lin_out.weight)
    x, edge_index = torch.randn(num_nodes, 8), torch.randint(0, num_nodes - 1, (2, num_edges))
    attr = torch.randn(num_edges, edge_dim)
    with torch.no_grad():
        found = head(x, edge_index, attr)
        for node in range(num_nodes):
            pairs = []
            for source, target, read in zip(*edge_index, attr, strict=True):
                hidden = head.lin_source(x[source]) + head.lin_target(x[target])
                if head.lin_edge is not None:
                    hidden += head.lin_edge(read)
                pairs += [float(head.lin_out(hidden.relu()))] if target == node else []
            assert float(found[node]) == pytest.approx(max(pairs, default=0.0), abs=1e-5)


def test_zero_at_the_start() -> None:
    head = PairHead(4, 1)
    edges = torch.tensor([[0, 1], [1, 0]])
    assert not head(torch.randn(2, 4), edges, torch.randn(2, 1)).any()
