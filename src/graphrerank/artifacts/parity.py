"""The parity gate: every format of a model must have the eager model's scores, ranking and probabilities."""

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
TIE_TOLERANCE = 2e-6  # relative to the largest score, or to 1: closer scores may swap ranks
NUM_BATCHES = 500
REPEATED = 8  # batches that are scored twice: TorchScript profiles a graph's first call and optimises it at the second
# sizes of the graphs, number of edges: no edge, one node, self-loops and parallel edges, large graphs
_ALONE = ((1, 0), (1, 1), (1, 2000), (200, 0), (200, 1), (200, 2000), (1000, 2000))
HARD_CASES = {f"nodes={nodes}, edges={edges}": ([nodes], edges) for nodes, edges in _ALONE}
HARD_CASES["packed batch"] = ([1, 7, 200, 0, 3], 2000)
MAX_GRAPHS = 4  # of a random batch
MAX_NODES = 40  # of its graphs
MAX_EDGES = 3  # per node
HELD_WORDS = 0.3  # share of a query's words that a node holds


@dataclass(frozen=True)
class ParityBatch:
    """Input of a model in one call."""

    name: str  # in messages
    inputs: tuple[Tensor, ...]  # the arguments of `forward`
    order: Callable[[Tensor], Tensor]  # ranks scores `[N]`: `[B, K]` indices, padded with -1


def parity_batches(manifest: Manifest, num_batches: int) -> Iterator[ParityBatch]:
    """Yield a number of named batches; the hard cases come first."""
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
    """Return a batch to trace or time a model, with ``num_edges`` of all queries together.

    Without ``sizes``, no dynamic size is 0, 1 or equal to another.
    """
    return _batch("example", manifest, sizes, num_edges, torch.Generator().manual_seed(0))


def _batch(
    name: str, manifest: Manifest, sizes: Sequence[int], num_edges: int, generator: torch.Generator
) -> ParityBatch:
    """Return a batch of graphs, or for a model that reads features of queries, one query for each graph's node."""
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
    """Return a packed batch of graphs with edges in any order, including self-loops and parallel ones.

    Scores are rounded, so there are ties. Columns of single words are shares of the query's weight, which models sum.
    """
    num_nodes = sum(sizes)
    assert isinstance(manifest, RerankerManifest)
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    target = torch.randint(num_nodes, (num_edges,), generator=generator)
    graph = torch.searchsorted(ptr, target, right=True) - 1
    share = torch.rand(num_edges, generator=generator)  # relative position of the source in the target's graph
    source = ptr[graph] + (share * (ptr[graph + 1] - ptr[graph])).long()
    inputs = {}
    if manifest.inputs.reads_pairs and manifest.pair_encoder is not None:
        inputs["pair_vectors"] = torch.randn(num_nodes, manifest.pair_encoder.dim, generator=generator)
        others = torch.randint(9, (num_nodes,), generator=generator)  # neighbours that are no candidates
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
    """Compare other forms of a model with the eager one; return the largest difference of a score, by name.

    A ranking is the same if every candidate precedes those whose eager scores are lower by more than rounding. Of
    ``others``, functions by their names in errors, a :class:`~graphrerank.artifacts.formats.Runner` also returns
    probabilities if there is a calibration, and a module with a submodule ``calibration`` maps scores to them. A
    ValueError, which names model and batch, if a score is not finite, scores or probabilities differ by more than
    ``tolerance`` or in shape or rank, or a model fails.
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
                except Exception as error:  # runtimes' errors share no class
                    raise UserError(f"{name} fails on the batch {batch.name!r}: {error}") from error
    return largest


def _difference(batch: ParityBatch, scores: Tensor, expected: Tensor, tolerance: float) -> float:
    """Return the largest difference of a score; raise if it is too large, or ranks differ."""
    if scores.shape != expected.shape:
        raise UserError(f"scores must have the shape {list(expected.shape)}, got {list(scores.shape)}")
    difference = (scores - expected).abs().max().item()
    if not difference <= tolerance:  # or NaN
        raise UserError(f"scores must be within {tolerance} of the eager model's, got a difference of {difference}")
    order = batch.order(scores)
    ordered = expected[order.clamp(min=0)].masked_fill(order < 0, -torch.inf)
    rise = (ordered - ordered.cummin(1).values).nan_to_num(nan=0.0)  # NaN in the padding
    rounding = TIE_TOLERANCE * max(1.0, expected.abs().max().item())
    if rise.numel() and (late := rise.max().item()) > rounding:
        needed = f"scores that differ by more than {rounding:.1e} must rank as the eager model's"
        raise UserError(f"{needed}, got a candidate {late:.1e} too late")
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
        raise UserError(f"probabilities must be within {tolerance} of the calibration's, got a gap of {difference}")
