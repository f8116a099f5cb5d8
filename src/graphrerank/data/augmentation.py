"""Augmentation that makes training candidates resemble those of other retrievers and graphs."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs
from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES, EXPANSION_FEATURES, TEXT_FEATURES
from graphrerank.corpus.edge_lists import merge_parallel, merge_parallel_of_types
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER
from graphrerank.features.text_match import TEXT_MATCH_FEATURES
from graphrerank.utils.checks import UserError, check_share

SHORTEST_CUT, LONGEST_CUT = 20, 80  # candidates that a cut leaves
MAX_NOISE_EDGES = 1500  # random edges of a query


class QueryDraws:
    """Draw for every query of a batch, and keep the draws of some.

    Processes that share a batch draw the same from the same seed, so that a query's draws do not depend on how many
    they are. ``share`` are the kept ones, ``B`` of ``num_queries``.
    """

    def __init__(self, generator: torch.Generator, num_queries: int, share: slice = slice(None)) -> None:
        self.generator = generator
        self.num_queries = num_queries
        self.share = share

    def uniform(self, *shape: int) -> Tensor:
        """Draw from [0, 1), ``[B, *shape]``."""
        return torch.rand(self.num_queries, *shape, generator=self.generator)[self.share]

    def choice(self, options: int) -> Tensor:
        """Draw from ``0`` to ``options - 1``, ``[B]`` int64."""
        return torch.randint(options, (self.num_queries,), generator=self.generator)[self.share]


@dataclass
class CandidateAugmentation:
    """Hide scores and edges of whole queries at random; a ValueError if a probability is out of range.

    Each draw is made once per query, so that its list remains one that some retriever could give. A hidden score is 0
    for every candidate: models scale scores within a list, where a constant carries no information.
    """

    feature_names: Sequence[str]  # of the scores in `CandidateGraphs.x`; the first is the base ranking's
    _: KW_ONLY
    # probabilities in [0, 1]:
    base_swap: float = 0.0  # BM25 or the cosine, equally likely, replaces the base score
    # a score other than the base score is hidden; those of an expansion together, and so those of `TextMatch`
    score_dropout: float = 0.0
    cross_encoder_dropout: float = 0.0  # a cross-encoder's scores are hidden, all together, and by nothing else
    edge_dropout: float = 0.0  # the graph loses all edges and the scores computed from them
    type_merge: float = 0.0  # all edges are merged, and are `other`
    type_swap: float = 0.0  # the types trade places, in any order
    type_dropout: float = 0.0  # the edges of one type are hidden, for each type
    edge_noise: float = 0.0  # up to `MOST_NOISE` edges between random candidates, all of one type, are added
    list_cut: float = 0.0  # only the first 20 to 80 candidates by the base score are kept, if one of them is relevant

    def __post_init__(self) -> None:
        check_share(base_swap=self.base_swap, score_dropout=self.score_dropout, edge_dropout=self.edge_dropout)
        check_share(cross_encoder_dropout=self.cross_encoder_dropout, type_merge=self.type_merge)
        check_share(type_swap=self.type_swap, type_dropout=self.type_dropout, edge_noise=self.edge_noise)
        check_share(list_cut=self.list_cut)
        column = {name: index for index, name in enumerate(self.feature_names)}
        groups = (EXPANSION_FEATURES, TEXT_MATCH_FEATURES, CROSS_ENCODER_FEATURES)
        *together, of_pairs = ([column[name] for name in group if name in column] for group in groups)
        alone = sorted(set(column.values()) - {0}.union(of_pairs, *together))
        self.coverages = [column.get(name) for name in ("query_coverage", "neighbourhood_coverage")]
        self.rankable = [column[name] for name in TEXT_FEATURES if name in column]
        # columns that are hidden together, and with what probability
        hidden = [(columns, self.score_dropout) for columns in (*([index] for index in alone), *together)]
        self.hidden_together = [entry for entry in (*hidden, (of_pairs, self.cross_encoder_dropout)) if entry[0]]

    def __call__(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        """Return a changed copy of a batch.

        Raises:
            ValueError: If types are to be changed and the batch's types are merged.
        """
        graph = graph_of_nodes(graphs.ptr, graphs.num_nodes)
        x = graphs.x.clone()
        if self.rankable:
            swapped = draws.uniform() < self.base_swap
            column = torch.tensor(self.rankable)[draws.choice(len(self.rankable))][graph]
            x[:, 0] = torch.where(swapped[graph], x.gather(1, column.unsqueeze(1)).squeeze(1), x[:, 0])
        bare = (draws.uniform() < self.edge_dropout)[graph]
        if None not in self.coverages:  # equal without neighbours
            alone, together = self.coverages
            x[:, together] = torch.where(bare, x[:, alone], x[:, together])
        for columns, probability in self.hidden_together:
            hidden = (draws.uniform() < probability)[graph]
            x[:, columns] = x[:, columns].masked_fill(hidden.unsqueeze(1), 0.0)
        graphs = replace(graphs, x=x).select_edges(~bare[graphs.edge_index[1]])
        if self.type_merge or self.type_swap or self.type_dropout:
            graphs = self._with_other_types(graphs, draws)
        if self.edge_noise:
            graphs = self._with_noise(graphs, draws)
        return self._cut(graphs, draws) if self.list_cut else graphs

    def _with_other_types(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        if graphs.edge_type is None:
            raise UserError(
                "`type_merge`, `type_swap` and `type_dropout` need edges that keep their type: a model of "
                "`num_edge_types` (features=scores_match_typed)"
            )
        num_types = len(EDGE_TYPES)
        merged = draws.uniform() < self.type_merge
        swapped = draws.uniform() < self.type_swap
        order = torch.argsort(draws.uniform(num_types), dim=1)
        becomes = torch.where(swapped.unsqueeze(1), order, torch.arange(num_types))  # [B, T], for types as they were
        dropped = draws.uniform(num_types) < self.type_dropout  # [B, T], for types as they are
        dropped &= ~merged.unsqueeze(1)
        of_edge = graph_of_nodes(graphs.ptr, graphs.num_nodes)[graphs.edge_index[1]]
        edge_type = becomes[of_edge, graphs.edge_type].masked_fill(merged[of_edge], OTHER)
        kept = ~dropped[of_edge, edge_type]
        pairs, weight, edge_type = merge_parallel_of_types(
            graphs.edge_index[:, kept].flip(0).T, graphs.edge_attr[kept], edge_type[kept], graphs.num_nodes
        )
        return replace(graphs, edge_index=pairs.T.flip(0), edge_attr=weight, edge_type=edge_type)

    def _with_noise(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        noisy = draws.uniform() < self.edge_noise
        count = (draws.uniform() * MAX_NOISE_EDGES).long() * noisy  # [B]
        of_query = draws.choice(len(EDGE_TYPES))
        size = (graphs.ptr[1:] - graphs.ptr[:-1]).view(-1, 1, 1)
        ends = (draws.uniform(MAX_NOISE_EDGES, 2) * size).long() + graphs.ptr[:-1].view(-1, 1, 1)  # [B, MOST_NOISE, 2]
        drawn = (torch.arange(MAX_NOISE_EDGES) < count.unsqueeze(1)) & (ends[..., 0] != ends[..., 1])
        random = ends[drawn]  # [M, 2]
        pairs = torch.cat([graphs.edge_index.flip(0).T, random, random.flip(1)])
        weight = torch.cat([graphs.edge_attr, graphs.edge_attr.new_ones(2 * len(random))])
        if graphs.edge_type is None:
            pairs, weight = merge_parallel(pairs, weight, graphs.num_nodes)
            return replace(graphs, edge_index=pairs.T.flip(0), edge_attr=weight)
        types = of_query.unsqueeze(1).expand_as(drawn)[drawn]
        edge_type = torch.cat([graphs.edge_type, types, types])
        pairs, weight, edge_type = merge_parallel_of_types(pairs, weight, edge_type, graphs.num_nodes)
        return replace(graphs, edge_index=pairs.T.flip(0), edge_attr=weight, edge_type=edge_type)

    def _cut(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        is_cut = draws.uniform() < self.list_cut
        depth = SHORTEST_CUT + (draws.uniform() * (LONGEST_CUT - SHORTEST_CUT)).long()
        order = graphs.order(graphs.x[:, 0])  # [B, K]
        first = (torch.arange(order.shape[1]) < depth.unsqueeze(1)) & (order >= 0)
        assert graphs.relevance is not None
        answerable = (first & (graphs.relevance[order.clamp(min=0)] > 0)).any(1)
        first |= ~(is_cut & answerable).unsqueeze(1) & (order >= 0)
        kept = torch.zeros(graphs.num_nodes, dtype=torch.bool)
        kept[order[first]] = True
        return graphs.select_nodes(kept)
