"""A published retrieval system as a list of operators."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, GraphHead, PairEncoder, Queries, Ranking, RetrieverFactory
from graphrerank.operators import DenseRetriever, TextEncoder
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import StepFactory, Workplace


@dataclass(frozen=True)
class Retrieved:
    """What a pipeline found, and what it took.

    Attributes:
        ranking: ``[B, budget]``, on the CPU.
        num_encodings: ``[B]`` int64, (query, passage) pairs that the cross-encoder read.
        seconds: Wall time by stage, for all queries together.
        routes: ``[B]`` int64, the path that each query took (``graphs.routes.ROUTES``); None without a router.
    """

    ranking: Ranking
    num_encodings: Tensor
    seconds: Mapping[str, float]
    routes: Tensor | None = None


class Pipeline:
    """Retrieves by its steps, one after the other, many queries at once.

    Args:
        graph: The corpus; the steps work on its device (:meth:`CorpusGraph.to`).
        steps: Build the steps, in order; the first is a vector search.
        budget: Nodes to retrieve per query, and so pairs that the cross-encoder reads at most.
        retriever: Builds what vector searches ask that do not name a retriever of their own.
        pair_encoder: The cross-encoder; None where no step reads pairs.
        text_encoder: The encoder of the corpus; None where no step encodes texts.
        head: A trained head for GRanker, in the place of the cross-encoder's own; None for the latter.
        batch_queries: Queries at once.

    Raises:
        ValueError: If there is no step, a number is below 1, a step cannot be built, or ``head`` was trained on
            another cross-encoder.
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
    ) -> None:
        for name, number in (("steps", len(steps)), ("budget", budget), ("batch_queries", batch_queries)):
            if number < 1:
                raise ValueError(f"`{name}` must {'hold a step' if name == 'steps' else 'be positive'}, got {number}")
        if head is not None and pair_encoder is not None and head.encoder_fingerprint != pair_encoder.fingerprint:
            raise ValueError(
                f"`head` reads vectors of the cross-encoder {head.encoder_fingerprint[:12]}, `pair_encoder` is "
                f"{pair_encoder.fingerprint[:12]}"
            )
        self.budget = budget
        self.batch_queries = batch_queries
        self._workplace = Workplace(graph, budget, retriever, pair_encoder, text_encoder, head)
        self._steps = [build(self._workplace) for build in steps]

    @torch.inference_mode()
    def retrieve(self, queries: Queries, *, advance: Callable[[int], None] | None = None) -> Retrieved:
        """Run the steps for ``B`` queries.

        Args:
            queries: The queries.
            advance: Called with the number of queries of each batch when it is done, for a progress bar.
        """
        self._workplace.clock.take()
        states = []
        for start in range(0, max(1, len(queries)), self.batch_queries):
            block = queries.block(start, start + self.batch_queries)
            states.append(self._run(block))
            if advance is not None:
                advance(len(block))
        rankings = [self._padded(state) for state in states]
        routes = [state.routes.cpu() for state in states if state.routes is not None]
        return Retrieved(
            Ranking(torch.cat([r.nodes for r in rankings]), torch.cat([r.scores for r in rankings])),
            torch.cat([state.num_encodings for state in states]).cpu(),
            self._workplace.clock.take(),
            torch.cat(routes) if routes else None,
        )

    def _run(self, queries: Queries) -> RetrievalState:
        state = RetrievalState.start(queries, self._workplace.graph.device)
        for step in self._steps:
            state = step.run(state)
        return state

    def _padded(self, state: RetrievalState) -> Ranking:
        behind, pad = (0, self.budget - state.nodes.shape[1]), torch.nn.functional.pad
        ranking = Ranking(pad(state.nodes, behind, value=-1), pad(state.scores, behind, value=-torch.inf))
        return ranking.to("cpu")
