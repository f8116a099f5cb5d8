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

from graphrerank.checks import UserError
from graphrerank.data.candidates import PreparedDataset
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.models.gatv2_reranker import GATv2Reranker

FEW, LAST, ALL = STAGES = ("few parameters", "last layers", "all parameters")
EVIDENCE = {FEW: 30, LAST: 150, ALL: 2000}  # sessions with positive feedback that a stage needs to be tried
BATCH = 64  # queries
PROBE = 1.25  # factor by which a type's features are scaled to measure its effect
SPREAD, LARGEST = 0.5, math.log(3.0)  # of logarithms of factors: a prior's standard deviation, and the most
LAST_STEPS, LAST_RATE = 60, 1e-3  # passes over all lists
ALL_EPOCHS, ALL_RATE = 3, 1e-4
HEAD = ("lin_hidden", "lin_out", "gcs_weight")


@dataclass(frozen=True)
class ScoredLists:
    """The parent's scores of each query's candidates, in parts; ``[Q, K]``, padded."""

    nodes: Tensor  # `[Q, K]` int64, -1 where padded
    of_gcs: Tensor  # the retriever's part of the score
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
        return self.of_gcs + self.learned

    def select(self, rows: Tensor) -> "ScoredLists":
        """Return the lists of some queries."""
        parts = {name: getattr(self, name)[rows] for name in ("nodes", "of_gcs", "learned", "hidden")}
        return replace(self, **parts, slopes=self.slopes[:, rows])


@dataclass(frozen=True)
class Change:
    """A model that differs from its parent, or the parent's few parameters changed."""

    stage: str
    model: GATv2Reranker
    factors: Mapping[str, float]  # of the retriever, the model and types of edges by name; empty beyond few parameters
    scores: Tensor | None = None  # `[Q, K]` of the lists that it was fitted on, if they cost no pass


@torch.no_grad()
def score_lists(model: nn.Module, prepared: PreparedDataset) -> ScoredLists:
    """Score all queries of a data set in parts; a ValueError if the model has no such parts."""
    if not isinstance(model, GATv2Reranker) or model.features != "scores" or model.lin_in.in_features < 1:
        found = getattr(model, "features", type(model).__name__)
        raise UserError(f"`start` must be a gatv2_reranker with features=scores, such as base, got {found}")
    probes = [_folded(model, {EDGE_TYPES[number]: PROBE}) for number in range(model.num_edge_types)]
    kept: list[Tensor] = []
    hook = model.norm.register_forward_hook(lambda _, __, out: kept.append(out.half()))
    width, parts, present = prepared.top_k, [], set[int]()
    try:
        for graphs in _batches(model, prepared, torch.arange(len(prepared.dataset.query_ids))):
            present |= set() if graphs.edge_type is None else set(graphs.edge_type.unique().tolist())
            arguments = graphs.model_inputs(model.inputs)
            of_gcs, learned = model.score_parts(*arguments)
            base = of_gcs + learned
            slopes = [
                (probe(*arguments) - base) / math.log(PROBE) if number in present else torch.zeros_like(base)
                for number, probe in enumerate(probes)
            ]
            hidden = kept.pop()
            columns = [of_gcs, learned, *slopes, *hidden.float().T]
            padded = torch.stack([_padded(graphs, column, width) for column in columns])
            nodes = _padded(graphs, graphs.nodes + 1, width) - 1
            parts.append((nodes, padded[:2], padded[2 : 2 + len(probes)], padded[2 + len(probes) :].half()))
    finally:
        hook.remove()
    nodes, pair, slope, hidden = (
        torch.cat(each, dim=min(dim, 1)) for dim, each in zip((0, 1, 1, 1), zip(*parts, strict=True), strict=True)
    )
    types = tuple(sorted(present)) if model.num_edge_types else ()
    return ScoredLists(nodes, pair[0], pair[1], slope[list(types)], types, hidden.permute(1, 2, 0))


@torch.no_grad()
def exact_scores(model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor) -> Tensor:
    """Score the candidates of queries ``[Q]`` with a model, ``[Q, K]``, 0 where padded."""
    parts = [
        _padded(graphs, model(*graphs.model_inputs(model.inputs)), prepared.top_k)
        for graphs in _batches(model, prepared, queries)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, prepared.top_k)


def fit_few(model: GATv2Reranker, lists: ScoredLists, targets: Tensor) -> Change:
    r"""Fit the factors of the retriever, the network and each type of edges to targets ``[Q, K]``.

    .. math:: \min_z -\sum_{q, d} y_{qd} \log \mathrm{softmax}_d(s(z)) + \frac{|z|^2}{2 \sigma^2}, \qquad
        |z_i| \le \log 3

    The common factor of all scores is not penalised: it changes no order. Targets may be negative.
    """
    u = torch.zeros(2 + len(lists.types), dtype=torch.float64, requires_grad=True)
    parts = [each.double() for each in (lists.of_gcs, lists.learned, lists.slopes)]
    y, total = targets.double(), _total(targets)
    optimizer = torch.optim.LBFGS([u], max_iter=40, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        z = LARGEST * torch.tanh(u / LARGEST)
        penalty = ((z[0] - z[1]).square() / 2 + z[2:].square().sum()) / (2 * SPREAD**2 * total)
        loss = _cross_entropy(_few_scores(z, *parts), y, lists.mask) / total + penalty
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        z = LARGEST * torch.tanh(u / LARGEST)
        names = ["retriever", "model", *(EDGE_TYPES[number] for number in lists.types)]
        factors = {name: math.exp(float(each)) for name, each in zip(names, z, strict=True)}
        return Change(FEW, _folded(model, factors), factors, _few_scores(z, *parts).float())


def few_scores(change: Change, lists: ScoredLists) -> Tensor:
    """Score lists with few parameters changed, linearised, ``[Q, K]``."""
    z = torch.tensor([math.log(each) for each in change.factors.values()], dtype=torch.float64)
    return _few_scores(z, lists.of_gcs.double(), lists.learned.double(), lists.slopes.double()).float()


def _few_scores(z: Tensor, of_gcs: Tensor, learned: Tensor, slopes: Tensor) -> Tensor:
    return z[0].exp() * of_gcs + z[1].exp() * (learned + torch.einsum("t,tqk->qk", z[2:], slopes))


def fit_last(model: GATv2Reranker, lists: ScoredLists, targets: Tensor, *, seed: int = 0) -> Change:
    """Fit the last layers, whose inputs are known, to targets ``[Q, K]``."""
    changed = copy.deepcopy(model)
    parameters = [p for name, p in changed.named_parameters() if name.split(".")[0] in HEAD]
    optimizer = torch.optim.Adam(parameters, lr=LAST_RATE)
    total, generator = _total(targets), torch.Generator().manual_seed(seed)
    for _ in range(LAST_STEPS):
        for rows in torch.split(torch.randperm(len(targets), generator=generator), 8 * BATCH):
            optimizer.zero_grad()
            some = lists.select(rows)
            loss = _cross_entropy(last_scores(model, changed, some), targets[rows], some.mask) / total
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        return Change(LAST, changed, {}, last_scores(model, changed, lists))


def last_scores(model: GATv2Reranker, changed: GATv2Reranker, lists: ScoredLists) -> Tensor:
    """Score lists with changed last layers, exactly up to the half precision of what they read, ``[Q, K]``."""
    hidden = lists.hidden.float()
    assert model.gcs_weight is not None
    assert changed.gcs_weight is not None

    def head(of: GATv2Reranker) -> Tensor:
        out: Tensor = of.lin_out(torch.relu(of.lin_hidden(hidden))).squeeze(-1)
        return out

    with torch.no_grad():
        before, has_evidence = head(model), (lists.learned != 0).any(1, keepdim=True)
    scores = lists.of_gcs * (changed.gcs_weight / model.gcs_weight.detach()) + lists.learned + head(changed) - before
    return torch.where(has_evidence, scores, lists.scores)


def fit_all(
    model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor, targets: Tensor, *, seed: int = 0
) -> Change:
    """Fit all parameters to the targets ``[Q, K]`` of queries ``[Q]``."""
    changed = copy.deepcopy(model).eval()  # without dropout: the parent is the prior
    optimizer = torch.optim.AdamW(changed.parameters(), lr=ALL_RATE)
    mean, generator = _total(targets) / len(targets), torch.Generator().manual_seed(seed)
    for _ in range(ALL_EPOCHS):
        for rows in torch.split(torch.randperm(len(queries), generator=generator), BATCH // 2):
            rows = rows.sort().values
            (graphs,) = _batches(changed, prepared, queries[rows])
            optimizer.zero_grad()
            scores = _padded(graphs, changed(*graphs.model_inputs(changed.inputs)), prepared.top_k)
            mask = prepared.ranking.nodes[queries[rows]] >= 0
            loss = _cross_entropy(scores, targets[rows], mask) / (mean * len(rows))
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(changed.parameters(), 1.0)
            optimizer.step()
    return Change(ALL, changed, {})


def _total(targets: Tensor) -> float:
    return max(float(targets.clamp(min=0).sum()), 1e-9)


def _cross_entropy(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    lowest = torch.finfo(scores.dtype).min
    log_probability = torch.log_softmax(scores.masked_fill(~mask, lowest), dim=1)
    return -(targets * torch.where(mask, log_probability, 0.0)).sum()


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
    for rows in torch.split(queries, BATCH):
        yield prepared.graphs(rows, inputs=model.inputs)


def _padded(graphs: Any, column: Tensor, width: int) -> Tensor:
    padded = graphs.to_padded(column, fill=0)
    return torch.nn.functional.pad(padded, (0, width - padded.shape[1]))
