"""A published retrieval system as a list of operators."""

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
    """Result of a pipeline, with its costs."""

    ranking: Ranking  # `[B, budget]`, on the CPU
    num_encodings: Tensor  # `[B]` int64, number of (query, passage) pairs that the cross-encoder encoded
    seconds: Mapping[str, float]  # wall time by stage, over all queries
    routes: Tensor | None = None  # `[B]` int64, the path of each query (`router.ROUTES`); None without a router


@dataclass(frozen=True)
class TracedStep:
    """A step of a pipeline as it ran."""

    step: Step
    before: RetrievalState
    after: RetrievalState


class Pipeline:
    """Retrieves by its steps, in order, for many queries at once.

    The steps work on the graph's device (:meth:`CorpusGraph.to`). A ``head`` must be trained on the pair encoder.
    """

    def __init__(
        self,
        graph: CorpusGraph,
        *,
        steps: Sequence[StepFactory],  # build the steps, in order; the first is a vector search
        budget: int = 100,  # nodes to retrieve per query, and the maximum number of pairs to encode
        retriever: RetrieverFactory = DenseRetriever,  # builds that of vector searches that name none
        pair_encoder: PairEncoder | None = None,  # the cross-encoder; None if no step scores pairs
        text_encoder: TextEncoder | None = None,  # of the corpus; None if no step encodes texts
        head: GraphHead | None = None,  # a trained one of GRanker that replaces the cross-encoder's
        batch_queries: int = 32,  # per batch
        # path or name that replaces the checkpoint of each trained graph reranker; None: each keeps its own
        checkpoint: str | None = None,
    ) -> None:
        check_counts(budget=budget, batch_queries=batch_queries)
        if head is not None and pair_encoder is not None and head.encoder_fingerprint != pair_encoder.fingerprint:
            raise UserError(
                f"`head` reads vectors of the cross-encoder {head.encoder_fingerprint[:12]}, `pair_encoder` is "
                f"{pair_encoder.fingerprint[:12]}"
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
        """The step whose scores the result has."""
        return self._steps[-1]

    def over(self, graph: CorpusGraph) -> "Pipeline":
        """Return a pipeline of the same steps over another graph, such as a part of this one's."""
        factories = zip(self._steps, self._settings["steps"], strict=True)
        steps = [step.factory_over(factory) for step, factory in factories]
        return Pipeline(graph, **self._settings | {"steps": steps})

    def ranked_by(self, scorer: GraphScorer) -> "Pipeline":
        """Return this pipeline, retriever and all, with another model in its last step, a :class:`GraphRerank`."""
        other = copy(self)
        other._steps = [*self._steps[:-1], GraphRerank(self._resources, scorer=lambda *_, **__: scorer)]
        other._views = Views(self._resources.graph.num_nodes)
        return other

    @torch.inference_mode()
    def retrieve(
        self, queries: Queries, *, filter: Filter | None = None, advance: Callable[[int], None] | None = None
    ) -> Retrieved:
        """Run the steps for ``B`` queries; ``advance`` is called with the number of queries of each finished batch.

        A ``filter`` on metadata (:mod:`~graphrerank.corpus.filters`) leaves out passages before anything is scored:
        the rankings are those of a pipeline over ``graph.where(filter)``, in the numbers of the whole graph.
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
        """Retrieve from the passages that pass."""
        graph = self._resources.graph
        make: Callable[[Tensor], tuple[Tensor, Pipeline | None]] = lambda nodes: (  # noqa: E731
            nodes,
            self.over(graph.select(nodes.to(graph.device))) if len(nodes) else None,
        )
        nodes, pipeline = self._views.get(json.dumps(filter), lambda: graph.numbers_passing(filter), make)
        if pipeline is None:
            none = torch.full((len(queries), self.budget), -1)
            return Retrieved(Ranking(none, none.float().fill_(-torch.inf)), none.new_zeros(len(queries)), {})
        part = pipeline.retrieve(queries)
        found = part.ranking.nodes
        return replace(part, ranking=replace(part.ranking, nodes=nodes[found].masked_fill(found < 0, -1)))

    @torch.inference_mode()
    def trace(self, queries: Queries) -> tuple[list[TracedStep], Mapping[str, float]]:
        """Run the steps for few queries, and return each with its states, and seconds by stage."""
        self._resources.clock.take()
        state, traced = RetrievalState.start(queries, self._resources.graph.device), []
        for step in self._steps:
            before, state = state, step.run(state)
            traced.append(TracedStep(step, before, state))
        return traced, self._resources.clock.take()
