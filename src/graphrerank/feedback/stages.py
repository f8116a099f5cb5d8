"""What is learned from feedback, few parameters first: trust and types of edges, the last layers, all of the model.

The first stage changes how much the retriever counts (with GCS's smoothing), how much the network does, and how much
the features of each type of edges do: at most seven numbers, which are folded into the weights, so that the result is
a model as its parent. Their effect is linear in the first two and linearised in the others, from one pass for each.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.utils.checks import UserError

FEW_PARAMETERS, LAST_LAYERS, ALL_PARAMETERS = STAGES = ("few parameters", "last layers", "all parameters")
MIN_SESSIONS = {FEW_PARAMETERS: 30, LAST_LAYERS: 150, ALL_PARAMETERS: 2000}  # with positive feedback, to try a stage
BATCH_OF_LISTS = 64  # queries
PROBE_FACTOR = 1.25  # factor by which a type's features are scaled to measure its effect
PRIOR_STD = 0.5  # standard deviation of the prior on the logarithms of factors
MAX_LOG_FACTOR = math.log(3.0)
LAST_STEPS, LAST_RATE, LAST_BATCH = 60, 1e-3, 512  # passes over all lists, of so many at once
ALL_EPOCHS, ALL_RATE = 3, 1e-4
HEAD_LAYERS = ("lin_hidden", "lin_out", "gcs_weight")


@dataclass(frozen=True)
class ScoredLists:
    """The parent's scores of each query's candidates, in parts; ``[Q, K]``, padded."""

    nodes: Tensor  # `[Q, K]` int64, -1 where padded
    gcs_scores: Tensor  # the retriever's part of the score
    learned: Tensor  # the network's part
    slopes: Tensor  # `[T, Q, K]`, change of the score with the logarithm of each type's factor
    types: tuple[int, ...]  # numbers of the `T` types of edges that occur
    hidden: Tensor  # `[Q, K, C]` float16, what the last layers read

    @property
    def mask(self) -> Tensor:
        """Whether there is a candidate, ``[Q, K]``."""
        return self.nodes >= 0

    @property
    def scores(self) -> Tensor:
        """The parent's scores, ``[Q, K]``."""
        return self.gcs_scores + self.learned

    def select(self, rows: Tensor) -> "ScoredLists":
        """Return the lists of some queries."""
        parts = {name: getattr(self, name)[rows] for name in ("nodes", "gcs_scores", "learned", "hidden")}
        return replace(self, **parts, slopes=self.slopes[:, rows])


@dataclass(frozen=True)
class ModelUpdate:
    """A model that differs from its parent, or the parent's few parameters changed."""

    stage: str
    model: GATv2Reranker
    factors: Mapping[str, float]  # of the retriever, the model and types of edges by name; empty beyond few parameters


@torch.no_grad()
def score_lists(model: nn.Module, prepared: PreparedDataset) -> ScoredLists:
    """Score all queries of a data set in parts; a ValueError if the model has no such parts."""
    if not isinstance(model, GATv2Reranker) or model.features != "scores":
        got = f"features={model.features}" if isinstance(model, GATv2Reranker) else type(model).__name__
        raise UserError(f"`start` must be a gatv2_reranker with features=scores, such as base, got {got}")
    probes = [_folded(model, {EDGE_TYPES[number]: PROBE_FACTOR}) for number in range(model.num_edge_types)]
    kept: list[Tensor] = []
    hook = model.norm.register_forward_hook(lambda _, __, out: kept.append(out.half()))
    parts, present = [], set[int]()
    try:
        for graphs in _batches(model, prepared, torch.arange(len(prepared.dataset.query_ids))):
            present |= set() if graphs.edge_type is None else set(graphs.edge_type.unique().tolist())
            arguments = graphs.model_inputs(model.inputs)
            gcs_scores, learned = model.score_parts(*arguments)
            columns = [graphs.nodes + 1, gcs_scores, learned, *kept.pop().T]
            for number, probe in enumerate(probes):
                change = probe(*arguments) - gcs_scores - learned if number in present else torch.zeros_like(learned)
                columns.append(change / math.log(PROBE_FACTOR))
            parts.append([_padded(graphs, column, prepared.top_k) for column in columns])
    finally:
        hook.remove()
    nodes, gcs_scores, learned, *others = map(torch.cat, zip(*parts, strict=True))
    hidden, slopes = others[: len(others) - len(probes)], others[len(others) - len(probes) :]
    types = tuple(sorted(present)) if probes else ()
    of_types = torch.stack([slopes[number] for number in types]) if types else learned.new_zeros(0, *learned.shape)
    return ScoredLists(nodes - 1, gcs_scores, learned, of_types, types, torch.stack(hidden, dim=-1))


@torch.no_grad()
def exact_scores(model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor) -> Tensor:
    """Score the candidates of queries ``[Q]`` with a model, ``[Q, K]``, 0 where padded."""
    parts = [
        _padded(graphs, model(*graphs.model_inputs(model.inputs)), prepared.top_k)
        for graphs in _batches(model, prepared, queries)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, prepared.top_k)


def fit_stage(
    stage: str,
    model: GATv2Reranker,
    prepared: PreparedDataset,
    lists: ScoredLists,
    queries: Tensor,
    targets: Tensor,
    *,
    seed: int = 0,
) -> ModelUpdate:
    r"""Fit a stage to the targets ``[Q, K]``, some of which may be negative, of queries ``[Q']`` of all lists.

    .. math:: \min -\sum_{q, d} y_{qd} \log \mathrm{softmax}_d(s) + \frac{|z|^2}{2 \sigma^2}

    with the second term for logarithms z of factors, each at most log 3. The common factor of all scores is not
    penalised: it changes no order.
    """
    y = targets[queries]
    if stage == FEW_PARAMETERS:
        return _fit_few(model, lists.select(queries), y.double())
    if stage == LAST_LAYERS:
        return _fit_last(model, lists.select(queries), y.float(), seed)
    return _fit_all(model, prepared, queries, y.float(), seed)


def quick_scores(
    change: ModelUpdate, model: GATv2Reranker, prepared: PreparedDataset, lists: ScoredLists, queries: Tensor
) -> Tensor:
    """Score queries ``[Q']`` of all lists as a change of the model does, ``[Q', K]``.

    Few parameters are linearised, and last layers read half precision; only other changes need a pass of the network.
    """
    if change.stage == FEW_PARAMETERS:
        z = torch.tensor([math.log(factor) for factor in change.factors.values()], dtype=torch.float64)
        return _few_scores(z, lists.select(queries)).float()
    if change.stage == LAST_LAYERS:
        with torch.no_grad():
            return _last_scores(model, change.model, lists.select(queries))
    return exact_scores(change.model, prepared, queries)


def _fit_few(model: GATv2Reranker, lists: ScoredLists, targets: Tensor) -> ModelUpdate:
    u = torch.zeros(2 + len(lists.types), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([u], max_iter=40, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        z = MAX_LOG_FACTOR * torch.tanh(u / MAX_LOG_FACTOR)
        penalty = ((z[0] - z[1]).square() / 2 + z[2:].square().sum()) / (2 * PRIOR_STD**2)
        total = _cross_entropy(_few_scores(z, lists), targets, lists.mask) + penalty / _total(targets)
        total.backward()  # type: ignore[no-untyped-call]
        return total.detach()

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        z = MAX_LOG_FACTOR * torch.tanh(u / MAX_LOG_FACTOR)
    names = ["retriever", "model", *(EDGE_TYPES[number] for number in lists.types)]
    factors = {name: math.exp(each) for name, each in zip(names, z.tolist(), strict=True)}
    return ModelUpdate(FEW_PARAMETERS, _folded(model, factors), factors)


def _few_scores(z: Tensor, lists: ScoredLists) -> Tensor:
    learned = lists.learned.double() + torch.einsum("t,tqk->qk", z[2:], lists.slopes.double())
    return z[0].exp() * lists.gcs_scores.double() + z[1].exp() * learned


def _fit_last(model: GATv2Reranker, lists: ScoredLists, targets: Tensor, seed: int) -> ModelUpdate:
    changed = copy.deepcopy(model)
    parameters = [p for name, p in changed.named_parameters() if name.split(".")[0] in HEAD_LAYERS]
    optimizer, generator = torch.optim.Adam(parameters, lr=LAST_RATE), torch.Generator().manual_seed(seed)
    for _ in range(LAST_STEPS):
        for rows in torch.split(torch.randperm(len(targets), generator=generator), LAST_BATCH):
            optimizer.zero_grad()
            some = lists.select(rows)
            loss = _cross_entropy(_last_scores(model, changed, some), targets[rows], some.mask)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return ModelUpdate(LAST_LAYERS, changed, {})


def _last_scores(model: GATv2Reranker, changed: GATv2Reranker, lists: ScoredLists) -> Tensor:
    hidden = lists.hidden.float()
    assert model.gcs_weight is not None
    assert changed.gcs_weight is not None
    before, after = (of.lin_out(torch.relu(of.lin_hidden(hidden))).squeeze(-1) for of in (model, changed))
    scores = (
        lists.gcs_scores * (changed.gcs_weight / model.gcs_weight.detach()) + lists.learned + after - before.detach()
    )
    return torch.where((lists.learned != 0).any(1, keepdim=True), scores, lists.scores)  # else there is no evidence


def _fit_all(
    model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor, targets: Tensor, seed: int
) -> ModelUpdate:
    changed = copy.deepcopy(model).eval()  # without dropout, as the parent scores
    optimizer = torch.optim.AdamW(changed.parameters(), lr=ALL_RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(ALL_EPOCHS):
        for rows in torch.split(torch.randperm(len(queries), generator=generator), BATCH_OF_LISTS // 2):
            (graphs,) = _batches(changed, prepared, queries[rows])
            optimizer.zero_grad()
            scores = _padded(graphs, changed(*graphs.model_inputs(changed.inputs)), prepared.top_k)
            loss = _cross_entropy(scores, targets[rows], prepared.ranking.nodes[queries[rows]] >= 0)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(changed.parameters(), 1.0)
            optimizer.step()
    return ModelUpdate(ALL_PARAMETERS, changed, {})


def _total(targets: Tensor) -> float:
    return max(float(targets.clamp(min=0).sum()), 1e-9)


def _cross_entropy(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    log_probability = torch.log_softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=1)
    return -(targets * torch.where(mask, log_probability, 0.0)).sum() / _total(targets)


@torch.no_grad()
def _folded(model: GATv2Reranker, factors: Mapping[str, float]) -> GATv2Reranker:
    """Fold factors into a copy of the weights."""
    changed = copy.deepcopy(model)
    assert changed.gcs_weight is not None
    changed.gcs_weight.mul_(factors.get("retriever", 1.0))
    outputs = [changed.lin_out.weight, changed.lin_out.bias]
    outputs += [] if changed.pair_head is None else [changed.pair_head.lin_out.weight]
    for weight in outputs:
        weight.mul_(factors.get("model", 1.0))
    names = changed.score_features.names([""] * changed.score_features.num_scores)
    read = [names[column] for column in _others(changed)]
    for edge_type, factor in factors.items():
        if edge_type in EDGE_TYPES:
            columns = [at for at, name in enumerate(read) if name.endswith(f"_{edge_type}")]
            changed.lin_in.weight[:, columns] *= factor
    return changed


def _others(model: GATv2Reranker) -> list[int]:
    """Return the feature that each input of the first layer reads."""
    columns: Tensor = model.get_buffer("of_others")
    return [int(column) for column in columns.tolist()]


def _batches(model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor) -> Iterator[Any]:
    for rows in torch.split(queries, BATCH_OF_LISTS):
        yield prepared.graphs(rows, inputs=model.inputs)


def _padded(graphs: Any, column: Tensor, width: int) -> Tensor:
    padded = graphs.to_padded(column, fill=0)
    return torch.nn.functional.pad(padded, (0, width - padded.shape[1]))
