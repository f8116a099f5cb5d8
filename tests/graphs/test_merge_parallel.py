import torch

from graphrerank.graphs.corpus_graph import merge_parallel


def test_against_a_dictionary() -> None:
    generator = torch.Generator().manual_seed(0)
    for num_nodes, num_edges in ((1, 3), (5, 0), (7, 60), (40, 60)):
        edges = torch.randint(num_nodes, (num_edges, 2), generator=generator)
        weight = torch.rand(num_edges, generator=generator) + 0.1
        largest: dict[tuple[int, ...], float] = {}
        for pair, of_pair in zip(map(tuple, edges.tolist()), weight.tolist(), strict=True):
            largest[pair] = max(of_pair, largest.get(pair, 0.0))
        merged, found = merge_parallel(edges, weight, num_nodes)
        assert list(map(tuple, merged.tolist())) == sorted(largest)
        assert found.tolist() == [largest[pair] for pair in sorted(largest)]
