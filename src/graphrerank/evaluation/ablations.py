"""Edge ablations: the same candidates with shuffled edges, without edges, or without the edges of one type."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.edge_rewiring import shuffle_each_type, shuffle_edges
from graphrerank.evaluation.systems import System
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch

SHUFFLED, REMOVED, EACH_TYPE = EDGE_ABLATIONS = ("shuffled", "removed", "each_type")
WITHOUT_TYPE = "without "  # prefix of the name of an ablation that removes one type
EDGE_DEPENDENT_FEATURE = MATCH_FEATURES[2]


class EdgeAblation:
    """Variants of a system that rerank the same candidates with other edges between them.

    - ``shuffled``: Edges are shuffled. Every candidate keeps its number of neighbours among the candidates, separately
      for each edge type if the model distinguishes types.
    - ``removed``: All edges are removed.
    - ``each_type``: One variant per edge type, such as ``without entity``, without the edges of this type. If the
      corpus has a single edge type, there are no such variants.

    All features that depend on edges are recomputed, including the query words that a candidate's neighbours contain
    (:class:`~graphrerank.features.text_match.TextMatch`).

    Args:
        prepared: Data set with the candidates of its queries.
        kinds: Ablations to build, a subset of ``EDGE_ABLATIONS``. Defaults to all of them.
        seed: Random seed for shuffling.
    """

    def __init__(self, prepared: PreparedDataset, kinds: Sequence[str] = EDGE_ABLATIONS, *, seed: int = 0) -> None:
        corpus, types = prepared.dataset.graph, prepared.dataset.graph.edge_types()
        # One corpus graph per variant. Shuffled edges are drawn per batch, so their entry is None.
        self._graphs: dict[str, CorpusGraph | None] = {SHUFFLED: None} if SHUFFLED in kinds else {}
        if REMOVED in kinds:
            self._graphs[REMOVED] = corpus.without_edges()
        if EACH_TYPE in kinds and len(types) > 1:
            for removed_type in types:
                other_types = [edge_type for edge_type in types if edge_type != removed_type]
                self._graphs[f"{WITHOUT_TYPE}{EDGE_TYPES[removed_type]}"] = corpus.with_types(other_types)
        self._prepared = prepared
        self._seed = seed
        reads_feature = kinds and EDGE_DEPENDENT_FEATURE in prepared.feature_names
        self._match = TextMatch.of(prepared.dataset.graph) if reads_feature else None

    def systems(self, system: System) -> dict[str, System]:
        """Return the variants of a system.

        Args:
            system: System to ablate.

        Returns:
            Systems by the name of the ablation. Empty for a system that does not use edges, and for one that uses
            states of tokens, which every ablation would compute again.
        """
        if not system.reads_graph or system.inputs.last_layers:
            return {}
        return {
            kind: replace(system, score=partial(self._score, system, graph)) for kind, graph in self._graphs.items()
        }

    def _score(self, system: System, corpus: CorpusGraph | None, graphs: CandidateGraphs) -> Tensor:
        ablated = self._shuffle(graphs) if corpus is None else self._with_edges_of(corpus, graphs)
        if self._match is not None:
            assert graphs.query_index is not None
            assert graphs.nodes is not None
            texts = [self._prepared.dataset.query_texts[query] for query in graphs.query_index.tolist()]
            x, column = graphs.x.clone(), self._prepared.feature_names.index(EDGE_DEPENDENT_FEATURE)
            x[:, column] = self._match.score(texts, graphs.nodes, ablated.edge_index, graphs.ptr)[:, -1]
            ablated = replace(ablated, x=x)
        return system.score(ablated)

    def _shuffle(self, graphs: CandidateGraphs) -> CandidateGraphs:
        generator, types = torch.Generator().manual_seed(self._seed), graphs.edge_type
        if types is None:
            edges, weight = shuffle_edges(graphs.edge_index, graphs.edge_attr, graphs.ptr, generator=generator)
        else:
            edges, weight, types = shuffle_each_type(
                graphs.edge_index, graphs.edge_attr, types, graphs.ptr, generator=generator
            )
        return replace(graphs, edge_index=edges, edge_attr=weight, edge_type=types)

    def _with_edges_of(self, corpus: CorpusGraph, graphs: CandidateGraphs) -> CandidateGraphs:
        assert graphs.query_index is not None
        nodes = self._prepared.ranking.select(graphs.query_index.cpu()).nodes
        keep_types, device = graphs.edge_type is not None, graphs.x.device
        edges, weight, _, types = candidate_edges(corpus, nodes, keep_types=keep_types)
        types = None if types is None else types.to(device)
        return replace(graphs, edge_index=edges.to(device), edge_attr=weight.to(device), edge_type=types)
