"""Make training candidates look like those of other retrievers and graphs, so that one checkpoint serves them all."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphrerank.data.text_match import MATCH_FEATURES
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.algebra import graph_index
from graphrerank.graphs.retriever import EXPANSION_FEATURES, TEXT_FEATURES


class CandidateAugmentation:
    """Hide scores and edges of whole queries at random.

    Each draw is made once per query, so that a list stays what some retriever could have given: with a hybrid, a dense
    or a BM25 score as its base score, with or without the other scores beside it, with or without a graph. A hidden
    score is 0 for every candidate: models scale scores within the list, so that a constant says nothing.

    Args:
        feature_names: Names of the scores in ``CandidateGraphs.x``; the first is the base ranking's.
        base_swap: Probability that BM25 or the cosine takes the place of the base score, one as likely as the
            other, in [0, 1].
        score_dropout: Probability that a score other than the base score is hidden, in [0, 1]. Those of an expansion
            are hidden together, and so are those of :class:`TextMatch`.
        edge_dropout: Probability that a query's graph loses all its edges, and what was computed from them, in [0, 1].

    Raises:
        ValueError: If a probability is out of range.
    """

    def __init__(
        self,
        feature_names: Sequence[str],
        *,
        base_swap: float = 0.0,
        score_dropout: float = 0.0,
        edge_dropout: float = 0.0,
    ) -> None:
        for name, p in (("base_swap", base_swap), ("score_dropout", score_dropout), ("edge_dropout", edge_dropout)):
            if not 0 <= p <= 1:
                raise ValueError(f"`{name}` must be a probability in [0, 1], got {p}")
        self.base_swap = base_swap
        self.score_dropout = score_dropout
        self.edge_dropout = edge_dropout
        place = {name: column for column, name in enumerate(feature_names)}
        together = [[place[name] for name in group if name in place] for group in (EXPANSION_FEATURES, MATCH_FEATURES)]
        alone = sorted(set(place.values()) - {0}.union(*together))
        covered = [place.get(name) for name in ("query_coverage", "neighbourhood_coverage")]
        self.covered = None if None in covered else covered
        self.rankable = [place[name] for name in TEXT_FEATURES if name in place]
        self.hidden_together = [*([column] for column in alone), *filter(None, together)]

    def __call__(self, graphs: CandidateGraphs, generator: torch.Generator) -> CandidateGraphs:
        """Return a changed copy of a batch; what is drawn depends on ``generator`` alone."""
        graph = graph_index(graphs.ptr)
        x = graphs.x.clone()
        if self.rankable:
            swapped = self._draw(graphs.num_graphs, self.base_swap, generator)
            choice = torch.randint(len(self.rankable), (graphs.num_graphs,), generator=generator)
            column = torch.tensor(self.rankable)[choice][graph]
            x[:, 0] = torch.where(swapped[graph], x.gather(1, column.unsqueeze(1)).squeeze(1), x[:, 0])
        bare = self._draw(graphs.num_graphs, self.edge_dropout, generator)[graph]
        if self.covered is not None:  # without neighbours the last two are one
            alone, together = self.covered
            x[:, together] = torch.where(bare, x[:, alone], x[:, together])
        for columns in self.hidden_together:
            hidden = self._draw(graphs.num_graphs, self.score_dropout, generator)[graph]
            x[:, columns] = x[:, columns].masked_fill(hidden.unsqueeze(1), 0.0)
        kept = ~bare[graphs.edge_index[1]]
        return replace(graphs, x=x, edge_index=graphs.edge_index[:, kept], edge_attr=graphs.edge_attr[kept])

    def _draw(self, num_graphs: int, probability: float, generator: torch.Generator) -> Tensor:
        return torch.rand(num_graphs, generator=generator) < probability
