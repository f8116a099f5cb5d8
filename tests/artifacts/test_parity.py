import copy
from itertools import islice

import pytest
import torch

from graphrerank.artifacts.parity import HARD_CASES, ParityBatch, example_batch, parity_batches, parity_differences
from graphrerank.calibration.logistic import Calibration
from graphrerank.core import CandidateGraphs


def as_graphs(batch: ParityBatch) -> CandidateGraphs:
    x, _, _, edge_index, edge_weight, ptr = batch.inputs
    return CandidateGraphs(x, edge_index, edge_weight, ptr)


def test_batches_hold_the_hard_cases(make_checkpoint):
    manifest = make_checkpoint(features="paper").manifest
    batches = {batch.name: batch for batch in parity_batches(manifest, 500)}
    assert len(batches) == 500
    for again in parity_batches(manifest, 20):
        assert all(map(torch.equal, batches[again.name].inputs, again.inputs))
    graphs = {name: as_graphs(batch) for name, batch in batches.items()}
    for graph in graphs.values():
        source, target = graph.edge_index
        owner = torch.bucketize(torch.arange(graph.num_nodes), graph.ptr, right=True)
        assert torch.equal(owner[source], owner[target])  # no edge leaves its graph
    for name in ("nodes=200, edges=2000", "packed batch"):
        source, target = graphs[name].edge_index
        assert (source == target).any()
        assert len(graphs[name].edge_index.unique(dim=1)[0]) < 2000
        assert (target[1:] < target[:-1]).any()  # in no order
    assert len(graphs["nodes=200, edges=0"].x[:, 0].unique()) < 200  # ties
    assert graphs["packed batch"].ptr.diff().tolist() == [1, 7, 200, 0, 3]

    rest = [graph for name, graph in graphs.items() if name not in HARD_CASES]
    sizes = torch.cat([graph.ptr.diff() for graph in rest])
    assert (sizes.min(), sizes.max()) == (0, 1000)
    assert (sizes == 1).any()
    assert len({graph.num_graphs for graph in rest}) > 3
    assert sum(graph.edge_attr.numel() == 0 for graph in rest) > 40
    assert len({graph.edge_attr.numel() for graph in rest}) > 100


def test_the_example_has_sizes_of_its_own(make_checkpoint):
    graph = as_graphs(example_batch(make_checkpoint().manifest))
    sizes = [graph.num_graphs, graph.ptr.numel(), graph.num_nodes, graph.edge_attr.numel()]
    assert min(sizes) > 1
    assert len(set(sizes)) == 4


def test_parity_differences(make_checkpoint):
    checkpoint = make_checkpoint()
    model, batches = checkpoint.model, list(parity_batches(checkpoint.manifest, 9))

    def measure(other, **more):
        return parity_differences(model, {"another": other}, batches, **more)

    assert measure(copy.deepcopy(model)) == {"another": 0.0}
    assert measure(lambda *x: model(*x) + 0.25, tolerance=0.5)["another"] == pytest.approx(0.25, abs=1e-5)
    with pytest.raises(ValueError, match=r"another fails on batch 'nodes=1, edges=0': .* differ by nan"):
        measure(lambda *x: model(*x) * float("nan"))
    with pytest.raises(ValueError, match=r"shape \[1\], got \[1, 1\]"):
        measure(lambda *x: model(*x)[None])
    with pytest.raises(ValueError, match=r"another fails on batch 'nodes=1, edges=0'"):
        measure(lambda *x: x[99])


def test_another_ranking_is_refused_and_rounding_is_not(make_checkpoint):
    manifest = make_checkpoint().manifest
    batches = list(islice(parity_batches(manifest, 8), 4, 5))  # 200 nodes of one graph
    scores = torch.arange(200.0) / 200

    def measure(shift: float):
        swapped = scores.clone()
        swapped[7] += shift  # past its neighbour, 0.005 above
        return parity_differences(lambda *x: scores, {"another": lambda *x: swapped}, batches, tolerance=1.0)

    assert measure(0.0049)["another"] == pytest.approx(0.0049, abs=1e-6)
    with pytest.raises(ValueError, match=r"another fails .* must keep their order.* is 5\.0e-03 lower"):
        measure(0.0051)
    tied = torch.ones(200)
    tied[3] += 1e-6
    parity_differences(lambda *x: torch.ones(200), {"another": lambda *x: tied}, batches)


def test_ranks_are_those_within_a_query(make_checkpoint):
    batches = [next(batch for batch in parity_batches(make_checkpoint().manifest, 8) if batch.name == "packed batch")]
    scores = torch.arange(211.0)
    one, two = 7, 8  # the last of the second query, the first of the third
    moved = scores.clone()
    moved[one], moved[two] = 9.0, 8.0
    found = parity_differences(lambda *x: scores, {"another": lambda *x: moved}, batches, tolerance=9.0)
    assert found == {"another": 2.0}


@pytest.mark.parametrize("scripted", [False, True])
def test_probabilities_are_checked(make_checkpoint, scripted):
    checkpoint = make_checkpoint()
    batches = list(parity_batches(checkpoint.manifest, 2))
    calibration = Calibration(slope=1.5, intercept=-0.5)
    other = copy.deepcopy(checkpoint.model)
    other.add_module("calibration", calibration.module())
    other = torch.jit.script(other) if scripted else other
    parity_differences(checkpoint.model, {"another": other}, batches, calibration=calibration)
    with pytest.raises(ValueError, match=r"another fails .* probabilities must be within"):
        parity_differences(
            checkpoint.model, {"another": other}, batches, calibration=Calibration(slope=1.5, intercept=-0.4)
        )
