"""A trained graph reranker as a step of a pipeline over a corpus graph."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs, GraphScorer, GraphScorerFactory, Queries, Ranking
from graphrerank.core.adapters import as_encoder
from graphrerank.core.loads_checkpoint import LoadsCheckpoint
from graphrerank.core.queries import TextEncoder
from graphrerank.corpus import CorpusGraph
from graphrerank.features.candidate_graph_builder import CandidateGraphBuilder, CorpusCandidates
from graphrerank.features.text_match import TEXT_MATCH_FEATURES, TextMatch
from graphrerank.models.checkpoint import load_primary
from graphrerank.rerank.explanation import DocumentExplanation, Explainer


class CheckpointScorer(GraphScorer, LoadsCheckpoint):
    """Scores candidates with a checkpoint's model, as ``python evaluate.py checkpoint=...`` does.

    The words of the corpus are indexed if the model reads which of the query's words a passage covers. ``checkpoint``
    is a shipped name, a run folder (its primary model), a ``.ckpt`` file or an artifact's folder; ``text_encoder`` is
    that of the corpus, for models that read vectors; ``device`` is CUDA where there is one when None.
    """

    def __init__(
        self,
        graph: CorpusGraph,
        *,
        checkpoint: str | Path = "base",
        text_encoder: TextEncoder | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._encoder = text_encoder
        self._load(checkpoint, graph)
        self._over(graph)

    def _load(self, checkpoint: str | Path, graph: CorpusGraph) -> None:
        self._checkpoint = checkpoint
        loaded = load_primary(checkpoint)
        manifest = loaded.graph_reranker
        self.feature_names = manifest.retriever.feature_names
        self.inputs = manifest.inputs
        self.name = manifest.name
        self.calibration, self.confidence = manifest.calibration, manifest.list_confidence
        if self.inputs.reads_vectors:
            if self._encoder is None or graph.embedding is None:
                loaded.check_encoder(None, None)
            else:
                encoder = as_encoder(self._encoder)
                loaded.check_encoder(encoder.name, encoder.fingerprint)
        self._model = loaded.model.to(self.device).eval()

    def _over(self, graph: CorpusGraph, match: TextMatch | None = None) -> None:
        self._graph = graph
        reads = set(TEXT_MATCH_FEATURES) & set(self.feature_names)
        self._match = (match or TextMatch.of(graph)) if reads else None

    def over(self, graph: CorpusGraph, **_: Any) -> "CheckpointScorer":
        """Return a scorer with the same model over another graph of the same encoder, such as a part of this one's."""
        other = copy(self)
        other._over(graph)
        return other

    def factory_over(self, factory: GraphScorerFactory) -> GraphScorerFactory:
        """Return :meth:`over`, so that the loaded model is shared."""
        return self.over

    def with_model(self, model: "str | Path | CheckpointScorer") -> "CheckpointScorer":
        """Return a scorer over the same graph with the model of another checkpoint or scorer."""
        other = copy(model if isinstance(model, CheckpointScorer) else self)
        if not isinstance(model, CheckpointScorer):
            other.__dict__.pop("_explainer", None)
            other._load(model, self._graph)
        other._over(self._graph, self._match)
        return other

    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the graphs of candidates with the scores that the model was trained on.

        Args:
            queries: ``B`` queries, with vectors for a model that reads them.
            ranking: ``[B, K]`` candidates with ``features [B, K, F]``.
            feature_names: Names of the ``F`` features.

        Returns:
            ``B`` packed graphs.

        Raises:
            UserError: If the ranking misses a score that the model reads.
        """
        builder = CandidateGraphBuilder(self.inputs, self.feature_names)
        return builder.from_corpus(CorpusCandidates(self._graph, queries, ranking, feature_names, self._match))

    @torch.no_grad()
    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates: ``[N]``, on the model's device; comparable within a query only."""
        scores: Tensor = self._model(*graphs.to(self.device).model_inputs(self.inputs))
        return scores

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Return how likely the candidates of one query are relevant, by their scores ``[n]``.

        None for a model that is not calibrated, and where all have one score, which then tells nothing.
        """
        is_known = self.calibration is not None and bool((scores != scores[:1]).any())
        return self.calibration.probabilities(scores.cpu()) if is_known and self.calibration is not None else None

    def explain(
        self, queries: Queries, graphs: CandidateGraphs, *, max_edges: int, check: Callable[[], None]
    ) -> list[DocumentExplanation]:
        """Explain the scores of one query's candidates, as :meth:`Explainer.explain_graph`."""
        graph, (query,) = graphs.to("cpu"), queries.texts
        return self._explainer.explain_graph(graph, query, self._match, max_edges=max_edges, check=check)

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(load_primary(self._checkpoint))
