"""Engine of ``POST /inspect``, which searches for one query and returns the result of every step."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.pipelines.pipeline import TracedStep
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.engine import Check, Engine, fault_of_service
from graphrerank.serving.engines.search import PROBE_QUERIES, SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus, scorer_of
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import STAGE_SECONDS
from graphrerank.serving.recorder import Answered
from graphrerank.serving.schemas.explanation import Explanation, explanation_of
from graphrerank.serving.schemas.inspection import (
    SYSTEM,
    InspectedNode,
    InspectedRanking,
    InspectRequest,
    InspectResponse,
)

SHOWN_CHARACTERS = 4000  # number of characters of a passage in a response
RETRIEVER = "retriever"


class InspectEngine(Engine[InspectRequest]):
    """Searches for one query at a time with the corpus of a search engine, and returns the result of every step.

    Args:
        search: Engine that searches the corpus.
        limits: Limits of the service. If None, the default limits.
        scorer: Function that returns the scorer to use in place of the pipeline's, or None to use the pipeline's.
        artifact: Function that returns the name of the artifact for the feedback log, or None if it is unknown.

    Attributes:
        encoder: Encoder of queries. None if no vectors are needed.
    """

    encoder: MemoryVectorCache | None = None

    def __init__(
        self,
        search: SearchEngine,
        limits: Limits | None = None,
        scorer: Callable[[], CheckpointScorer | None] = lambda: None,
        artifact: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._search = search
        self._scorer = scorer
        self._artifact = artifact
        self.encoder = search.encoder  # shared by all versions of the corpus
        self._limits = limits or Limits()

    def answer(
        self, jobs: Mapping[str, InspectRequest], check: Check = lambda: None
    ) -> dict[str, InspectResponse | Answered]:
        """Inspect the searches of a batch of requests.

        A response that is shown to a person is :class:`Answered`, so that it is logged.

        Args:
            jobs: Requests by id.
            check: Function that raises TimeoutError once nobody waits for the batch.

        Returns:
            Responses by id.

        Raises:
            ValueError: If there are too many edges to explain.
        """
        answers: dict[str, InspectResponse | Answered] = {}
        for uid, request in jobs.items():
            answer = self._inspect(uid, request, check)
            corpus = self._search.current[1].fingerprint
            answers[uid] = Answered(answer, self._artifact(), corpus, is_explored=False) if request.record else answer
        return answers

    def probes(self) -> list[InspectRequest]:
        """Return inspections with and without explanations."""
        return [InspectRequest(query=query) for query in PROBE_QUERIES[:2]] + [
            InspectRequest(query=PROBE_QUERIES[0], explain=True)
        ]

    def _inspect(self, uid: str, request: InspectRequest, check: Check) -> InspectResponse:
        version, whole_corpus = self._search.current
        corpus = whole_corpus.view(request).by(self._scorer())
        meta = corpus.meta(version)
        if not corpus.graph.num_nodes:
            return InspectResponse(id=uid, nodes=[], edges=[], rankings=[], milliseconds={}, meta=meta)
        seconds: dict[str, float] = {}
        with STAGE_SECONDS.labels("inspect").time():
            begin = time.perf_counter()
            queries = Queries([uid], [request.query], corpus.encode([request.query]))
            if queries.vectors is not None:
                seconds["encode query"] = time.perf_counter() - begin
            with fault_of_service():
                trace = _trace(corpus, queries, check)
            seconds |= trace.seconds
            # the passages of the system's ranking come first
            steps = (trace.last, *(step for _, step in trace.named_steps))
            nodes = list(dict.fromkeys(chain.from_iterable(_nodes(step) for step in steps)))
            position_of = {node: position for position, node in enumerate(nodes)}
            explained = self._explain(trace.last, queries, position_of, check) if request.explain else {}
        graph = corpus.graph
        scorer = scorer_of(trace.last.step)
        return InspectResponse(
            id=uid,
            nodes=[
                InspectedNode(
                    doc_id=graph.node_ids[node],
                    text=graph.texts[node][:SHOWN_CHARACTERS],
                    explanation=explained.get(node),
                )
                for node in nodes
            ],
            edges=_edges(graph, nodes),
            rankings=[_ranking(name, step, position_of) for name, step in trace.named_steps],
            milliseconds={stage: round(1000 * duration, 3) for stage, duration in seconds.items()},
            meta=meta | {"model": None if scorer is None else scorer.name},
        )

    def _explain(
        self, step: TracedStep, queries: Queries, position_of: Mapping[int, int], check: Check
    ) -> dict[int, Explanation]:
        """Return the explanations of the passages that a graph reranker scored, by their indices in the corpus."""
        scorer = scorer_of(step.step)
        if scorer is None:
            return {}
        assert isinstance(step.step, GraphRerank)
        graphs = step.step.candidate_graphs(step.before)
        assert graphs.nodes is not None
        max_edges = self._limits.most_explained_edges(graphs.num_nodes)
        nodes = graphs.nodes.tolist()
        rows = scorer.explain(queries, graphs, max_edges=max_edges, check=check)
        explained = {node: explanation_of(row, None) for node, row in zip(nodes, rows, strict=True)}
        for edge in chain.from_iterable(explanation.edges for explanation in explained.values()):
            source, target = edge.edge
            edge.edge = (position_of[nodes[source]], position_of[nodes[target]])
        return explained


class _Trace(NamedTuple):
    """Steps of a search.

    Attributes:
        last: Last step of the pipeline, whose ranking is the result of the search.
        named_steps: Names and steps of the rankings to show: all steps of the pipeline, and the last step of each
            compared pipeline. Several steps may have the same name.
        seconds: Seconds by stage of the pipeline.
    """

    last: TracedStep
    named_steps: list[tuple[str, TracedStep]]
    seconds: Mapping[str, float]


def _trace(corpus: SearchableCorpus, queries: Queries, check: Check) -> _Trace:
    """Run the pipeline and the compared pipelines of a corpus, and name their steps."""
    steps, seconds = corpus.pipeline.trace(queries)
    check()
    last = steps[-1]
    named_steps = [(type(step.step).__name__, step) for step in steps[:-1]]
    named_steps.append((SYSTEM, last))
    if len(steps) > 1 and isinstance(steps[0].step, VectorSearch):
        named_steps[0] = (RETRIEVER, steps[0])
    for name, pipeline in corpus.compared.items():
        compared_steps, _ = pipeline.trace(queries)
        named_steps.append((name, compared_steps[-1]))
        check()
    return _Trace(last, named_steps, seconds)


def _nodes(step: TracedStep) -> list[int]:
    """Return the passages that a step ranked, as indices in the corpus."""
    return [node for node in step.after.nodes[0].tolist() if node >= 0]


def _ranking(name: str, step: TracedStep, position_of: Mapping[int, int]) -> InspectedRanking:
    nodes = _nodes(step)
    scorer = scorer_of(step.step)
    scores = step.after.scores[0, : len(nodes)]
    probabilities = None if scorer is None else scorer.probabilities(scores)
    return InspectedRanking(
        name=name,
        nodes=[position_of[node] for node in nodes],
        scores=[score if math.isfinite(score) else None for score in scores.tolist()],
        probabilities=None if probabilities is None else probabilities.tolist(),
    )


def _edges(graph: CorpusGraph, numbers: Sequence[int]) -> list[tuple[int, int, float, str]]:
    """Return the undirected edges among the given passages, whose ends are positions in ``numbers``."""
    nodes = torch.tensor([list(numbers)], dtype=torch.int64, device=graph.device)
    edge_index, edge_weight, _, edge_type = candidate_edges(graph, nodes, keep_types=True)
    assert edge_type is not None
    is_first = edge_index[0] < edge_index[1]
    columns = (*edge_index[:, is_first], edge_weight[is_first], edge_type[is_first])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(source, target, weight, EDGE_TYPES[number]) for source, target, weight, number in rows]
