"""Augmentation of training candidates, so that a model generalises to other retrievers and graphs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs
from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES, EXPANSION_FEATURES, TEXT_FEATURES
from graphrerank.corpus.edge_lists import merge_parallel, merge_parallel_of_types
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER
from graphrerank.data.augmentation_settings import AugmentationSettings
from graphrerank.features.text_match import TEXT_MATCH_FEATURES
from graphrerank.utils.checks import UserError, check_share

SHORTEST_CUT, LONGEST_CUT = 20, 80  # Minimum and maximum number of candidates in a truncated list.
MAX_NOISE_EDGES = 1500  # Maximum number of random edges per query.


class QueryDraws:
    """Random draws for every query of a batch, of which this process uses its share.

    Processes that share a batch draw the same numbers from the same seed, so the draws of a query do not depend on the
    number of processes.

    Args:
        generator: Random generator.
        num_queries: Number of queries in the batch.
        share: Slice of the ``B`` queries of this process.
    """

    def __init__(self, generator: torch.Generator, num_queries: int, share: slice = slice(None)) -> None:
        self.generator = generator
        self.num_queries = num_queries
        self.share = share

    def uniform(self, *shape: int) -> Tensor:
        """Draw uniform numbers from [0, 1).

        Args:
            *shape: Shape of the draw for one query.

        Returns:
            Tensor ``[B, *shape]`` float32.
        """
        return torch.rand(self.num_queries, *shape, generator=self.generator)[self.share]

    def choice(self, options: int) -> Tensor:
        """Draw uniform integers from 0 to ``options - 1``.

        Args:
            options: Number of options.

        Returns:
            Tensor ``[B]`` int64.
        """
        return torch.randint(options, (self.num_queries,), generator=self.generator)[self.share]


@dataclass
class CandidateAugmentation(AugmentationSettings):
    """Random changes of scores and edges in training batches. Each change applies to a whole query.

    Changes are drawn once per query, so that its list remains one that some retriever could produce. A hidden score is
    0 for every candidate. Models scale scores within a list, where a constant carries no information. The probabilities
    are those of :class:`~graphrerank.data.augmentation_settings.AugmentationSettings`, 0 by default.

    Args:
        feature_names: Names of the scores in ``CandidateGraphs.x``. The first is the score of the base ranking.

    Raises:
        ValueError: If a probability is out of range.
    """

    feature_names: Sequence[str]

    def __post_init__(self) -> None:
        check_share(**{field.name: getattr(self, field.name) for field in fields(AugmentationSettings)})
        column = {name: index for index, name in enumerate(self.feature_names)}
        groups = (EXPANSION_FEATURES, TEXT_MATCH_FEATURES, CROSS_ENCODER_FEATURES)
        *together, cross_encoder = ([column[name] for name in group if name in column] for group in groups)
        alone = sorted(set(column.values()) - {0}.union(cross_encoder, *together))
        self.coverages = [column.get(name) for name in ("query_coverage", "neighbourhood_coverage")]
        self.rankable = [column[name] for name in TEXT_FEATURES if name in column]
        # Columns that are hidden together, and the probability of hiding them.
        hidden = [(columns, self.score_dropout) for columns in (*([index] for index in alone), *together)]
        self.hidden_together = [entry for entry in (*hidden, (cross_encoder, self.cross_encoder_dropout)) if entry[0]]

    def __call__(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        """Return a changed copy of a batch.

        Args:
            graphs: Candidate graphs of the queries.
            draws: Random draws for the same queries.

        Returns:
            Changed candidate graphs.

        Raises:
            ValueError: If edge types are to be changed, but the edges of the batch have no types.
        """
        graph = graph_of_nodes(graphs.ptr, graphs.num_nodes)
        x = graphs.x.clone()
        if self.rankable:
            swapped = draws.uniform() < self.base_swap
            column = torch.tensor(self.rankable)[draws.choice(len(self.rankable))][graph]
            x[:, 0] = torch.where(swapped[graph], x.gather(1, column.unsqueeze(1)).squeeze(1), x[:, 0])
        bare = (draws.uniform() < self.edge_dropout)[graph]
        if None not in self.coverages:  # Without neighbours, both coverages are equal.
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
                "`type_merge`, `type_swap` and `type_dropout` must be 0 for edges without types, got probabilities "
                "above 0; use a model with `num_edge_types` (features=scores_match_typed)"
            )
        num_types = len(EDGE_TYPES)
        merged = draws.uniform() < self.type_merge
        swapped = draws.uniform() < self.type_swap
        order = torch.argsort(draws.uniform(num_types), dim=1)
        becomes = torch.where(swapped.unsqueeze(1), order, torch.arange(num_types))  # [B, T], new type of each type
        dropped = draws.uniform(num_types) < self.type_dropout  # [B, T], by the new type
        dropped &= ~merged.unsqueeze(1)
        graph = graph_of_nodes(graphs.ptr, graphs.num_nodes)[graphs.edge_index[1]]  # [E], graph of each edge
        edge_type = becomes[graph, graphs.edge_type].masked_fill(merged[graph], OTHER)
        mask = ~dropped[graph, edge_type]
        pairs, weight, edge_type = merge_parallel_of_types(
            graphs.edge_index[:, mask].flip(0).T, graphs.edge_attr[mask], edge_type[mask], graphs.num_nodes
        )
        return replace(graphs, edge_index=pairs.T.flip(0), edge_attr=weight, edge_type=edge_type)

    def _with_noise(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        noisy = draws.uniform() < self.edge_noise
        count = (draws.uniform() * MAX_NOISE_EDGES).long() * noisy  # [B]
        type_of_query = draws.choice(len(EDGE_TYPES))
        size = (graphs.ptr[1:] - graphs.ptr[:-1]).view(-1, 1, 1)
        ends = (draws.uniform(MAX_NOISE_EDGES, 2) * size).long() + graphs.ptr[:-1].view(
            -1, 1, 1
        )  # [B, MAX_NOISE_EDGES, 2]
        drawn = (torch.arange(MAX_NOISE_EDGES) < count.unsqueeze(1)) & (ends[..., 0] != ends[..., 1])
        random = ends[drawn]  # [M, 2]
        pairs = torch.cat([graphs.edge_index.flip(0).T, random, random.flip(1)])
        weight = torch.cat([graphs.edge_attr, graphs.edge_attr.new_ones(2 * len(random))])
        if graphs.edge_type is None:
            pairs, weight = merge_parallel(pairs, weight, graphs.num_nodes)
            return replace(graphs, edge_index=pairs.T.flip(0), edge_attr=weight)
        types = type_of_query.unsqueeze(1).expand_as(drawn)[drawn]
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
        mask = torch.zeros(graphs.num_nodes, dtype=torch.bool)
        mask[order[first]] = True
        return graphs.select_nodes(mask)
