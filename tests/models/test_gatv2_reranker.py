from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs
from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.core.model_inputs import SCORES
from graphrerank.models.gatv2 import GATv2Layer
from graphrerank.models.gatv2_reranker import FEATURE_MODES, GATv2Reranker, PairHead
from graphrerank.models.score_features import min_max_by_graph
from graphrerank.operators.gcs import GCS
from tests.support.models import randomised

MakeBatch = Callable[..., CandidateGraphs]
every_mode = pytest.mark.parametrize("features", FEATURE_MODES)


def every_variant(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in every mode, with and without message passing and edge features."""
    for variants in (
        pytest.mark.parametrize("edge_features", [True, False]),
        pytest.mark.parametrize("message_passing", [True, False]),
        every_mode,
    ):
        test = variants(test)
    return test


def reranker(features: str = "scores", *, trained: bool = True, **arguments: object) -> GATv2Reranker:
    settings = {"embedding_dim": 8, "projection_channels": 4, "hidden_channels": 16, "num_layers": 2} | arguments
    model = GATv2Reranker(features=features, **settings)  # type: ignore[arg-type]
    return randomised(model) if trained else model.eval()  # type: ignore[no-any-return]


def score(model: nn.Module, graphs: CandidateGraphs) -> Tensor:
    scores: Tensor = model(*graphs.model_inputs(model.inputs))
    return scores


def single(graphs: CandidateGraphs, number: int) -> CandidateGraphs:
    start, stop = int(graphs.ptr[number]), int(graphs.ptr[number + 1])
    inside = (graphs.edge_index[1] >= start) & (graphs.edge_index[1] < stop)
    return CandidateGraphs(
        x=graphs.x[start:stop],
        edge_index=graphs.edge_index[:, inside] - start,
        edge_attr=graphs.edge_attr[inside],
        ptr=torch.tensor([0, stop - start]),
        inputs={
            "query_vectors": graphs.inputs["query_vectors"][number : number + 1],
            "node_vectors": graphs.inputs["node_vectors"][start:stop],
        },
    )


def test_scores_mode_ignores_scale_and_shift_of_each_query_and_column(random_batch: MakeBatch) -> None:
    model, graphs = reranker("scores"), random_batch()
    graph = graph_of_nodes(graphs.ptr, graphs.num_nodes)
    generator = torch.Generator().manual_seed(2)
    scale = torch.rand(2, 3, generator=generator) * 10 + 0.5
    shift = torch.randn(2, 3, generator=generator) * 3
    moved = replace(graphs, x=graphs.x * scale[graph] + shift[graph])
    torch.testing.assert_close(score(model, moved), score(model, graphs), atol=1e-4, rtol=1e-4)


@every_mode
def test_all_modes_but_scores_read_vectors(features: str, random_batch: MakeBatch) -> None:
    model, graphs = reranker(features), random_batch()
    for name, vectors in graphs.inputs.items():
        changed = replace(graphs, inputs={**graphs.inputs, name: -vectors})
        assert torch.equal(score(model, changed), score(model, graphs)) == (features == "scores")


@pytest.mark.parametrize("features", ["scores", "full"])
@pytest.mark.parametrize("training", [True, False])
def test_training_begins_at_gcs(features: str, training: bool, random_batch: MakeBatch) -> None:
    model, graphs = reranker(features, trained=False, restart_prob=0.3, dropout=0.5), random_batch()
    scaled = replace(graphs, x=min_max_by_graph(graphs.x, graph_of_nodes(graphs.ptr, graphs.num_nodes), 2))
    torch.testing.assert_close(score(model.train(training), graphs), GCS(restart_prob=0.3).score(scaled))


def test_paper_mode_has_five_attention_and_two_fully_connected_layers(random_batch: MakeBatch) -> None:
    model = reranker("paper", num_layers=5)
    assert sum(isinstance(module, GATv2Layer) for module in model.modules()) == 5
    assert [model.lin_hidden.out_features, model.lin_out.out_features] == [16, 1]
    assert model.lin_in.in_features == 1 + 2 * 8  # GCS, query vector, node vector
    assert model.gcs_weight is None
    graphs = random_batch()
    nn.init.zeros_(model.lin_out.weight)
    assert (score(model, graphs) == model.lin_out.bias).all()  # no residual: the paper's output is the last layer's


def fix_score_features(model: GATv2Reranker, graphs: CandidateGraphs) -> None:
    """Keep the score features from changing with the edges."""
    x, _, _, edge_index, edge_weight, ptr = graphs.model_inputs(SCORES)
    features = model.score_features(x, edge_index, edge_weight, ptr, graphs.edge_type)
    model.score_features.forward = lambda *_: features  # type: ignore[method-assign]


@every_variant
def test_only_message_passing_reads_edges_beyond_the_score_features(
    edge_features: bool, message_passing: bool, features: str, random_batch: MakeBatch
) -> None:
    settings = {"message_passing": message_passing, "edge_features": edge_features, "num_layers": 3}
    model, graphs = reranker(features, **settings), random_batch()
    with_edges = score(model, graphs)
    bare = graphs.select_edges(torch.arange(0))
    assert not torch.allclose(score(model, bare), with_edges)  # GCS at least
    fix_score_features(model, graphs)
    assert torch.equal(score(model, graphs), with_edges)
    assert torch.equal(score(model, bare), with_edges) == (not message_passing)
    changed = replace(graphs, edge_attr=graphs.edge_attr.flip(0))
    assert torch.equal(score(model, changed), with_edges) == (not message_passing or not edge_features)


@every_mode
@pytest.mark.parametrize("edge_features", [False, True])
@pytest.mark.parametrize("sizes", [(9, 14), (6, 0, 3), (0, 5), (1, 0), (0,)])
def test_a_batch_equals_single_queries(
    sizes: tuple[int, ...], edge_features: bool, features: str, random_batch: MakeBatch
) -> None:
    graphs, model = random_batch(sizes=sizes), reranker(features, edge_features=edge_features)
    expected = [score(model, single(graphs, i)) for i, size in enumerate(sizes) if size]
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(score(model, graphs), torch.cat([torch.zeros(0), *expected]))


def test_scores_mode_keeps_the_order_of_a_list_that_says_nothing_else(random_batch: MakeBatch) -> None:
    graphs = random_batch(sizes=(9, 14, 12), edges_per_node=0)
    x = torch.cat([graphs.x[:, :1], torch.full((35, 2), 0.7)], dim=1)
    x[23:, 1] = graphs.x[23:, 1]  # the third query has a second score
    edge_index, edge_attr = torch.tensor([[10, 11], [11, 10]]), torch.ones(2)  # the second has an edge
    found = score(reranker(), replace(graphs, x=x, edge_index=edge_index, edge_attr=edge_attr))
    for query, kept in enumerate([True, False, False]):
        inside = slice(*graphs.ptr[query : query + 2].tolist())
        assert torch.equal(found[inside].argsort(), x[inside, 0].argsort()) == kept


@every_variant
def test_gradient_reaches_every_parameter(
    edge_features: bool, message_passing: bool, features: str, random_batch: MakeBatch
) -> None:
    model = reranker(features, edge_features=edge_features, message_passing=message_passing, dropout=0.0)
    (score(model.train(), random_batch(sizes=(30, 40))) ** 2).sum().backward()
    without = [
        n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all() or not p.grad.any()
    ]
    assert without == []


def typed(graphs: CandidateGraphs, seed: int = 0) -> CandidateGraphs:
    """Give each edge a type, and every third one another type as well."""
    generator = torch.Generator().manual_seed(seed)
    both = torch.cat([torch.arange(graphs.edge_index.shape[1]), torch.arange(0, graphs.edge_index.shape[1], 3)])
    first = torch.randint(0, 3, (graphs.edge_index.shape[1],), generator=generator)
    second = torch.randint(3, 5, (len(both) - len(first),), generator=generator)
    return replace(graphs.select_edges(both), edge_type=torch.cat([first, second]))


@every_mode
@pytest.mark.parametrize("message_passing", [True, False])
def test_types_are_read_by_attention_and_by_features(
    message_passing: bool, features: str, random_batch: MakeBatch
) -> None:
    model, graphs = reranker(features, message_passing=message_passing, num_edge_types=5), typed(random_batch())
    assert graphs.edge_type is not None
    turned = replace(graphs, edge_type=(graphs.edge_type + 1) % 5)
    reads_nothing = features == "paper" and not message_passing
    assert torch.equal(score(model, turned), score(model, graphs)) == reads_nothing
    columns = model.score_features.num_columns
    if features == "scores":  # by attention alone
        with torch.no_grad():
            model.lin_in.weight[:, reranker().score_features.num_columns : columns] = 0
        assert torch.equal(score(model, turned), score(model, graphs)) == (not message_passing)


def with_words(graphs: CandidateGraphs) -> CandidateGraphs:
    """Add to each candidate four words that it holds or not."""
    words = torch.rand(graphs.num_nodes, 4, generator=torch.Generator().manual_seed(3))
    return replace(typed(graphs), x=torch.cat([graphs.x, words * (words > 0.5)], dim=1))


WORDS = {"num_scores": 7, "num_words": 4, "num_edge_types": 5, "pair_head": True}


variants = pytest.mark.parametrize(
    ("prepare", "arguments"),
    [
        (lambda graphs: graphs, {}),
        (lambda graphs: graphs, {"edge_features": True, "message_passing": False}),
        (typed, {"edge_features": True, "num_edge_types": 5}),
        (with_words, WORDS),
        (with_words, WORDS | {"pair_evidence": False}),
    ],
    ids=["plain", "mlp", "types", "words", "words without pairs"],
)


@every_mode
@variants
def test_relabelling_nodes_and_edges_permutes_scores(
    prepare: MakeBatch, arguments: dict[str, object], features: str, random_batch: MakeBatch
) -> None:
    model, graphs = reranker(features, **arguments), prepare(random_batch(sizes=(15,)))
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    of_edges = torch.randperm(graphs.edge_index.shape[1], generator=torch.Generator().manual_seed(2))
    moved = replace(
        graphs.select_edges(of_edges),
        x=graphs.x[order],
        edge_index=torch.argsort(order)[graphs.edge_index[:, of_edges]],
        inputs={**graphs.inputs, "node_vectors": graphs.inputs["node_vectors"][order]},
    )
    expected = score(model, graphs)
    assert expected.unique().numel() == 15
    torch.testing.assert_close(score(model, moved), expected[order], rtol=1e-4, atol=1e-4)


@every_mode
@variants
def test_scripted_equals_eager(
    prepare: MakeBatch, arguments: dict[str, object], features: str, random_batch: MakeBatch
) -> None:
    model = reranker(features, **arguments)
    scripted = torch.jit.script(model)
    for sizes in ((9, 14), (1,), (30, 0, 7), (0,), (100,)):
        graphs = prepare(random_batch(sizes=sizes))
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                assert torch.equal(scripted(*graphs.model_inputs(model.inputs)), score(model, graphs))


def test_the_pair_head_begins_with_zero(random_batch: MakeBatch) -> None:
    graphs = with_words(random_batch())
    model = reranker(trained=False, **WORDS)
    assert not model.score_parts(*graphs.model_inputs(model.inputs))[1].any()
    model.train()
    (score(model, graphs) ** 2).sum().backward()
    assert model.pair_head.lin_out.weight.grad.any()


def test_without_pair_evidence_only_features_read_words(random_batch: MakeBatch) -> None:
    graphs = with_words(random_batch())
    model, full = reranker(**(WORDS | {"pair_evidence": False})), reranker(**WORDS)
    read = graphs.x, graphs.edge_index, graphs.edge_attr, graphs.ptr, graphs.edge_type
    names, names_of_full = (each.feature_names(["base", "bm25", "dense", *"abcd"]) for each in (model, full))
    assert "covered_with_neighbours" in names
    assert not [name for name in names if "beyond" in name]
    places = [names_of_full.index(name) for name in names]
    assert torch.equal(model.score_features(*read), full.score_features(*read)[:, places])
    fix_score_features(model, graphs)
    less = replace(graphs, x=torch.cat([graphs.x[:, :3], graphs.x[:, 3:] / 2], dim=1))
    assert torch.equal(score(model, less), score(model, graphs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": "both"}, "`features` must be one of .*'scores', 'paper', 'full'.*, got 'both'"),
        ({"hidden_channels": 30}, r"`hidden_channels` must be a multiple of `heads` \(4\), got 30"),
        ({"dropout": -0.1}, r"`dropout` must lie in \[0, 1\], got -0.1"),
        ({"heads": -4}, "`heads` must be a positive integer, got -4"),
        ({"restart_prob": 0.0}, "`restart_prob` must lie in"),
        ({"num_words": 3}, r"`num_words` must be at least 0 and below `num_scores` = 3, got 3"),
        ({"num_edge_types": 3}, "`num_edge_types` must be 0 or 5, got 3"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GATv2Reranker(**arguments)  # type: ignore[arg-type]


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
