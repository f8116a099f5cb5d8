"""Personalized PageRank over passages and their entities, seeded by the entities of a ranking's top."""

import torch
from torch import Tensor

from graphrerank.checks import check_counts, check_positive_share
from graphrerank.graphs import CorpusGraph, EntityIncidence, Ranking, top_k_by_node_order
from graphrerank.graphs.sparse_rows import positions_in_rows, row_entries, sparse_matrix
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.operators.corpus_ppr import BLOCK_SCORES
from graphrerank.text import normalize_entity

MAX_SHARE = 0.01  # of the passages: entities that are spelled in more of them (and in more than 10) are not read


class EntityPPR:
    r"""Rank passages by the mass that reaches them from the most specific entities of a ranking's top.

    .. math::
        r_e \propto \sum_{i : e \in E_i^m} \frac{1}{\mathrm{rank}_i} \frac{s_e}{\sum_{e' \in E_i^m} s_{e'}}, \qquad
        x^{(t+1)} = c\,r + (1 - c)\,Q\,P\,x^{(t)}, \qquad p = P\,x^{(T)}

    with :math:`s_e = \ln(1 + N / n_e)` the specificity of an entity that :math:`n_e` of :math:`N` passages hold and
    :math:`E_i^m` the ``entities_per_seed`` most specific ones of seed :math:`i`; an entity gives each of its passages
    the same share (:math:`P`), a passage gives its entities shares in proportion to :math:`s_e` (:math:`Q`), so that
    hubs receive and pass on little. Entities that too many passages hold are not in the incidence at all.

    Source: HippoRAG 2, which walks over passages and entities from those of the question's facts. *Where we differ:* no
    language model; the walk has ``num_steps`` steps; entities of the question itself are no seeds. On the training
    questions of 2WikiMultihopQA these cost: the base ranking has found their passages already.

    Example:
        >>> incidence = EntityIncidence.from_names([["metz"], ["metz", "rome"], ["rome"], ["oslo"]])
        >>> seeds = Ranking(torch.tensor([[0]]), torch.tensor([[1.0]]))
        >>> EntityPPR(incidence).expand(seeds, top_k=4).nodes
        tensor([[ 1,  0,  2, -1]])
    """

    def __init__(
        self,
        incidence: EntityIncidence,
        *,
        num_seeds: int = 30,  # passages at the top of a ranking whose entities are seeds
        entities_per_seed: int = 5,
        restart_prob: float = 0.5,  # probability in (0, 1] of returning to the seeds at each step
        num_steps: int = 4,
    ) -> None:
        check_counts(num_seeds=num_seeds, entities_per_seed=entities_per_seed, num_steps=num_steps)
        check_positive_share(restart_prob=restart_prob)
        self.num_seeds, self.entities_per_seed = num_seeds, entities_per_seed
        self.restart_prob, self.num_steps = restart_prob, num_steps
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
    def expand(self, seeds: Ranking, *, top_k: int, exclude: Tensor | None = None) -> Ranking:
        """Rank the passages that mass reaches.

        ``seeds`` are ``[B, S]`` passages, best first, padded with -1 behind; their scores are not read. Passages of
        ``exclude [B, M]`` int64, padded with -1, are not returned.

        Returns:
            ``[B, top_k]``, ties broken by passage number, padded with -1 where mass reaches fewer; the scores of all
            passages sum to 1 if there are seeds.
        """
        width = max(1, self._incidence.num_nodes, self._incidence.num_entities)
        rows = max(1, BLOCK_SCORES // width)
        found = []
        for start in range(0, max(1, len(seeds)), rows):
            block = slice(start, start + rows)
            mass = self.score(seeds.nodes[block])
            if exclude is not None:
                forbidden = torch.where(exclude[block] >= 0, exclude[block], mass.shape[1])
                mass = torch.cat([mass, mass[:, :1]], dim=1).scatter_(1, forbidden, 0.0)[:, :-1]
            found.append(Ranking(*top_k_by_node_order(mass.masked_fill(mass == 0, -torch.inf), top_k)))
        return Ranking.concatenate(found)

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
        order = order[positions_in_rows(place[order]) < self.entities_per_seed]
        place, entity = place[order], entity[order]
        specificity = self._specificity[entity]
        total = torch.zeros(len(row), device=top.device).index_add_(0, place, specificity)
        weight = specificity / total[place] / (column[place] + 1)
        seed = torch.zeros(self._incidence.num_entities, len(nodes), device=top.device)
        seed.index_put_((entity, row[place]), weight, accumulate=True)
        return seed / seed.sum(0).clamp(min=1e-30)


def corpus_entities(graph: CorpusGraph) -> EntityIncidence:
    """Return a corpus's entities; those that its texts show by their spelling if it has none."""
    if graph.entities is not None:
        return graph.entities
    found = PatternEntityExtractor().extract(graph.all_texts)
    names = [{normalize_entity(name) for name in knowledge.names} - {""} for knowledge in found]
    return EntityIncidence.from_names(names, max_share=MAX_SHARE).to(graph.device)
