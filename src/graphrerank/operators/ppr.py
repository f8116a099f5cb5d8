"""Personalized PageRank on candidate graphs, on the corpus graph, and between passages and entities."""

import torch
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs, Ranking, top_k_by_node_order
from graphrerank.core.graph_algebra import column_normalize, graph_of_nodes, propagate, scatter_sum
from graphrerank.core.sparse_rows import positions_in_rows, row_entries, sparse_matrix
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.entity_incidence import normalized_names
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.operators.gcs import TOLERANCE, PropagationOperator, num_smoothing_steps
from graphrerank.utils.checks import UserError, check_positive_share

#: Largest number of scores in memory at once: 64 MiB of float32 per tensor.
BLOCK_SCORES = 1 << 24
#: Number of steps between two checks of the residual on a GPU, because each check waits for the device.
STEPS_PER_WAIT = 8
#: Number of entities of each seed passage from which :class:`EntityPPR` starts.
ENTITIES_PER_SEED = 5
#: Names that occur in more than this fraction of the passages, and in more than 10 of them, are not used as entities.
MAX_ENTITY_SHARE = 0.01


def personalized_pagerank(
    seed: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor,
    ptr: Tensor,
    *,
    restart_prob: float = 0.5,
    num_steps: int = 20,
) -> Tensor:
    r"""Compute personalized PageRank on a packed batch of graphs.

    .. math:: p^{(t+1)} = c\,r + (1 - c)\,(P p^{(t)} + m^{(t)} r), \qquad p^{(0)} = r

    with :math:`P` the column-normalised adjacency matrix, :math:`r` the seeds scaled to sum to 1 in each graph, and
    :math:`m` the total mass of nodes without an outgoing edge. This mass returns to the seeds, as in networkx.

    Source: Page et al., *The PageRank Citation Ranking*, 1999; GraphER, section 2.2. *Differences:* the number of steps
    is fixed (see :func:`num_smoothing_steps`). ``restart_prob`` is 1 - ``alpha`` of networkx and 1 - ``damping`` of
    igraph.

    Args:
        seed: Non-negative restart weights ``[N]``. If all seeds of a graph are 0, its restart distribution is uniform.
        edge_index: Edges ``[2, E]``, from source to target.
        edge_weight: Non-negative weights of the edges, ``[E]``.
        ptr: Boundaries of the graphs, ``[B + 1]``. Graph ``g`` consists of the nodes ``ptr[g]:ptr[g + 1]``.
        restart_prob: Probability :math:`c` of returning to the seeds at each step, in (0, 1].
        num_steps: Number of iterations.

    Returns:
        Probabilities ``[N]``, which sum to 1 in each graph.

    Raises:
        UserError: If a seed is negative.

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


class PPR(PropagationOperator):
    """Score candidate graphs by personalized PageRank from their base scores. See :func:`personalized_pagerank`.

    Negative base scores are treated as 0.

    Args:
        restart_prob: Probability of returning to the seeds at each step, in (0, 1].

    Example:
        >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 2])
        >>> PPR(restart_prob=0.5).score(CandidateGraphs(torch.tensor([[1.0], [0.0]]), edges, torch.ones(2), ptr))
        tensor([0.6667, 0.3333])
    """

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Walk from the base scores.

        Args:
            graphs: Candidate graphs whose first feature is the base score.

        Returns:
            Scores of all candidates, ``[N]``.
        """
        return personalized_pagerank(
            graphs.x[:, 0].clamp(min=0),
            graphs.edge_index,
            graphs.edge_attr,
            graphs.ptr,
            restart_prob=self.restart_prob,
            num_steps=self.num_steps,
        )


class CorpusPPR(nn.Module):
    r"""Rank the nodes of the corpus graph by personalized PageRank.

    .. math:: p^{(t+1)} = c\,r + (1 - c)\,(P p^{(t)} + m^{(t)} r), \qquad p^{(0)} = r

    with the symbols of :func:`personalized_pagerank`. The iteration stops when the residual of each query is at most
    :math:`\epsilon` = ``TOLERANCE`` in the L1 norm. The distance to the fixed point is then at most
    :math:`\epsilon / c`.

    Source: Page et al., *The PageRank Citation Ranking*, 1999; HippoRAG 2, which walks over passages and entities; and
    FastInsight, Example 2. Passages that share entities are connected with the weight of conceptual edges, in addition
    to any edge between them. These edges are not materialised: the mass flows to the entities and back.

    Args:
        graph: Corpus graph.
        restart_prob: Probability of returning to the seeds at each step, in (0, 1].

    Attributes:
        dangling: Whether a node has no outgoing edge, ``[N]`` bool.
        transition: Sparse transition matrix :math:`P` without entities, ``[N, N]``.
        to_entities: Sparse incidence matrix ``[M, N]``, 1 where a passage contains an entity.
        from_entities: Transpose of ``to_entities``, ``[N, M]``.
        entity_share: Fraction of a passage's mass that flows to a passage for each entity that both share, ``[N]``.
        num_shared: Number of entities that a passage shares with other passages, ``[N]``.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1]]))
        >>> seeds = Ranking(torch.tensor([[0]]), torch.tensor([[1.0]]))
        >>> CorpusPPR(graph, restart_prob=0.5).expand(seeds, top_k=3)
        Ranking(nodes=tensor([[ 0,  1, -1]]), scores=tensor([[0.6667, 0.3333,   -inf]]), features=None, base_nodes=None)
    """

    dangling: Tensor
    transition: Tensor
    to_entities: Tensor
    from_entities: Tensor
    entity_share: Tensor
    num_shared: Tensor

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
        """Rank the nodes that can be reached from the seeds of each query.

        Args:
            seeds: Seed nodes ``[B, S]``. Their scores are the restart weights. Scores that are not positive are treated
                as 0. If no score of a query is positive, its restart distribution is uniform.
            top_k: Number of nodes to return per query.

        Returns:
            Ranking ``[B, top_k]`` by probability, with ties broken by node index. The probabilities of all nodes of the
            corpus sum to 1.
        """
        blocks = _row_blocks(len(seeds), len(self.dangling))
        rankings = [_top(self.score(seeds.nodes[rows], seeds.scores[rows]), top_k) for rows in blocks]
        return Ranking.concatenate(rankings)

    @torch.no_grad()
    def score(self, nodes: Tensor, weight: Tensor) -> Tensor:
        """Compute the probability of every node.

        Args:
            nodes: Seed nodes ``[B, S]``, padded with -1.
            weight: Restart weights of the seeds, ``[B, S]``.

        Returns:
            Probabilities ``[B, N]``.
        """
        valid = nodes >= 0
        weight = weight.masked_fill(~valid, 0.0).clamp(min=0)
        weight = torch.where((weight.sum(1, keepdim=True) > 0), weight, valid.to(weight))
        row, column = torch.nonzero(valid, as_tuple=True)
        seed = nodes[row, column]
        share = (weight / weight.sum(1, keepdim=True).clamp(min=1e-30))[row, column]  # restart distribution
        mass = torch.zeros(len(self.dangling), len(nodes), device=nodes.device)  # [N, B], as sparse products need
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
            spread -= self.num_shared.unsqueeze(1) * offered  # remove the mass that would return to the passage itself
        return spread


class EntityPPR:
    r"""Rank passages by a random walk between passages and entities that starts at the entities of the top passages.

    .. math::
        r_e \propto \sum_{i : e \in E_i^m} \frac{1}{\mathrm{rank}_i} \frac{s_e}{\sum_{e' \in E_i^m} s_{e'}}, \qquad
        x^{(t+1)} = c\,r + (1 - c)\,Q\,P\,x^{(t)}, \qquad p = P\,x^{(T)}

    with :math:`s_e = \ln(1 + N / n_e)` the specificity of an entity that occurs in :math:`n_e` of :math:`N` passages,
    and :math:`E_i^m` the 5 most specific entities of seed :math:`i`. An entity distributes its mass equally among its
    passages (:math:`P`). A passage distributes its mass among its entities in proportion to :math:`s_e` (:math:`Q`).

    Source: HippoRAG 2, which walks over passages and entities from the entities of facts that match the question.
    *Differences from the paper:* no language model is used, and the number of steps is fixed. The entities of the
    question itself are not seeds, because the base ranking has already found their passages. Using them as seeds
    reduced recall on the training questions of 2WikiMultihopQA.

    Args:
        incidence: Entities of each passage.
        num_seeds: Number of passages at the top of a ranking whose entities are seeds.
        restart_prob: Probability of returning to the seeds at each step, in (0, 1].
        num_steps: Number of iterations.

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
        num_seeds: int = 30,
        restart_prob: float = 0.5,
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
        """Rank the passages that can be reached from the seeds through entities.

        Args:
            seeds: Ranking ``[B, S]`` whose top passages are the seeds, best first.
            top_k: Number of passages to return per query.
            exclude: Passages that must not be returned, ``[B, M]``, padded with -1.

        Returns:
            Ranking ``[B, top_k]``, padded where fewer passages are reached.
        """
        rankings = []
        for rows in _row_blocks(len(seeds), max(self._incidence.num_nodes, self._incidence.num_entities)):
            mass = self.score(seeds.nodes[rows])
            forbidden = torch.where(exclude[rows] >= 0, exclude[rows], mass.shape[1])
            mass = torch.cat([mass, mass[:, :1]], dim=1).scatter_(1, forbidden, 0.0)[:, :-1]
            rankings.append(_top(mass, top_k))
        return Ranking.concatenate(rankings)

    @torch.no_grad()
    def score(self, nodes: Tensor) -> Tensor:
        """Compute the probability mass of every passage.

        Args:
            nodes: Seed passages ``[B, S]``, best first, padded with -1.

        Returns:
            Mass ``[B, N]``.
        """
        seed = self._seed(nodes)
        mass = seed
        for _ in range(self.num_steps):
            mass = self.restart_prob * seed + (1 - self.restart_prob) * (self._to_entities @ (self._to_passages @ mass))
        reached: Tensor = self._to_passages @ mass
        return reached.T.contiguous()

    def _seed(self, nodes: Tensor) -> Tensor:
        """Return the restart distribution over the entities, ``[M, B]``."""
        top = nodes[:, : self.num_seeds]
        row, column = torch.nonzero(top >= 0, as_tuple=True)
        position, entity = row_entries(self._incidence.indptr, self._incidence.indices, top[row, column])
        order = torch.argsort(self._incidence.num_holders[entity], stable=True)
        order = order[torch.argsort(position[order], stable=True)]
        order = order[positions_in_rows(position[order]) < ENTITIES_PER_SEED]
        position, entity = position[order], entity[order]
        specificity = self._specificity[entity]
        total = torch.zeros(len(row), device=top.device).index_add_(0, position, specificity)
        weight = specificity / total[position] / (column[position] + 1)
        seed = torch.zeros(self._incidence.num_entities, len(nodes), device=top.device)
        seed.index_put_((entity, row[position]), weight, accumulate=True)
        return seed / seed.sum(0).clamp(min=1e-30)


def corpus_entities(graph: CorpusGraph) -> EntityIncidence:
    """Return the entities of a corpus.

    Args:
        graph: Corpus graph.

    Returns:
        Entities that the corpus was built with. If it has none, names are extracted from the texts by spelling
        patterns.
    """
    if graph.entities is not None:
        return graph.entities
    found = PatternEntityExtractor().extract(graph.all_texts)
    names = normalized_names([knowledge.names for knowledge in found])
    return EntityIncidence.from_names(names, max_share=MAX_ENTITY_SHARE).to(graph.device)


def _row_blocks(num_queries: int, width: int) -> list[slice]:
    """Return slices of queries whose scores, ``width`` per query, fit into memory. Return at least one slice."""
    size = max(1, BLOCK_SCORES // max(1, width))
    return [slice(start, start + size) for start in range(0, max(1, num_queries), size)]


def _top(mass: Tensor, top_k: int) -> Ranking:
    return Ranking(*top_k_by_node_order(mass.masked_fill(mass == 0, -torch.inf), top_k))
