"""Augmentation that makes training candidates resemble those of other retrievers and graphs."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from graphrerank.checks import check_share
from graphrerank.data.query_draws import QueryDraws
from graphrerank.data.type_augmentation import TypeAugmentation
from graphrerank.features.text_match import TEXT_MATCH_FEATURES
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.algebra import graph_index
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES, EXPANSION_FEATURES, TEXT_FEATURES


class CandidateAugmentation:
    """Hide scores and edges of whole queries at random.

    Each draw is made once per query, so that its list remains one that some retriever could give: with a hybrid, dense
    or BM25 score as base score, with or without the other scores, with or without a graph. A hidden score is 0 for
    every candidate: models scale scores within a list, where a constant carries no information.

    Args:
        feature_names: Names of the scores in ``CandidateGraphs.x``; the first is the base ranking's.
        base_swap: Probability in [0, 1] that BM25 or the cosine, equally likely, replaces the base score.
        score_dropout: Probability in [0, 1] that a score other than the base score is hidden. Those of an expansion
            are hidden together, and so are those of :class:`TextMatch`.
        cross_encoder_dropout: Probability in [0, 1] that a cross-encoder's scores are hidden, all together; they are
            hidden by nothing else.
        edge_dropout: Probability in [0, 1] that a query's graph loses all edges and the scores computed from them.
        **types: As of :class:`~graphrerank.data.type_augmentation.TypeAugmentation`, which comes last.

    Raises:
        ValueError: If a probability is out of range.
    """

    def __init__(
        self,
        feature_names: Sequence[str],
        *,
        base_swap: float = 0.0,
        score_dropout: float = 0.0,
        cross_encoder_dropout: float = 0.0,
        edge_dropout: float = 0.0,
        **types: float,
    ) -> None:
        check_share(base_swap=base_swap, score_dropout=score_dropout, edge_dropout=edge_dropout)
        check_share(cross_encoder_dropout=cross_encoder_dropout)
        self.base_swap = base_swap
        self.edge_dropout = edge_dropout
        column = {name: index for index, name in enumerate(feature_names)}
        groups = (EXPANSION_FEATURES, TEXT_MATCH_FEATURES, CROSS_ENCODER_FEATURES)
        *together, of_pairs = ([column[name] for name in group if name in column] for group in groups)
        alone = sorted(set(column.values()) - {0}.union(of_pairs, *together))
        self.alone = column.get("query_coverage")
        self.together = column.get("neighbourhood_coverage")
        self.augment_types = TypeAugmentation(**types)
        self.rankable = [column[name] for name in TEXT_FEATURES if name in column]
        # columns that are hidden together, and with what probability
        self.hidden_together = [(columns, score_dropout) for columns in (*([index] for index in alone), *together)]
        self.hidden_together += [(of_pairs, cross_encoder_dropout)]

    def __call__(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        """Return a changed copy of a batch."""
        graph = graph_index(graphs.ptr)
        x = graphs.x.clone()
        if self.rankable:
            swapped = draws.uniform() < self.base_swap
            column = torch.tensor(self.rankable)[draws.choice(len(self.rankable))][graph]
            x[:, 0] = torch.where(swapped[graph], x.gather(1, column.unsqueeze(1)).squeeze(1), x[:, 0])
        bare = (draws.uniform() < self.edge_dropout)[graph]
        if self.alone is not None and self.together is not None:  # equal without neighbours
            x[:, self.together] = torch.where(bare, x[:, self.alone], x[:, self.together])
        for columns, probability in filter(lambda entry: entry[0], self.hidden_together):
            hidden = (draws.uniform() < probability)[graph]
            x[:, columns] = x[:, columns].masked_fill(hidden.unsqueeze(1), 0.0)
        kept = ~bare[graphs.edge_index[1]]
        return self.augment_types(replace(graphs, x=x).select_edges(kept), draws)
