"""Retrieval pipeline: a sequence of steps over a corpus graph."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import GraphHead, GraphScorer, PairEncoder, Queries, Ranking, RetrieverFactory
from graphrerank.core.queries import TextEncoder
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.filters import Filter
from graphrerank.operators.dense import DenseRetriever
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step, StepFactory
from graphrerank.pipelines.steps import GraphRerank
from graphrerank.pipelines.views import Views
from graphrerank.utils.checks import UserError, check_counts


@dataclass(frozen=True)
class Retrieved:
    """Result of a pipeline for ``B`` queries, with its cost.

    Attributes:
        ranking: Ranking ``[B, budget]``, on the CPU.
        num_encodings: ``[B]`` int64, number of (query, passage) pairs that the cross-encoder encoded.
        seconds: Wall time in seconds by stage, summed over all queries.
        routes: ``[B]`` int64, path of each query, an index into :data:`~graphrerank.pipelines.router.ROUTES`. None
            without a router.
    """

    ranking: Ranking
    num_encodings: Tensor
    seconds: Mapping[str, float]
    routes: Tensor | None = None


@dataclass(frozen=True)
class TracedStep:
    """Step of a pipeline with its input and its output.

    Attributes:
        step: Step that was run.
        before: State before the step.
        after: State after the step.
    """

    step: Step
    before: RetrievalState
    after: RetrievalState


class Pipeline:
    """Retrieve passages by a sequence of steps, for many queries at once.

    The steps run on the device of the graph (:meth:`CorpusGraph.to`).

    Args:
        graph: Corpus graph.
        steps: Factories of the steps, in order. The first step is a vector search or a router.
        budget: Number of passages to retrieve per query. It is also the maximum number of pairs that the cross-encoder
            encodes per query.
        retriever: Factory of the retriever for vector searches that do not name one. Defaults to dense search.
        pair_encoder: Cross-encoder. Required if a step scores pairs.
        text_encoder: Text encoder of the corpus. Required if a step encodes texts.
        head: Trained head of GRanker that replaces the head of the cross-encoder. It must be trained on the vectors of
            ``pair_encoder``. If None, the head of the cross-encoder is used.
        batch_queries: Number of queries per batch.
        checkpoint: Name or path of a checkpoint that replaces those of all graph rerankers in the pipeline. If None,
            each step keeps its own checkpoint.

    Raises:
        UserError: If a number is not positive, if ``head`` was trained on another cross-encoder, or if a step cannot be
            built.

    Example:
        >>> from functools import partial
        >>> from graphrerank.operators.bm25 import BM25Retriever
        >>> from graphrerank.pipelines.steps import VectorSearch
        >>> graph = CorpusGraph.from_edges(["a", "b"], ["about a dog", "about a cat"], torch.tensor([[0, 1]]))
        >>> pipeline = Pipeline(graph, steps=[partial(VectorSearch, retriever=BM25Retriever)], budget=2)
        >>> pipeline.retrieve(Queries(["q"], ["which cat?"])).ranking.nodes
        tensor([[1, 0]])
    """

    def __init__(
        self,
        graph: CorpusGraph,
        *,
        steps: Sequence[StepFactory],
        budget: int = 100,
        retriever: RetrieverFactory = DenseRetriever,
        pair_encoder: PairEncoder | None = None,
        text_encoder: TextEncoder | None = None,
        head: GraphHead | None = None,
        batch_queries: int = 32,
        checkpoint: str | None = None,
    ) -> None:
        check_counts(budget=budget, batch_queries=batch_queries)
        if head is not None and pair_encoder is not None and head.encoder_fingerprint != pair_encoder.fingerprint:
            raise UserError(
                f"`head` must be trained on the vectors of `pair_encoder` {pair_encoder.fingerprint[:12]}, got a head "
                f"for the cross-encoder {head.encoder_fingerprint[:12]}"
            )
        self.budget = budget
        self.batch_queries = batch_queries
        self._settings: dict[str, Any] = {"steps": steps, "budget": budget, "retriever": retriever, "head": head}
        self._settings |= {"pair_encoder": pair_encoder, "text_encoder": text_encoder, "batch_queries": batch_queries}
        self._settings["checkpoint"] = checkpoint
        self._views = Views[tuple[Tensor, "Pipeline | None"]](graph.num_nodes)
        self._resources = Resources(graph, budget, retriever, pair_encoder, text_encoder, head, checkpoint=checkpoint)
        self._steps = self._resources.build(steps)

    @property
    def last_step(self) -> Step:
        """Step that computes the final scores."""
        return self._steps[-1]

    def over(self, graph: CorpusGraph) -> "Pipeline":
        """Return a pipeline with the same steps over another graph, such as a subgraph of the current graph.

        Args:
            graph: Corpus graph.

        Returns:
            New pipeline. Steps may share loaded models with the current pipeline.
        """
        factories = zip(self._steps, self._settings["steps"], strict=True)
        steps = [step.factory_over(factory) for step, factory in factories]
        return Pipeline(graph, **self._settings | {"steps": steps})

    def ranked_by(self, scorer: GraphScorer) -> "Pipeline":
        """Return a copy of the pipeline with another model in its last step. All other steps are shared.

        Args:
            scorer: Model of the new last step, a :class:`~graphrerank.pipelines.steps.GraphRerank`.

        Returns:
            New pipeline.
        """
        other = copy(self)
        other._steps = [*self._steps[:-1], GraphRerank(self._resources, scorer=lambda *_, **__: scorer)]
        other._views = Views(self._resources.graph.num_nodes)
        return other

    @torch.inference_mode()
    def retrieve(
        self, queries: Queries, *, filter: Filter | None = None, advance: Callable[[int], None] | None = None
    ) -> Retrieved:
        """Run the steps for ``B`` queries.

        Args:
            queries: Queries, with vectors if a step uses them.
            filter: Metadata filter (:mod:`~graphrerank.corpus.filters`). Passages that do not match are removed before
                anything is scored, as in a pipeline over ``graph.where(filter)``. The result contains indices of the
                full graph. If None, all passages are used.
            advance: Function that is called after each batch with its number of queries, such as the update of a
                progress bar.

        Returns:
            Rankings with their cost.

        Raises:
            UserError: If the filter is invalid, or if the input of a step is missing.
        """
        if filter:
            return self._retrieve_part(queries, filter)
        self._resources.clock.take()
        states = []
        for batch in queries.blocks(self.batch_queries):
            state = RetrievalState.start(batch, self._resources.graph.device)
            for step in self._steps:
                state = step.run(state)
                self._resources.graph.pages.release()
            states.append(state)
            if advance is not None:
                advance(len(batch))
        routes = [state.routes.cpu() for state in states if state.routes is not None]
        return Retrieved(
            Ranking.concatenate([state.ranking for state in states]).padded(self.budget).to("cpu"),
            torch.cat([state.num_encodings for state in states]).cpu(),
            self._resources.clock.take(),
            torch.cat(routes) if routes else None,
        )

    def _retrieve_part(self, queries: Queries, filter: Filter) -> Retrieved:
        """Retrieve from the passages that match a filter."""
        graph = self._resources.graph
        make: Callable[[Tensor], tuple[Tensor, Pipeline | None]] = lambda nodes: (  # noqa: E731
            nodes,
            self.over(graph.select(nodes.to(graph.device))) if len(nodes) else None,
        )
        nodes, pipeline = self._views.get(json.dumps(filter), lambda: graph.numbers_passing(filter), make)
        if pipeline is None:
            padding = torch.full((len(queries), self.budget), -1)
            return Retrieved(Ranking(padding, padding.float().fill_(-torch.inf)), padding.new_zeros(len(queries)), {})
        result = pipeline.retrieve(queries)
        indices = result.ranking.nodes
        return replace(result, ranking=replace(result.ranking, nodes=nodes[indices].masked_fill(indices < 0, -1)))

    @torch.inference_mode()
    def trace(self, queries: Queries) -> tuple[list[TracedStep], Mapping[str, float]]:
        """Run the steps for a single batch of queries, and record the state before and after each step.

        Args:
            queries: Queries, which are run in one batch.

        Returns:
            Steps with their states, and seconds by stage.
        """
        self._resources.clock.take()
        state, traced = RetrievalState.start(queries, self._resources.graph.device), []
        for step in self._steps:
            before, state = state, step.run(state)
            traced.append(TracedStep(step, before, state))
        return traced, self._resources.clock.take()
