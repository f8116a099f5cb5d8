"""Parity check: every format of a model must reproduce the scores, ranking and probabilities of the eager model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from graphrerank.artifacts.formats import CALIBRATION_MODULE, Runner
from graphrerank.calibration.logistic import Calibration
from graphrerank.core import CandidateGraphs
from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.features.text_match import WORD_FEATURES
from graphrerank.models.manifest import Manifest, RerankerManifest
from graphrerank.utils.checks import UserError

TOLERANCE = 1e-5  # maximum absolute difference of a score or a probability
# Candidates whose scores differ by less may swap ranks. Relative to the largest absolute score, but at least to 1.
TIE_TOLERANCE = 2e-6
NUM_BATCHES = 500
# Number of batches that are scored twice, because TorchScript profiles the first call and optimises at the second.
REPEATED = 8
# (number of nodes, number of edges): no edge, one node, self-loops and parallel edges, large graphs
_ALONE = ((1, 0), (1, 1), (1, 2000), (200, 0), (200, 1), (200, 2000), (1000, 2000))
HARD_CASES = {f"nodes={nodes}, edges={edges}": ([nodes], edges) for nodes, edges in _ALONE}
HARD_CASES["packed batch"] = ([1, 7, 200, 0, 3], 2000)
MAX_GRAPHS = 4  # largest number of graphs in a random batch
MAX_NODES = 40  # largest number of nodes of each graph
MAX_EDGES = 3  # largest number of edges per node
HELD_WORDS = 0.3  # probability that a node contains a query word


@dataclass(frozen=True)
class ParityBatch:
    """Input of one call of a model.

    Attributes:
        name: Name of the batch, for error messages.
        inputs: Arguments of ``forward``.
        order: Function that ranks scores ``[N]`` and returns indices ``[B, K]``, padded with -1.
    """

    name: str
    inputs: tuple[Tensor, ...]
    order: Callable[[Tensor], Tensor]


def parity_batches(manifest: Manifest, num_batches: int) -> Iterator[ParityBatch]:
    """Yield named test batches, the hard cases first, followed by random batches.

    Args:
        manifest: Manifest of the model, which determines the inputs.
        num_batches: Number of batches.
    """
    generator = torch.Generator().manual_seed(0)

    def below(limit: int, count: int = 1) -> list[int]:
        return torch.randint(limit, (count,), generator=generator).tolist()

    for name, (sizes, num_edges) in islice(HARD_CASES.items(), num_batches):
        yield _batch(name, manifest, sizes, num_edges, generator)
    for index in range(1, num_batches - len(HARD_CASES) + 1):
        sizes = [1000 if index % 50 == 0 else 1 + below(MAX_NODES - 1)[0], *below(MAX_NODES, below(MAX_GRAPHS)[0])]
        num_edges = 0 if index % 10 == 1 else below(MAX_EDGES * sum(sizes) + 1)[0]
        yield _batch(f"random batch {index}", manifest, sizes, num_edges, generator)


def example_batch(manifest: Manifest, sizes: Sequence[int] = (6, 9, 4), num_edges: int = 41) -> ParityBatch:
    """Return a random batch with which to trace or time a model.

    Args:
        manifest: Manifest of the model, which determines the inputs.
        sizes: Number of nodes of each query's graph. With the default, no dynamic size is 0, 1, or equal to another
            one.
        num_edges: Number of edges over all queries.
    """
    return _batch("example", manifest, sizes, num_edges, torch.Generator().manual_seed(0))


def _batch(
    name: str, manifest: Manifest, sizes: Sequence[int], num_edges: int, generator: torch.Generator
) -> ParityBatch:
    """Return a batch of graphs, or of query features (one query per node) for a model without candidate graphs."""
    if isinstance(manifest, RerankerManifest):
        graphs = random_graphs(manifest, sizes, num_edges, generator)
        return ParityBatch(name, graphs.model_inputs(manifest.inputs), graphs.order)
    (shape,) = manifest.input_shapes.values()
    features = 5 * torch.randn(sum(sizes), int(shape.strip("[]").split(", ")[1]), generator=generator)
    features[len(features) // 2] *= 1e6
    return ParityBatch(
        name, (features,), lambda scores: torch.argsort(scores, descending=True, stable=True).unsqueeze(0)
    )


def random_graphs(
    manifest: Manifest, sizes: Sequence[int], num_edges: int, generator: torch.Generator
) -> CandidateGraphs:
    """Return a random batch of graphs with unsorted edges, including self-loops and parallel edges.

    Scores are rounded so that there are ties. The columns of single query words are shares of the query's total weight,
    which models add up.

    Args:
        manifest: Manifest of a reranker, which determines the features and vectors.
        sizes: Number of nodes of each graph.
        num_edges: Number of edges over all graphs.
        generator: Source of randomness.
    """
    num_nodes = sum(sizes)
    assert isinstance(manifest, RerankerManifest)
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    target = torch.randint(max(1, num_nodes), (num_edges,), generator=generator)
    graph = torch.searchsorted(ptr, target, right=True) - 1
    share = torch.rand(num_edges, generator=generator)  # relative position of the source in the target's graph
    source = ptr[graph] + (share * (ptr[graph + 1] - ptr[graph])).long()
    inputs = {}
    if manifest.inputs.reads_pairs and manifest.pair_encoder is not None:
        inputs["pair_vectors"] = torch.randn(num_nodes, manifest.pair_encoder.dim, generator=generator)
        others = torch.randint(9, (num_nodes,), generator=generator)  # neighbours outside the candidates
        inputs["degree"] = torch.bincount(target, minlength=num_nodes) + others
    x = (torch.randn(num_nodes, len(manifest.retriever.feature_names), generator=generator) * 20).round() / 20
    is_word = torch.tensor([name in WORD_FEATURES for name in manifest.retriever.feature_names])
    if num_words := int(is_word.sum()):
        share = torch.rand(len(sizes), num_words, generator=generator)
        held = torch.rand(num_nodes, num_words, generator=generator) < HELD_WORDS
        x[:, is_word] = (share / share.sum(1, keepdim=True))[graph_of_nodes(ptr, num_nodes)] * held
    edge_weight = torch.rand(num_edges, generator=generator) + 0.1
    if dim := manifest.embedding_dim:
        for name, rows in (("query_vectors", len(sizes)), ("node_vectors", num_nodes)):
            inputs[name] = nn.functional.normalize(torch.randn(rows, dim, generator=generator), dim=1)
    typed, edge_index = manifest.inputs.reads_edge_types, torch.stack([source, target])
    edge_type = torch.randint(len(EDGE_TYPES), (num_edges,), generator=generator) if typed else None
    return CandidateGraphs(x, edge_index, edge_weight, ptr, inputs=inputs, edge_type=edge_type)


def parity_differences(
    eager: nn.Module,
    others: Mapping[str, Callable[..., Tensor]],
    batches: Iterable[ParityBatch],
    *,
    calibration: Calibration | None = None,
    tolerance: float = TOLERANCE,
) -> dict[str, float]:
    """Compare exported forms of a model with the eager model and return the largest score difference of each.

    Rankings are equal if every candidate precedes all candidates whose eager score is lower by more than rounding. If
    there is a calibration, probabilities are compared too, for each :class:`~graphrerank.artifacts.formats.Runner` and
    each module with a submodule ``calibration``.

    Args:
        eager: Reference model in evaluation mode.
        others: Models to compare, keyed by their names in error messages.
        batches: Batches to score.
        calibration: Calibration of the model, or None for no comparison of probabilities.
        tolerance: Largest allowed absolute difference of a score or a probability.

    Returns:
        Largest absolute score difference of each model over all batches.

    Raises:
        ValueError: If a model fails, returns a score that is not finite, or differs from the eager model in shape, in
            ranking, or by more than ``tolerance``. The message names the model and the batch.
    """
    named, largest = list(batches), dict.fromkeys(others, 0.0)
    with torch.inference_mode():
        expected_scores = [eager(*batch.inputs) for batch in named]
        for name, other in others.items():
            for index, (batch, expected) in enumerate(zip(named, expected_scores, strict=True)):
                try:
                    for _ in range(2 if index < REPEATED else 1):
                        scores = other(*batch.inputs)
                        largest[name] = max(largest[name], _difference(batch, scores, expected, tolerance))
                    if calibration is not None:
                        _check_probabilities(other, batch, scores, calibration, tolerance)
                except Exception as error:  # runtimes have no common error class
                    raise UserError(f"{name} fails on batch {batch.name!r}: {error}") from error
    return largest


def _difference(batch: ParityBatch, scores: Tensor, expected: Tensor, tolerance: float) -> float:
    """Return the largest score difference, and raise an error if it is too large or the ranking differs."""
    if scores.shape != expected.shape:
        raise UserError(f"scores must have the shape {list(expected.shape)}, got {list(scores.shape)}")
    difference = (scores - expected).abs().max().item()
    if not difference <= tolerance:  # or NaN
        raise UserError(f"scores must be within {tolerance} of the eager model's scores, but differ by {difference}")
    order = batch.order(scores)
    ordered = expected[order.clamp(min=0)].masked_fill(order < 0, -torch.inf)
    rise = (ordered - ordered.cummin(1).values).nan_to_num(nan=0.0)  # NaN in the padding
    rounding = TIE_TOLERANCE * max(1.0, expected.abs().max().item())
    if rise.numel() and (late := rise.max().item()) > rounding:
        raise UserError(
            f"candidates whose eager scores differ by more than {rounding:.1e} must keep their order, but one is "
            f"ranked below a candidate whose eager score is {late:.1e} lower"
        )
    return difference


def _check_probabilities(
    other: Callable[..., Tensor], batch: ParityBatch, scores: Tensor, calibration: Calibration, tolerance: float
) -> None:
    if isinstance(other, Runner):
        scores, probabilities = other.outputs(*batch.inputs)
    elif isinstance(other, nn.Module) and CALIBRATION_MODULE in (children := dict(other.named_children())):
        probabilities = children[CALIBRATION_MODULE](scores)  # scripted modules have no `get_submodule`
    else:
        return
    difference = (probabilities - calibration.probabilities(scores)).abs().max().item()
    if not difference <= tolerance:
        raise UserError(f"probabilities must be within {tolerance} of the calibration's, but differ by {difference}")
