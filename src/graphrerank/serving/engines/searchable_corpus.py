"""Corpus to search, and its views: the subsets that are visible to a caller or match a filter."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from graphrerank.core.adapters import query_encoder
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.filters import Filter
from graphrerank.corpus.relations import valid_at
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.step import Step
from graphrerank.pipelines.steps import GraphRerank
from graphrerank.pipelines.views import Views
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.engine import Refusal, fault_of_service
from graphrerank.serving.schemas.search import CorpusRequest

MOST_SCORERS = 3  # cached scorers of other artifacts: one that serves, one to compare, and one being replaced


@dataclass(frozen=True)
class SearchableCorpus:
    """Corpus with its pipeline and encoder, and its views for callers and filters.

    Attributes:
        graph: Corpus graph.
        pipeline: Pipeline that searches the corpus.
        encoder: Encoder of queries. None if no step needs vectors.
        compared: Additional pipelines by name. The page shows their rankings for comparison.
        see: Function that returns the graph visible to the given principals. None to use the graph's own ``seen_by``.
        has_permissions: Whether callers have principals.
        fingerprint: Fingerprint of the data set. None if unknown.
    """

    graph: CorpusGraph
    pipeline: Pipeline
    encoder: MemoryVectorCache | None
    compared: Mapping[str, Pipeline] = field(default_factory=dict)
    see: Callable[[frozenset[str]], CorpusGraph] | None = None
    has_permissions: bool = False
    fingerprint: str | None = None

    @fault_of_service()
    def view(self, request: CorpusRequest) -> "SearchableCorpus":
        """Return the subset of the corpus that a request may search.

        Args:
            request: Request with its caller and filter.

        Raises:
            Refusal: If the filter is invalid for the corpus.
        """
        seen = self._seen_by(self.graph.known_principals(request.caller.principals))
        metadata = seen.graph.passages.metadata
        if metadata is None:
            return seen._where(request.filter)
        valid = valid_at(request.as_of, metadata.times) if metadata.times else {}
        conditions = [condition for condition in (valid, request.filter) if condition]
        return seen._where({"and": conditions} if conditions else {}, ranks_now=request.as_of is None)

    def _seen_by(self, principals: frozenset[str]) -> "SearchableCorpus":
        """Return the subset visible to the given principals. Principals with equal visibility share one view."""
        if not self.graph.is_guarded:
            return self
        see, graph = self.see or self.graph.seen_by, self.graph
        make: Callable[[Tensor], SearchableCorpus] = lambda _: self._over(see(principals).to(graph.device))  # noqa: E731
        selection = ("principals", principals)
        return self._views.get(selection, lambda: graph.held_by(principals), make, variant="principals")

    def _where(self, conditions: Filter, *, ranks_now: bool = True) -> "SearchableCorpus":
        """Return the view of the passages that match a filter.

        Args:
            conditions: Filter, including the condition on the time of validity.
            ranks_now: Whether a superseded passage ranks below the one that supersedes it, which is the case unless a
                request sets a time. The flag is part of the cache's key because it changes the ranking of the same
                passages.

        Raises:
            Refusal: If the filter is invalid for the corpus.
        """
        graph = self.graph
        if not graph.num_nodes or (ranks_now and not conditions):
            return self

        def make(nodes: Tensor) -> "SearchableCorpus":
            if ranks_now and len(nodes) == graph.num_nodes:
                return self
            subgraph = graph.select(nodes.to(graph.device))
            return self._over(subgraph if ranks_now else subgraph.without_relations())

        def passing() -> Tensor:
            try:
                return graph.numbers_passing(conditions)
            except ValueError as error:
                raise Refusal(422, str(error)) from None

        variant = "ranked as of now" if ranks_now else "ranked as of a time"
        return self._views.get(("filter", json.dumps(conditions)), passing, make, variant=variant)

    def _over(self, graph: CorpusGraph) -> "SearchableCorpus":
        if not graph.num_nodes:
            return replace(self, graph=graph, see=None)
        compared = {name: pipeline.over(graph) for name, pipeline in self.compared.items()}
        return replace(self, graph=graph, pipeline=self.pipeline.over(graph), compared=compared, see=None)

    @cached_property
    def _views(self) -> "Views[SearchableCorpus]":
        return Views(self.graph.num_nodes)

    def by(self, scorer: CheckpointScorer | None) -> "SearchableCorpus":
        """Return the corpus ranked by the model of another scorer. Recent ones are cached.

        Args:
            scorer: Scorer that replaces the scorer of the pipeline's last step. If None, the corpus is unchanged.
        """
        trained = scorer_of(self.pipeline.last_step)
        if scorer is None or trained is None or not self.graph.num_nodes:
            return self
        if (ranked := self._ranked.get(scorer)) is None:
            pipeline = self.pipeline.ranked_by(trained.with_model(scorer))
            ranked = self._ranked[scorer] = replace(self, pipeline=pipeline)
            while len(self._ranked) > MOST_SCORERS:
                self._ranked.pop(next(iter(self._ranked)), None)
        return ranked

    @cached_property
    def _ranked(self) -> "dict[CheckpointScorer, SearchableCorpus]":
        return {}

    def meta(self, version: str) -> dict[str, Any]:
        """Return the description of the corpus in responses.

        Args:
            version: Version of the corpus. It is omitted if callers have principals, because it would reveal changes to
                hidden passages.

        Returns:
            Entries ``language`` and, unless it is omitted, ``index``.
        """
        language = {"language": self.graph.passages.language}
        return language if self.has_permissions else {"index": version, **language}

    def encode(self, texts: list[str]) -> Tensor | None:
        """Return the vectors of queries on the device of the corpus, or None if no vectors are needed.

        Args:
            texts: Texts of the queries.
        """
        return None if self.encoder is None else query_encoder(self.encoder).encode(texts).to(self.graph.device)


def scorer_of(step: Step) -> CheckpointScorer | None:
    """Return the trained scorer of a step, or None if it has none.

    Args:
        step: Step of a pipeline.
    """
    if isinstance(step, GraphRerank) and isinstance(step.scorer, CheckpointScorer):
        return step.scorer
    return None
