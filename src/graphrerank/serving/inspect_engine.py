"""What a search did with one query: the candidates, the edges among them, and the ranking after each step.

People look at it on the service's page. It runs in batches of its own, and no search waits for more of it than of any
other request.
"""

import math
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from pydantic import BaseModel

from graphrerank.graphs import CorpusGraph, Queries, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.pipelines.pipeline import TracedStep
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.serving.engine import Check, Engine
from graphrerank.serving.limits import Flag, Limits, QueryRequest, Work, explain_seconds
from graphrerank.serving.metrics import STAGE_SECONDS
from graphrerank.serving.rerank_request import Explanation, explanation_of
from graphrerank.serving.search_engine import SearchEngine, scorer_of

SHOWN_CHARACTERS = 4000  # of a passage
RETRIEVER = "retriever"
SYSTEM = "ours"


class InspectRequest(QueryRequest):
    """Body of ``POST /inspect``.

    Attributes:
        query: The query, not blank.
        explain: Whether to measure which edges change each passage's score most.
    """

    explain: Flag = False

    def work(self) -> Work:
        """Estimate the work to search step by step, and to explain edges, which are known only then."""
        work = super().work()
        return work._replace(seconds=2 * work.seconds + (explain_seconds(100, 300) if self.explain else 0.0))


class InspectedNode(BaseModel):
    """A passage that a ranking holds.

    Attributes:
        doc_id: Its id in the corpus.
        text: Its text, at most 4,000 characters of it.
        explanation: If ``explain`` is set and the last step is a graph reranker that has read the passage.
    """

    doc_id: str
    text: str
    explanation: Explanation | None = None


class InspectedRanking(BaseModel):
    """A ranking of the passages.

    Attributes:
        name: ``retriever`` after the first step, the name of the step's class after the others; of the last step
            ``ours``, or the pipeline's own name where it is one of those to compare with.
        nodes: Positions of passages in the answer's ``nodes``, best first.
        scores: Their scores, comparable within a ranking only; null for those that have none.
        probabilities: How likely each is relevant; for a calibrated graph reranker.
    """

    name: str
    nodes: list[int]
    scores: list[float | None]
    probabilities: list[float] | None = None


class InspectResponse(BaseModel):
    """Response of ``POST /inspect``.

    Attributes:
        id: Id of the request, as in the logs.
        nodes: All passages of the rankings, those of the pipeline's last step first.
        edges: Undirected edges ``[i, j, weight, type]`` among them, ``i`` below ``j``, one for each type.
        rankings: After each step of the pipeline, and by the pipelines to compare with.
        milliseconds: Time of each stage; of a comparison not measured.
        meta: ``index``, the version of the corpus; ``language``, in which words are matched; ``model``, the reranker's
            name.
    """

    id: str
    nodes: list[InspectedNode]
    edges: list[tuple[int, int, float, str]]
    rankings: list[InspectedRanking]
    milliseconds: dict[str, float]
    meta: dict[str, Any]


class InspectEngine(Engine[InspectRequest]):
    """Searches for one query after the other with the corpus of a search engine, and keeps what every step did."""

    def __init__(self, search: SearchEngine, limits: Limits | None = None) -> None:
        self._search = search
        self._limits = limits or Limits()

    def answer(self, jobs: Mapping[str, InspectRequest], check: Check = lambda: None) -> dict[str, InspectResponse]:
        """Inspect the searches of a batch of requests, by id; a ValueError for too many edges to leave out."""
        return {uid: self._inspect(uid, request, check) for uid, request in jobs.items()}

    def _inspect(self, uid: str, request: InspectRequest, check: Check) -> InspectResponse:
        version, corpus = self._search.current
        with STAGE_SECONDS.labels("inspect").time():
            begin = time.perf_counter()
            queries = Queries([uid], [request.query], corpus.encode([request.query]))
            seconds = {} if queries.vectors is None else {"encode query": time.perf_counter() - begin}
            steps, by_stage = corpus.pipeline.trace(queries)
            last = steps[-1]
            check()
            shown = [(type(step.step).__name__, step) for step in steps[:-1]] + [(SYSTEM, last)]
            if len(steps) > 1 and isinstance(steps[0].step, VectorSearch):
                shown[0] = (RETRIEVER, steps[0])
            for name, pipeline in corpus.compared.items():
                shown.append((name, pipeline.trace(queries)[0][-1]))
                check()
            nodes = list(dict.fromkeys(chain(_nodes(last), *(_nodes(step) for _, step in shown))))
            place_of = {node: place for place, node in enumerate(nodes)}
            explained = self._explain(last, queries, place_of, check) if request.explain else {}
        graph = corpus.graph
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
            rankings=[_ranking(name, step, place_of) for name, step in shown],
            milliseconds={stage: round(1000 * taken, 3) for stage, taken in (seconds | dict(by_stage)).items()},
            meta={
                "index": version,
                "language": graph.passages.language,
                "model": getattr(scorer_of(last.step), "name", None),
            },
        )

    def _explain(
        self, step: TracedStep, queries: Queries, place_of: Mapping[int, int], check: Check
    ) -> dict[int, Explanation]:
        """Explain the passages that a graph reranker has read, by their numbers in the corpus."""
        scorer = scorer_of(step.step)
        if scorer is None:
            return {}
        assert isinstance(step.step, GraphRerank)
        graphs = step.step.candidate_graphs(step.before)
        assert graphs.nodes is not None
        most = self._limits.most_explained_edges(graphs.num_nodes)
        explained, numbers = {}, graphs.nodes.tolist()
        for node, row in zip(numbers, scorer.explain(queries, graphs, max_edges=most, check=check), strict=True):
            explained[node] = explanation_of(row, None)
            for edge in explained[node].edges:
                edge.edge = (place_of[numbers[edge.edge[0]]], place_of[numbers[edge.edge[1]]])
        return explained


def _nodes(step: TracedStep) -> list[int]:
    """List the passages that a step ranked, by their numbers in the corpus."""
    return [node for node in step.after.nodes[0].tolist() if node >= 0]


def _ranking(name: str, step: TracedStep, place_of: Mapping[int, int]) -> InspectedRanking:
    nodes, scorer = _nodes(step), scorer_of(step.step)
    scores = step.after.scores[0, : len(nodes)]
    probabilities = None if scorer is None else scorer.probabilities(scores)
    return InspectedRanking(
        name=name,
        nodes=[place_of[node] for node in nodes],
        scores=[score if math.isfinite(score) else None for score in scores.tolist()],
        probabilities=None if probabilities is None else probabilities.tolist(),
    )


def _edges(graph: CorpusGraph, numbers: Sequence[int]) -> list[tuple[int, int, float, str]]:
    """List the undirected edges among some passages, by their positions."""
    nodes = torch.tensor([list(numbers)], dtype=torch.int64, device=graph.device)
    edge_index, weight, _, edge_type = candidate_edges(graph, nodes, keep_types=True)
    assert edge_type is not None
    is_first = edge_index[0] < edge_index[1]
    ends, types = edge_index[:, is_first].T.tolist(), edge_type[is_first].tolist()
    weights = weight[is_first].tolist()
    return [(i, j, w, EDGE_TYPES[number]) for (i, j), w, number in zip(ends, weights, types, strict=True)]
