"""Personalized PageRank: on candidate graphs, over a corpus graph, and over passages and their entities."""

import torch
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs, Ranking, top_k_by_node_order
from graphrerank.core.graph_algebra import column_normalize, graph_of_nodes, propagate, scatter_sum
from graphrerank.core.sparse_rows import positions_in_rows, row_entries, sparse_matrix
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.entity_incidence import normalized_names
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.operators.gcs import TOLERANCE, num_smoothing_steps
from graphrerank.utils.checks import UserError, check_positive_share

BLOCK_SCORES = 1 << 24  # scores held at once: 64 MiB of float32 per vector
STEPS_PER_WAIT = 8  # between two looks at the residual on another device than the CPU
ENTITIES_PER_SEED = 5
MAX_SHARE = 0.01  # of the passages: entities that are spelled in more of them (and in more than 10) are not read


def personalized_pagerank(
    seed: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor,
    ptr: Tensor,
    *,
    restart_prob: float = 0.5,
    num_steps: int = 20,
) -> Tensor:
    r"""Spread each graph's seed mass along its edges, returning a share of it to the seeds at each step.

    .. math:: p^{(t+1)} = c\,r + (1 - c)\,(P p^{(t)} + m^{(t)} r), \qquad p^{(0)} = r

    with :math:`P` column-normalised, :math:`r` the seeds scaled to sum to 1 in each graph, and :math:`m` the mass at
    nodes without an outgoing edge, which returns to the seeds (as in networkx).

    Source: Page et al., *The PageRank Citation Ranking*, 1999; GraphER, section 2.2. ``restart_prob`` is 1 - ``alpha``
    of networkx and 1 - ``damping`` of igraph. We iterate a fixed number of steps (:func:`num_smoothing_steps`).

    ``seed`` ``[N]`` is not negative; a graph whose seeds are all 0 is seeded uniformly. ``edge_index [2, E]`` runs from
    source to target, ``edge_weight [E]`` is not negative, and ``ptr [B + 1]`` bounds the graphs; ``restart_prob`` in
    (0, 1] is :math:`c`. Returns ``[N]``, a distribution over the nodes of each graph.

    Example:
        >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 2])
        >>> personalized_pagerank(torch.tensor([1.0, 0.0]), edges, torch.ones(2), ptr, restart_prob=0.5)
        tensor([0.6667, 0.3333])
    """
    if (seed < 0).any():
        raise UserError(f"`seed` must not be negative, got {seed.min().item()}")
    num_graphs, num_nodes = ptr.numel() - 1, seed.shape[0]
    graph = graph_of_nodes(ptr, num_nodes)
    total = scatter_sum(seed, graph, num_graphs)
    size = (ptr[1:] - ptr[:-1]).to(seed.dtype)
    reset = torch.where(total[graph] > 0, seed / total[graph], 1 / size[graph])
    weight = column_normalize(edge_index, edge_weight, num_nodes)
    dangling = (scatter_sum(weight, edge_index[0], num_nodes) == 0).to(seed.dtype)
    mass = reset
    for _ in range(num_steps):
        lost = scatter_sum(mass * dangling, graph, num_graphs)[graph]
        spread = propagate(mass, edge_index, weight) + lost * reset
        mass = restart_prob * reset + (1 - restart_prob) * spread
    return mass


class PPR(nn.Module):
    """Score candidate graphs by personalized PageRank from their base scores; negative scores count as 0."""

    def __init__(self, *, restart_prob: float = 0.5) -> None:
        super().__init__()
        self.restart_prob = restart_prob
        self.num_steps = num_smoothing_steps(restart_prob)

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates: ``[N]``."""
        seed, edges, restart = graphs.x[:, 0].clamp(min=0), (graphs.edge_index, graphs.edge_attr), self.restart_prob
        return personalized_pagerank(seed, *edges, graphs.ptr, restart_prob=restart, num_steps=self.num_steps)


class CorpusPPR(nn.Module):
    r"""Spread seed mass over the corpus until convergence, and rank the nodes that it reaches.

    .. math:: p^{(t+1)} = c\,r + (1 - c)\,(P p^{(t)} + m^{(t)} r), \qquad p^{(0)} = r

    as :func:`personalized_pagerank`, until each query's residual in the L1 norm is at most :math:`\epsilon` =
    ``TOLERANCE``; the distance to the fixed point is then at most :math:`\epsilon / c`.

    Source: Page et al., *The PageRank Citation Ranking*, 1999; HippoRAG 2, which walks over passages and entities, and
    FastInsight, Example 2. Passages that share entities are joined with the weight of conceptual edges, in addition to
    any edge between them, without listing these edges: the mass goes to the entities and back.

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

    def __init__(self, graph: CorpusGraph, *, restart_prob: float = 0.5) -> None:
        super().__init__()
        check_positive_share(restart_prob=restart_prob)
        self.restart_prob = restart_prob
        device, graph = graph.device, graph.to("cpu").with_rows_in_order()
        num_nodes, entities = graph.num_nodes, graph.entities
        total = torch.zeros(num_nodes).index_add_(0, graph.indices, graph.weight)
        if entities is not None:
            total = total + entities.num_partners / entities.sizes.clamp(min=1)
        share = torch.where(total > 0, 1 / total, 0.0)
        transition = sparse_matrix(graph.indptr, graph.indices, graph.weight * share[graph.indices], num_nodes)
        buffers = {"dangling": total == 0, "transition": transition}
        self.has_entities = entities is not None and entities.num_entities > 0
        if entities is not None and self.has_entities:
            ones = torch.ones(len(entities.indices))
            buffers |= {
                "to_entities": sparse_matrix(entities.holder_ptr, entities.holders, ones, num_nodes),
                "from_entities": sparse_matrix(entities.indptr, entities.indices, ones, entities.num_entities),
                "entity_share": share / entities.sizes.clamp(min=1),
                "num_shared": entities.indptr.diff().float(),
            }
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)
        self.to(device)

    @torch.no_grad()
    def expand(self, seeds: Ranking, *, top_k: int) -> Ranking:
        """Rank the nodes that each query's seeds ``[B, S]`` reach: ``[B, top_k]``, ties broken by node index.

        Seeds' scores are relative shares of the restart, those not positive 0, uniform if all are. The scores of all
        nodes sum to 1.
        """
        blocks = _row_blocks(len(seeds), len(self.dangling))
        rankings = [_top(self.score(seeds.nodes[rows], seeds.scores[rows]), top_k) for rows in blocks]
        return Ranking.concatenate(rankings)

    @torch.no_grad()
    def score(self, nodes: Tensor, weight: Tensor) -> Tensor:
        """Return the mass of every node, ``[B, N]``, for seeds ``nodes [B, S]`` with scores ``weight [B, S]``."""
        valid = nodes >= 0
        weight = weight.masked_fill(~valid, 0.0).clamp(min=0)
        weight = torch.where((weight.sum(1, keepdim=True) > 0), weight, valid.to(weight))
        row, column = torch.nonzero(valid, as_tuple=True)
        seed, share = nodes[row, column], (weight / weight.sum(1, keepdim=True).clamp(min=1e-30))[row, column]
        mass = torch.zeros(len(self.dangling), len(nodes), device=nodes.device)  # [N, B]: a step reads whole rows
        mass[seed, row] = share
        dangling = self.dangling.nonzero().flatten()
        for step in range(num_smoothing_steps(self.restart_prob, TOLERANCE / 2)):
            lost = mass[dangling].sum(0)
            following = self._spread(mass).mul_(1 - self.restart_prob)
            following[seed, row] += share * (self.restart_prob + (1 - self.restart_prob) * lost[row])
            change = mass.sub_(following).abs_().sum(0)
            mass = following
            if not mass.is_cpu and (step + 1) % STEPS_PER_WAIT:
                continue
            if not len(nodes) or float(change.max()) * (1 - self.restart_prob) <= TOLERANCE:
                break
        return mass.T.contiguous()

    def _spread(self, mass: Tensor) -> Tensor:
        spread: Tensor = self.transition @ mass
        if self.has_entities:
            offered = mass * self.entity_share.unsqueeze(1)
            spread += self.from_entities @ (self.to_entities @ offered)
            spread -= self.num_shared.unsqueeze(1) * offered  # nothing returns to the passage itself
        return spread


class EntityPPR:
    r"""Rank passages by the mass that reaches them from the most specific entities of a ranking's top.

    .. math::
        r_e \propto \sum_{i : e \in E_i^m} \frac{1}{\mathrm{rank}_i} \frac{s_e}{\sum_{e' \in E_i^m} s_{e'}}, \qquad
        x^{(t+1)} = c\,r + (1 - c)\,Q\,P\,x^{(t)}, \qquad p = P\,x^{(T)}

    with :math:`s_e = \ln(1 + N / n_e)` the specificity of an entity that :math:`n_e` of :math:`N` passages hold and
    :math:`E_i^m` the 5 most specific ones of seed :math:`i`; an entity gives each of its passages
    the same share (:math:`P`), a passage gives its entities shares in proportion to :math:`s_e` (:math:`Q`).

    Source: HippoRAG 2, which walks over passages and entities from those of the question's facts. *Where we differ:* no
    language model; ``num_steps`` steps; entities of the question itself, which cost on the training questions of
    2WikiMultihopQA, are no seeds: the base ranking has found their passages already.

    Example:
        >>> incidence = EntityIncidence.from_names([["metz"], ["metz", "rome"], ["rome"], ["oslo"]])
        >>> seeds = Ranking(torch.tensor([[0]]), torch.tensor([[1.0]]))
        >>> EntityPPR(incidence).expand(seeds, top_k=4, exclude=seeds.nodes).nodes
        tensor([[ 1,  2, -1, -1]])
    """

    def __init__(
        self,
        incidence: EntityIncidence,
        *,
        num_seeds: int = 30,  # passages at the top of a ranking whose entities are seeds
        restart_prob: float = 0.5,  # probability in (0, 1] of returning to the seeds at each step
        num_steps: int = 4,
    ) -> None:
        self.num_seeds, self.restart_prob, self.num_steps = num_seeds, restart_prob, num_steps
        self._incidence = incidence
        num_holders, num_nodes = incidence.num_holders, incidence.num_nodes
        self._specificity = torch.log1p(num_nodes / num_holders)
        passage = torch.repeat_interleave(torch.arange(num_nodes, device=num_holders.device), incidence.indptr.diff())
        share = self._specificity[incidence.indices]
        total = torch.zeros(num_nodes, device=num_holders.device).index_add_(0, passage, share)
        to_passage, to_entity = 1 / num_holders, self._specificity.repeat_interleave(num_holders)
        self._to_passages = sparse_matrix(
            incidence.indptr, incidence.indices, to_passage[incidence.indices], incidence.num_entities
        )
        self._to_entities = sparse_matrix(
            incidence.holder_ptr, incidence.holders, to_entity / total[incidence.holders], num_nodes
        )

    @torch.no_grad()
    def expand(self, seeds: Ranking, *, top_k: int, exclude: Tensor) -> Ranking:
        """Rank the passages that mass from ``seeds [B, S]``, best first, reaches, without ``exclude [B, M]``."""
        rankings = []
        for rows in _row_blocks(len(seeds), max(self._incidence.num_nodes, self._incidence.num_entities)):
            mass = self.score(seeds.nodes[rows])
            forbidden = torch.where(exclude[rows] >= 0, exclude[rows], mass.shape[1])
            mass = torch.cat([mass, mass[:, :1]], dim=1).scatter_(1, forbidden, 0.0)[:, :-1]
            rankings.append(_top(mass, top_k))
        return Ranking.concatenate(rankings)

    @torch.no_grad()
    def score(self, nodes: Tensor) -> Tensor:
        """Return the mass of every passage, ``[B, N]``, for seeds ``nodes [B, S]``."""
        seed = self._seed(nodes)
        mass = seed
        for _ in range(self.num_steps):
            mass = self.restart_prob * seed + (1 - self.restart_prob) * (self._to_entities @ (self._to_passages @ mass))
        reached: Tensor = self._to_passages @ mass
        return reached.T.contiguous()

    def _seed(self, nodes: Tensor) -> Tensor:
        """Return the shares of the restart, ``[M, B]``."""
        top = nodes[:, : self.num_seeds]
        row, column = torch.nonzero(top >= 0, as_tuple=True)
        place, entity = row_entries(self._incidence.indptr, self._incidence.indices, top[row, column])
        order = torch.argsort(self._incidence.num_holders[entity], stable=True)
        order = order[torch.argsort(place[order], stable=True)]
        order = order[positions_in_rows(place[order]) < ENTITIES_PER_SEED]
        place, entity = place[order], entity[order]
        specificity = self._specificity[entity]
        total = torch.zeros(len(row), device=top.device).index_add_(0, place, specificity)
        weight = specificity / total[place] / (column[place] + 1)
        seed = torch.zeros(self._incidence.num_entities, len(nodes), device=top.device)
        seed.index_put_((entity, row[place]), weight, accumulate=True)
        return seed / seed.sum(0).clamp(min=1e-30)


def corpus_entities(graph: CorpusGraph) -> EntityIncidence:
    """Return a corpus's entities, or if it has none those that its texts show by their spelling."""
    if graph.entities is not None:
        return graph.entities
    found = PatternEntityExtractor().extract(graph.all_texts)
    names = normalized_names([knowledge.names for knowledge in found])
    return EntityIncidence.from_names(names, max_share=MAX_SHARE).to(graph.device)


def _row_blocks(num_queries: int, width: int) -> list[slice]:
    """Split queries whose scores have a width into blocks that fit into memory; one empty block without queries."""
    size = max(1, BLOCK_SCORES // max(1, width))
    return [slice(start, start + size) for start in range(0, max(1, num_queries), size)]


def _top(mass: Tensor, top_k: int) -> Ranking:
    return Ranking(*top_k_by_node_order(mass.masked_fill(mass == 0, -torch.inf), top_k))
