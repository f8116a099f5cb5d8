"""Stages of learning from feedback: a few factors, the last layers, or all parameters of the model.

The first stage learns at most seven factors: the weight of the retriever (with the smoothing by GCS), the weight of the
network, and the weight of the features of each edge type. The factors are folded into the weights, so the result is an
ordinary model. The scores are linear in the first two factors and linearised in the others, with one forward pass per
edge type.
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
MIN_SESSIONS = {FEW_PARAMETERS: 30, LAST_LAYERS: 150, ALL_PARAMETERS: 2000}  # sessions with positive feedback
BATCH_OF_LISTS = 64  # number of queries
PROBE_FACTOR = 1.25  # factor by which the features of an edge type are scaled to measure their effect
PRIOR_STD = 0.5  # standard deviation of the prior on the logarithms of factors
MAX_LOG_FACTOR = math.log(3.0)
LAST_STEPS, LAST_RATE, LAST_BATCH = 60, 1e-3, 512  # number of epochs, learning rate, batch size
ALL_EPOCHS, ALL_RATE = 3, 1e-4
HEAD_LAYERS = ("lin_hidden", "lin_out", "gcs_weight")


@dataclass(frozen=True)
class ScoredLists:
    """Scores of each query's candidates by the parent model, split into their terms.

    Attributes:
        nodes: Candidates, ``[Q, K]`` (int64), -1 where padded.
        gcs_scores: Term of the retriever, ``[Q, K]``.
        learned: Term of the network, ``[Q, K]``.
        slopes: Derivative of the score with respect to the log factor of each edge type, ``[T, Q, K]``.
        types: Numbers of the ``T`` edge types that occur.
        hidden: Input of the last layers, ``[Q, K, C]`` (float16).
    """

    nodes: Tensor
    gcs_scores: Tensor
    learned: Tensor
    slopes: Tensor
    types: tuple[int, ...]
    hidden: Tensor

    @property
    def mask(self) -> Tensor:
        """Whether there is a candidate, ``[Q, K]``."""
        return self.nodes >= 0

    @property
    def scores(self) -> Tensor:
        """Scores of the parent model, ``[Q, K]``."""
        return self.gcs_scores + self.learned

    def select(self, rows: Tensor) -> "ScoredLists":
        """Return the lists of the selected queries.

        Args:
            rows: Rows of the queries, ``[Q']``.
        """
        selected = {name: getattr(self, name)[rows] for name in ("nodes", "gcs_scores", "learned", "hidden")}
        return replace(self, **selected, slopes=self.slopes[:, rows])


@dataclass(frozen=True)
class ModelUpdate:
    """Model that was learned from its parent.

    Attributes:
        stage: Name of the stage.
        model: Updated model.
        factors: Factors of the retriever, the model and each edge type, by name. Empty for later stages.
    """

    stage: str
    model: GATv2Reranker
    factors: Mapping[str, float]


@torch.no_grad()
def score_lists(model: nn.Module, prepared: PreparedDataset) -> ScoredLists:
    """Score all queries of a data set with the parent model, split into terms.

    Args:
        model: Parent model, a ``gatv2_reranker`` with ``features=scores``.
        prepared: Data set with candidates and features.

    Returns:
        The scores of all queries.

    Raises:
        ValueError: If the model is of another class or has other features.
    """
    if not isinstance(model, GATv2Reranker) or model.features != "scores":
        got = f"features={model.features}" if isinstance(model, GATv2Reranker) else type(model).__name__
        raise UserError(f"`start` must be a gatv2_reranker with features=scores, such as base, got {got}")
    probes = [_folded(model, {EDGE_TYPES[number]: PROBE_FACTOR}) for number in range(model.num_edge_types)]
    activations: list[Tensor] = []
    hook = model.norm.register_forward_hook(lambda _, __, out: activations.append(out.half()))
    batches = []
    present_types: set[int] = set()
    try:
        for graphs in _batches(model, prepared, torch.arange(len(prepared.dataset.query_ids))):
            if graphs.edge_type is not None:
                present_types |= set(graphs.edge_type.unique().tolist())
            arguments = graphs.model_inputs(model.inputs)
            gcs_scores, learned = model.score_parts(*arguments)
            columns = [graphs.nodes + 1, gcs_scores, learned, *activations.pop().T]
            for number, probe in enumerate(probes):
                change = torch.zeros_like(learned)
                if number in present_types:
                    change = probe(*arguments) - gcs_scores - learned
                columns.append(change / math.log(PROBE_FACTOR))
            batches.append([_padded(graphs, column, prepared.top_k) for column in columns])
    finally:
        hook.remove()
    nodes, gcs_scores, learned, *others = map(torch.cat, zip(*batches, strict=True))
    num_hidden = len(others) - len(probes)
    hidden = others[:num_hidden]
    slopes = others[num_hidden:]
    types = tuple(sorted(present_types)) if probes else ()
    type_slopes = torch.stack([slopes[number] for number in types]) if types else learned.new_zeros(0, *learned.shape)
    return ScoredLists(nodes - 1, gcs_scores, learned, type_slopes, types, torch.stack(hidden, dim=-1))


@torch.no_grad()
def exact_scores(model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor) -> Tensor:
    """Score the candidates of queries with a forward pass of a model.

    Args:
        model: Model to score with.
        prepared: Data set with candidates and features.
        queries: Rows of the queries, ``[Q]``.

    Returns:
        Scores ``[Q, K]``, 0 where padded.
    """
    scores = [
        _padded(graphs, model(*graphs.model_inputs(model.inputs)), prepared.top_k)
        for graphs in _batches(model, prepared, queries)
    ]
    return torch.cat(scores) if scores else torch.zeros(0, prepared.top_k)


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
    r"""Fit the parameters of a stage to target relevance.

    .. math:: \min -\sum_{q, d} y_{qd} \log \mathrm{softmax}_d(s) + \frac{|z|^2}{2 \sigma^2}

    The second term applies only to the first stage, where z are the logarithms of the factors, each limited to log 3. A
    common factor of all scores is not penalised because it does not change the ranking.

    Args:
        stage: One of ``STAGES``.
        model: Parent model.
        prepared: Data set with candidates and features.
        lists: Scores of the parent model for all queries.
        queries: Rows of the queries to fit on, ``[Q']``.
        targets: Target relevance of all queries, ``[Q, K]``. May be negative.
        seed: Seed of the order of batches.

    Returns:
        The learned update.
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
    """Score queries with an updated model, without a forward pass where possible.

    The scores are linearised for the first stage and computed from half-precision activations for the last layers. An
    update of all parameters needs a forward pass.

    Args:
        change: Update whose model scores.
        model: Parent model.
        prepared: Data set with candidates and features.
        lists: Scores of the parent model for all queries.
        queries: Rows of the queries, ``[Q']``.

    Returns:
        Scores ``[Q', K]``.
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
    factors = {name: math.exp(log_factor) for name, log_factor in zip(names, z.tolist(), strict=True)}
    return ModelUpdate(FEW_PARAMETERS, _folded(model, factors), factors)


def _few_scores(z: Tensor, lists: ScoredLists) -> Tensor:
    learned = lists.learned.double() + torch.einsum("t,tqk->qk", z[2:], lists.slopes.double())
    return z[0].exp() * lists.gcs_scores.double() + z[1].exp() * learned


def _fit_last(model: GATv2Reranker, lists: ScoredLists, targets: Tensor, seed: int) -> ModelUpdate:
    changed = copy.deepcopy(model)
    parameters = [p for name, p in changed.named_parameters() if name.split(".")[0] in HEAD_LAYERS]
    optimizer = torch.optim.Adam(parameters, lr=LAST_RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(LAST_STEPS):
        for rows in torch.split(torch.randperm(len(targets), generator=generator), LAST_BATCH):
            optimizer.zero_grad()
            batch = lists.select(rows)
            loss = _cross_entropy(_last_scores(model, changed, batch), targets[rows], batch.mask)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return ModelUpdate(LAST_LAYERS, changed, {})


def _last_scores(model: GATv2Reranker, changed: GATv2Reranker, lists: ScoredLists) -> Tensor:
    """Return the scores ``[Q, K]`` of a model whose last layers have changed, from the activations before them."""
    assert model.gcs_weight is not None
    assert changed.gcs_weight is not None
    rows = lists.hidden.float().flatten(0, 1)  # the layers take one row per candidate
    before, after = (
        head.lin_out(torch.relu(head.lin_hidden(rows))).reshape(lists.scores.shape) for head in (model, changed)
    )
    scores = (
        lists.gcs_scores * (changed.gcs_weight / model.gcs_weight.detach()) + lists.learned + after - before.detach()
    )
    # queries whose network term is 0 throughout keep their scores, because there is no evidence on them
    return torch.where((lists.learned != 0).any(1, keepdim=True), scores, lists.scores)


def _fit_all(
    model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor, targets: Tensor, seed: int
) -> ModelUpdate:
    changed = copy.deepcopy(model).eval()  # dropout stays off, because the parent's scores are computed without it
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
    """Return a copy of the model with the factors folded into its weights."""
    changed = copy.deepcopy(model)
    assert changed.gcs_weight is not None
    changed.gcs_weight.mul_(factors.get("retriever", 1.0))
    outputs = [changed.lin_out.weight, changed.lin_out.bias]
    outputs += [] if changed.pair_head is None else [changed.pair_head.lin_out.weight]
    for weight in outputs:
        weight.mul_(factors.get("model", 1.0))
    names = changed.score_features.names([""] * changed.score_features.num_scores)
    input_names = [names[column] for column in _others(changed)]
    for edge_type, factor in factors.items():
        if edge_type in EDGE_TYPES:
            columns = [index for index, name in enumerate(input_names) if name.endswith(f"_{edge_type}")]
            changed.lin_in.weight[:, columns] *= factor
    return changed


def _others(model: GATv2Reranker) -> list[int]:
    """Return the index of the feature behind each input of the first layer."""
    columns: Tensor = model.get_buffer("other_columns")
    return [int(column) for column in columns.tolist()]


def _batches(model: GATv2Reranker, prepared: PreparedDataset, queries: Tensor) -> Iterator[Any]:
    for rows in torch.split(queries, BATCH_OF_LISTS):
        yield prepared.graphs(rows, inputs=model.inputs)


def _padded(graphs: Any, column: Tensor, width: int) -> Tensor:
    padded = graphs.to_padded(column, fill=0)
    return torch.nn.functional.pad(padded, (0, width - padded.shape[1]))
