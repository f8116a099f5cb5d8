"""Personalized PageRank over the whole corpus graph, for many queries at once."""

import torch
from torch import Tensor, nn

from graphrerank.checks import check_positive_share
from graphrerank.graphs import CorpusGraph, Ranking, top_k_by_node_order
from graphrerank.graphs.sparse_rows import sparse_matrix
from graphrerank.operators.gcs import TOLERANCE, num_smoothing_steps

BLOCK_SCORES = 1 << 24  # scores held at once: 64 MiB of float32 per vector


class CorpusPPR(nn.Module):
    r"""Spread seed mass over the corpus until convergence, and rank the nodes that it reaches.

    .. math:: p^{(t+1)} = c\,r + (1 - c)\,(P p^{(t)} + m^{(t)} r), \qquad p^{(0)} = r

    with :math:`P` column-normalised and :math:`m` the mass at nodes without an edge, which returns to the seeds. The
    iteration ends once each query's residual in the L1 norm is at most ``tolerance``; the distance to the fixed point
    is then at most ``tolerance / restart_prob``.

    Source: Page et al., *The PageRank Citation Ranking*, 1999; HippoRAG 2, which walks over passages and entities, and
    FastInsight, Example 2. ``restart_prob`` is 1 - ``damping`` of igraph. Passages that share entities are joined with
    the weight of conceptual edges, in addition to any edge between them, without listing these edges: the mass goes to
    the entities and back. All state is in buffers.

    Args:
        restart_prob: Probability ``c`` in (0, 1] of returning to the seeds at each step.
        tolerance: Maximum residual, in (0, 1); float32 resolves about 1e-7.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1]]))
        >>> seeds = Ranking(torch.tensor([[0]]), torch.tensor([[1.0]]))
        >>> CorpusPPR(graph, restart_prob=0.5).expand(seeds, top_k=3)
        Ranking(nodes=tensor([[ 0,  1, -1]]), scores=tensor([[0.6667, 0.3333,   -inf]]), features=None, base_nodes=None)
    """

    dangling: Tensor  # [N] bool
    transition: Tensor  # [N, N] sparse, P without entities
    to_entities: Tensor  # [M, N] sparse, 1 where a passage contains an entity
    from_entities: Tensor  # [N, M] sparse, its transpose
    entity_share: Tensor  # [N], share of a passage's mass that goes to each of an entity's other passages
    num_shared: Tensor  # [N], number of entities that a passage shares

    def __init__(self, graph: CorpusGraph, *, restart_prob: float = 0.5, tolerance: float = TOLERANCE) -> None:
        super().__init__()
        check_positive_share(restart_prob=restart_prob)
        if not 0 < tolerance < 1:
            raise ValueError(f"`tolerance` must lie in (0, 1), got {tolerance}")
        self.restart_prob = restart_prob
        self.tolerance = tolerance
        device, graph = graph.device, graph.to("cpu").with_rows_in_order()
        num_nodes, entities = graph.num_nodes, graph.entities
        total = torch.zeros(num_nodes).index_add_(0, graph.indices, graph.weight)
        if entities is not None:
            total = total + entities.num_partners / entities.sizes.clamp(min=1)
        share = torch.where(total > 0, 1 / total, 0.0)
        self.register_buffer("dangling", total == 0, persistent=False)
        values = graph.weight * share[graph.indices]
        self.register_buffer(
            "transition", sparse_matrix(graph.indptr, graph.indices, values, num_nodes), persistent=False
        )
        self.has_entities = entities is not None and entities.num_entities > 0
        if entities is not None and self.has_entities:
            ones = torch.ones(len(entities.indices))
            to_entities = sparse_matrix(entities.holder_ptr, entities.holders, ones, num_nodes)
            from_entities = sparse_matrix(entities.indptr, entities.indices, ones, entities.num_entities)
            self.register_buffer("to_entities", to_entities, persistent=False)
            self.register_buffer("from_entities", from_entities, persistent=False)
            self.register_buffer("entity_share", share / entities.sizes.clamp(min=1), persistent=False)
            self.register_buffer("num_shared", entities.indptr.diff().float(), persistent=False)
        self.to(device)

    @torch.no_grad()
    def expand(self, seeds: Ranking, *, top_k: int) -> Ranking:
        """Rank the nodes that each query's seeds ``[B, S]`` reach.

        Scores of seeds are relative shares of the restart, and those not positive count as 0. A query without a
        positive score restarts at all its seeds uniformly.

        Returns:
            ``[B, top_k]``, ties broken by node index; the scores of all nodes, not only of these, sum to 1.
        """
        rows = max(1, BLOCK_SCORES // max(1, len(self.dangling)))
        rankings = []
        for start in range(0, max(1, len(seeds)), rows):
            mass = self.score(seeds.nodes[start : start + rows], seeds.scores[start : start + rows])
            rankings.append(Ranking(*top_k_by_node_order(mass.masked_fill(mass == 0, -torch.inf), top_k)))
        return Ranking.concatenate(rankings)

    @torch.no_grad()
    def score(self, nodes: Tensor, weight: Tensor) -> Tensor:
        """Return the mass of every node, ``[B, N]``.

        ``nodes`` are ``[B, S]`` int64 seeds, padded with -1, unique per row; ``weight`` ``[B, S]``, as the scores in
        :meth:`expand`.
        """
        valid = nodes >= 0
        weight = weight.masked_fill(~valid, 0.0).clamp(min=0)
        weight = torch.where((weight.sum(1, keepdim=True) > 0), weight, valid.to(weight))
        row, column = torch.nonzero(valid, as_tuple=True)
        seed, share = nodes[row, column], (weight / weight.sum(1, keepdim=True).clamp(min=1e-30))[row, column]
        mass = torch.zeros(len(self.dangling), len(nodes), device=nodes.device)  # [N, B]: a step reads whole rows
        mass[seed, row] = share
        dangling = self.dangling.nonzero().flatten()
        for _ in range(num_smoothing_steps(self.restart_prob, self.tolerance / 2)):
            lost = mass[dangling].sum(0)
            following = self._spread(mass).mul_(1 - self.restart_prob)
            following[seed, row] += share * (self.restart_prob + (1 - self.restart_prob) * lost[row])
            change = mass.sub_(following).abs_().sum(0)
            mass = following
            if not len(nodes) or float(change.max()) * (1 - self.restart_prob) <= self.tolerance:
                break
        return mass.T.contiguous()

    def _spread(self, mass: Tensor) -> Tensor:
        spread: Tensor = self.transition @ mass
        if self.has_entities:
            offered = mass * self.entity_share.unsqueeze(1)
            spread += self.from_entities @ (self.to_entities @ offered)
            spread -= self.num_shared.unsqueeze(1) * offered  # nothing returns to the passage itself
        return spread
