"""Graph scorer for pipelines that uses the model of a checkpoint."""

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
    """Score candidates with the model of a checkpoint, as ``graphrerank evaluate checkpoint=...`` does.

    The words of the corpus are indexed if the model has word-match features.

    Args:
        graph: Corpus graph of the candidates.
        checkpoint: Name of a shipped checkpoint, run folder (its primary model is loaded), ``.ckpt`` file or folder of
            an artifact.
        text_encoder: Encoder of the vectors of ``graph``. Required by models that use vectors.
        device: Device of the model. If None, CUDA if it is available, otherwise the CPU.

    Raises:
        UserError: If there is no such checkpoint, or if its model was trained with another encoder.
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
        """Return a scorer with the same model for another graph, such as a subgraph of the current graph.

        Args:
            graph: Corpus graph whose vectors come from the same encoder.
        """
        other = copy(self)
        other._over(graph)
        return other

    def factory_over(self, factory: GraphScorerFactory) -> GraphScorerFactory:
        """Return :meth:`over`, so that all scorers share the loaded model.

        Args:
            factory: Factory that built this scorer.
        """
        return self.over

    def with_model(self, model: "str | Path | CheckpointScorer") -> "CheckpointScorer":
        """Return a scorer for the same graph with another model.

        Args:
            model: Checkpoint to load (see ``checkpoint`` of the constructor), or a scorer whose model is used.
        """
        other = copy(model if isinstance(model, CheckpointScorer) else self)
        if not isinstance(model, CheckpointScorer):
            other.__dict__.pop("_explainer", None)
            other._load(model, self._graph)
        other._over(self._graph, self._match)
        return other

    def candidate_graphs(self, queries: Queries, ranking: Ranking, feature_names: Sequence[str]) -> CandidateGraphs:
        """Build the candidate graphs with the features that the model was trained on.

        Args:
            queries: ``B`` queries, with vectors if the model uses vectors.
            ranking: ``[B, K]`` candidates with ``features [B, K, F]``.
            feature_names: Names of the ``F`` features.

        Returns:
            ``B`` packed graphs.

        Raises:
            UserError: If the ranking lacks a feature of the model.
        """
        builder = CandidateGraphBuilder(self.inputs, self.feature_names)
        return builder.from_corpus(CorpusCandidates(self._graph, queries, ranking, feature_names, self._match))

    @torch.no_grad()
    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Return the scores ``[N]`` of the candidates, on the model's device. They are comparable within a query.

        Args:
            graphs: Packed graphs from :meth:`candidate_graphs`.
        """
        scores: Tensor = self._model(*graphs.to(self.device).model_inputs(self.inputs))
        return scores

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Convert the scores of one query's candidates to probabilities of relevance.

        Args:
            scores: ``[n]`` scores.

        Returns:
            ``[n]`` probabilities. None if the model is not calibrated, or if all scores are equal and therefore carry
            no information.
        """
        is_known = self.calibration is not None and bool((scores != scores[:1]).any())
        return self.calibration.probabilities(scores.cpu()) if is_known and self.calibration is not None else None

    def explain(
        self, queries: Queries, graphs: CandidateGraphs, *, max_edges: int, check: Callable[[], None]
    ) -> list[DocumentExplanation]:
        """Explain the scores of one query's candidates (see :meth:`Explainer.explain_graph`).

        Args:
            queries: One query.
            graphs: Candidate graph of the query.
            max_edges: Maximum number of undirected edges. The model is evaluated once per edge.
            check: Function that is called repeatedly during the computation. It may raise an exception to cancel it.

        Returns:
            One explanation per candidate, in the order of the nodes.
        """
        graph, (query,) = graphs.to("cpu"), queries.texts
        return self._explainer.explain_graph(graph, query, self._match, max_edges=max_edges, check=check)

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(load_primary(self._checkpoint))
