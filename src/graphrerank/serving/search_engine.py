"""Search of an indexed corpus by a pipeline, with replacement of the corpus without interruption.

An inspection is a search of one query with every step of it, which the service's page shows.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, Field
from torch import Tensor

from graphrerank.calibration.list_confidence import adaptive_k
from graphrerank.core import Queries
from graphrerank.core.queries import query_encoder
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.corpus.metadata import CONTRADICTS, SUPERSEDED, Filter, check_filter
from graphrerank.corpus.passages import Passages
from graphrerank.corpus.relations import relations_among, valid_at
from graphrerank.data.readers.documents import split_passage
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.pipelines.pipeline import Pipeline, TracedStep
from graphrerank.pipelines.step import Step
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.pipelines.views import Views
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.engine import Check, Engine, Refusal, fault_of_service
from graphrerank.serving.limits import (
    EXPLAIN,
    NO_CONFIDENCE,
    CallerRequest,
    Flag,
    Limits,
    Positive,
    Probability,
    QueryRequest,
    explain_counts,
)
from graphrerank.serving.metrics import STAGE_SECONDS
from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.rerank_request import Explanation, explanation_of
from graphrerank.serving.watching import WatchedFolder
from graphrerank.utils.checks import UserError

SHOWN_CHARACTERS = 4000  # of a passage
RETRIEVER = "retriever"
SYSTEM = "ours"
PROBE_QUERIES = ("what has a price?", "how long does a search take? " * 8, "how long is a long query? " * 40)
MOST_SCORERS = 3  # of other artifacts over one corpus: one that is served, one to compare, and one that goes


def _check_time(given: str) -> str:
    valid_at(given, ())
    return given


def _check_filter(given: dict[str, Any]) -> dict[str, Any]:
    check_filter(given)
    return given


class CorpusRequest(QueryRequest, CallerRequest):
    """A request that searches the corpus.

    Attributes:
        query: The query, not blank.
        principals: Those of the caller, where the service trusts what requests say of themselves.
        filter: Conditions on metadata; passages that do not meet them are as if they did not exist.
        as_of: Time in ISO 8601: passages that were valid then, by `valid_from` and `valid_to`; now by default, when a
            passage that another one supersedes ranks below it.
    """

    filter: Annotated[dict[str, Any], AfterValidator(_check_filter)] = Field(default={})
    as_of: Annotated[str, AfterValidator(_check_time)] | None = None

    def work(self) -> Work:
        """Estimate the work to search the passages that the caller may see and that meet the filter."""
        work = super().work()
        if not self.filter and self.as_of is None:
            return work
        return work_of({**work.counts, "filters": 1}, encoded_chars=work.encoded_chars, kind="filtered")


class SearchRequest(CorpusRequest):
    """Body of ``POST /search``.

    Attributes:
        query: The query, not blank.
        filter: Conditions on metadata; passages that do not meet them are as if they did not exist.
        as_of: Time in ISO 8601: passages that were valid then, by `valid_from` and `valid_to`; now by default, when a
            passage that another one supersedes ranks below it.
        top_n: Number of results; fewer if the pipeline finds fewer.
        return_documents: Whether results contain titles and texts.
        min_probability: Leave out what is relevant with less than this probability; the artifact must be calibrated.
        min_perfect_recall: As few results as hold all that is relevant with at least this probability, else ``top_n``;
            the artifact must have a ``list_confidence``.
        return_confidence: Whether the response has ``perfect_recall``; the artifact must have a ``list_confidence``.
        user: Who asks, of whom a log of feedback keeps a pseudonym; ignored where the service knows callers.
    """

    top_n: Positive = 10
    user: Annotated[str, Field(max_length=1000)] | None = None
    return_documents: Flag = False
    min_probability: Probability | None = None
    min_perfect_recall: Probability | None = None
    return_confidence: Flag = False


class SearchResult(BaseModel):
    """One passage."""

    doc_id: str
    score: float  # of the pipeline's last step, of any scale; comparable within a response only
    probability: float | None = None  # of relevance, if the last step is calibrated and not all scores are equal
    # `[relation, doc_id]`: `supersedes`, `superseded_by` or `contradicts`, of other candidates
    relations: list[tuple[str, str]] | None = None
    document: dict[str, str] | None = None  # text, and title if known; if `return_documents` is set


class SearchResponse(BaseModel):
    """Response of ``POST /search``."""

    id: str  # of the request, as in the logs
    results: list[SearchResult]  # best first
    # with `return_confidence`, for each result: the probability that nothing below it, or not found, is relevant
    perfect_recall: list[float] | None = None
    # `index`, the version of the corpus if everybody may see all of it; `language`, in which its words are matched
    meta: dict[str, Any]

    @property
    def ids(self) -> list[str]:
        """Ids of the results."""
        return [result.doc_id for result in self.results]

    @property
    def scores(self) -> list[float]:
        """Scores of the results."""
        return [result.score for result in self.results]

    def picked(self, other: "SearchResponse", picks: Sequence[tuple[int, int]]) -> "SearchResponse":
        """Return a response with results of this one (0) and another one (1), by place."""
        lists = (self.results, other.results)
        return self.model_copy(update={"results": [lists[which][place] for which, place in picks]})


@dataclass(frozen=True)
class SearchableCorpus:
    """A corpus with its pipeline and encoder."""

    graph: CorpusGraph
    pipeline: Pipeline
    encoder: MemoryVectorCache | None  # of queries; None if no vectors are needed
    compared: Mapping[str, Pipeline] = field(default_factory=dict)  # pipelines that people see next to it, by name
    see: Callable[[frozenset[str]], CorpusGraph] | None = None  # what some principals see; None: as of the graph
    has_permissions: bool = False  # whether callers have principals
    fingerprint: str | None = None  # of the data set

    @fault_of_service()
    def view(self, request: CorpusRequest) -> "SearchableCorpus":
        """Return the part of the corpus that a request may search; a refusal if its filter does not fit."""
        seen = self._seen_by(self.graph.known_principals(request.caller.principals))
        metadata = seen.graph.passages.metadata
        if metadata is None:
            return seen._where(request.filter)
        valid = valid_at(request.as_of, metadata.times) if metadata.times else {}
        parts = [part for part in (valid, request.filter) if part]
        return seen._where({"and": parts} if parts else {}, ranks_now=request.as_of is None)

    def _seen_by(self, principals: frozenset[str]) -> "SearchableCorpus":
        """Return what the holders of some principals may see; those who see the same share it."""
        if not self.graph.is_guarded:
            return self
        see, graph = self.see or self.graph.seen_by, self.graph
        make: Callable[[Tensor], SearchableCorpus] = lambda _: self._over(see(principals).to(graph.device))  # noqa: E731
        selection = ("principals", principals)
        return self._views.get(selection, lambda: graph.held_by(principals), make, variant="principals")

    def _where(self, conditions: Filter, *, ranks_now: bool = True) -> "SearchableCorpus":
        """Return the view of the passages that meet a filter.

        Args:
            conditions: The filter, with that of the time that is asked for.
            ranks_now: Whether a passage ranks below the one that supersedes it, as it does unless a request asks for
                a time. The same passages give different answers with and without, so it is a part of the cache's key.

        Raises:
            Refusal: If the filter does not fit the passages.
        """
        graph = self.graph
        if not graph.num_nodes or (ranks_now and not conditions):
            return self

        def make(nodes: Tensor) -> "SearchableCorpus":
            if ranks_now and len(nodes) == graph.num_nodes:
                return self
            part = graph.select(nodes.to(graph.device))
            return self._over(part if ranks_now else part.without_relations())

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
        """Return the corpus as the model of another scorer ranks it; those used last stay."""
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
        """Describe the corpus; its version would tell of changes that the caller may not see."""
        language = {"language": self.graph.passages.language}
        return language if self.has_permissions else {"index": version, **language}

    def encode(self, texts: list[str]) -> Tensor | None:
        """Encode queries on the corpus's device; None if no vectors are needed."""
        return None if self.encoder is None else query_encoder(self.encoder).encode(texts).to(self.graph.device)


class SearchEngine:
    """Searches a corpus (:class:`WatchedFolder`) for the queries of many requests at once."""

    def __init__(self, load: Callable[[Path], SearchableCorpus], folder: Path, *, look_seconds: float = 2.0) -> None:
        self._corpus = WatchedFolder(folder, load, "corpus", look_seconds=look_seconds)

    @property
    def current(self) -> tuple[str, SearchableCorpus]:
        """The corpus that is searched now, with its version."""
        return self._corpus.current

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """The encoder of queries."""
        return self.current[1].encoder

    def answer(
        self,
        jobs: Mapping[str, SearchRequest],
        check: Check = lambda: None,
        *,
        scorer: CheckpointScorer | None = None,
    ) -> dict[str, SearchResponse | Refusal]:
        """Search for the queries of a batch of requests, by id; ``scorer`` in the place of the pipeline's."""
        version, whole = self.current
        answers: dict[str, SearchResponse | Refusal] = {}
        views: dict[int, tuple[SearchableCorpus, dict[str, SearchRequest]]] = {}
        for uid, request in jobs.items():
            try:
                view = whole.view(request)
                views.setdefault(id(view), (view, {}))[1][uid] = request
            except Refusal as refusal:  # its filter does not fit
                answers[uid] = refusal
        for view, requests in views.values():
            answers |= self._search(version, view.by(scorer), requests)
        return answers

    def _search(
        self, version: str, corpus: SearchableCorpus, jobs: Mapping[str, SearchRequest]
    ) -> dict[str, SearchResponse | Refusal]:
        """Search one part of the corpus for some requests."""
        if not corpus.graph.num_nodes:
            return {uid: _response(corpus, uid, job, [], torch.zeros(0), version) for uid, job in jobs.items()}
        texts = [request.query for request in jobs.values()]
        with fault_of_service():  # whose text may tell of what is hidden
            retrieved = corpus.pipeline.retrieve(Queries(list(jobs), texts, corpus.encode(texts)))
        for stage, seconds in retrieved.seconds.items():
            STAGE_SECONDS.labels(f"search/{stage}").observe(seconds)
        ranking = retrieved.ranking
        answers: dict[str, SearchResponse | Refusal] = {}
        for (uid, request), nodes, scores in zip(jobs.items(), ranking.nodes.tolist(), ranking.scores, strict=True):
            try:
                answers[uid] = _response(corpus, uid, request, nodes, scores, version)
            except ValueError as error:  # it needs what the pipeline does not have
                answers[uid] = Refusal(422, str(error))
        return answers

    def warm_up(self) -> None:
        """Search once."""
        self.answer({"first": SearchRequest(query="what warms up?")})

    def probes(self) -> list[SearchRequest]:
        """Return searches for short and long queries."""
        return [SearchRequest(query=query, return_documents=True) for query in PROBE_QUERIES]


def scorer_of(step: Step) -> CheckpointScorer | None:
    """Return the trained model of a step that has one."""
    scorer = getattr(step, "scorer", None)
    return scorer if isinstance(scorer, CheckpointScorer) else None


def _response(
    corpus: SearchableCorpus, uid: str, request: SearchRequest, nodes: list[int], scores: Tensor, version: str
) -> SearchResponse:
    """Answer with the first of the nodes, which are padded with -1."""
    scorer, found = scorer_of(corpus.pipeline.last_step), sum(node >= 0 for node in nodes)
    confidence = None if scorer is None else scorer.confidence
    probabilities = None if scorer is None else scorer.probabilities(scores[:found])
    ends = {"min_probability": request.min_probability, "min_perfect_recall": request.min_perfect_recall}
    is_unknown = probabilities is None and scorer is not None and scorer.calibration is not None  # of alike passages
    kept = None if is_unknown else adaptive_k(probabilities, confidence, **ends)
    count = min(request.top_n, found if kept is None else kept)
    perfect_recall = None
    if request.return_confidence:
        if confidence is None:
            raise UserError(NO_CONFIDENCE)
        perfect_recall = None if probabilities is None else confidence.perfect_recall(probabilities)[:count].tolist()
    relations = _relations(corpus.graph.passages, nodes[:found])
    results = [
        SearchResult(
            doc_id=corpus.graph.node_ids[node],
            score=float(scores[rank]),
            probability=None if probabilities is None else float(probabilities[rank]),
            relations=relations.get(rank),
            document=_document(corpus.graph, node) if request.return_documents else None,
        )
        for rank, node in enumerate(nodes[:count])
    ]
    return SearchResponse(id=uid, results=results, perfect_recall=perfect_recall, meta=corpus.meta(version))


def _relations(passages: Passages, nodes: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
    """List the relations of each of some passages, by its place, with others of them."""
    held = defaultdict[int, list[tuple[str, str]]](list)
    for place, other, kind in relations_among(passages, nodes):
        held[place].append((kind, passages.ids[nodes[other]]))
        held[other].append((kind if kind == CONTRADICTS else SUPERSEDED, passages.ids[nodes[place]]))
    return held


def _document(graph: CorpusGraph, node: int) -> dict[str, str]:
    title, text = split_passage(graph.texts[node], len(graph.passages.title(node)))
    return {"title": title, "text": text} if title else {"text": text}


class InspectRequest(CorpusRequest):
    """Body of ``POST /inspect``.

    Attributes:
        query: The query, not blank.
        filter: Conditions on metadata; passages that do not meet them are as if they did not exist.
        as_of: Time in ISO 8601: passages that were valid then, by `valid_from` and `valid_to`; now by default, when a
            passage that another one supersedes ranks below it.
        explain: Whether to measure which edges change each passage's score most.
    """

    explain: Flag = False

    def work(self) -> Work:
        """Estimate the work to search step by step, and to explain edges, which are known only then."""
        work = super().work()
        counts = {name: 2 * count for name, count in work.counts.items()}
        counts |= explain_counts(100, 300) if self.explain else {}
        return work_of(counts, encoded_chars=work.encoded_chars, kind=EXPLAIN if self.explain else work.kind)


class InspectedNode(BaseModel):
    """A passage that a ranking holds."""

    doc_id: str
    text: str  # at most 4,000 characters of it
    explanation: Explanation | None = None  # of what a graph reranker has read as the last step, if asked for


class InspectedRanking(BaseModel):
    """A ranking of the passages."""

    name: str  # `retriever`, the class of a step, `ours` for the last one, or the pipeline's name
    nodes: list[int]  # positions in the answer's `nodes`, best first
    scores: list[float | None]  # comparable within a ranking only; null for those that have none
    probabilities: list[float] | None = None  # of relevance, for a calibrated graph reranker; as of `SearchResult`


class InspectResponse(BaseModel):
    """Response of ``POST /inspect``."""

    id: str  # of the request, as in the logs
    nodes: list[InspectedNode]  # of all rankings, those of the pipeline's last step first
    edges: list[tuple[int, int, float, str]]  # undirected, `[i, j, weight, type]` with `i` below `j`
    rankings: list[InspectedRanking]  # after each step, and by the pipelines to compare with
    milliseconds: dict[str, float]  # of each stage; not of comparisons
    # as of `SearchResponse`, and `model`, the name of the reranker
    meta: dict[str, Any]


class InspectEngine(Engine[InspectRequest]):
    """Searches for one query after the other with the corpus of a search engine, and keeps what every step did."""

    def __init__(
        self,
        search: SearchEngine,
        limits: Limits | None = None,
        scorer: Callable[[], CheckpointScorer | None] = lambda: None,
    ) -> None:
        self._search = search
        self._scorer = scorer  # returns that which serves in the place of the pipeline's
        self.encoder = search.encoder  # one for all corpora
        self._limits = limits or Limits()

    def answer(self, jobs: Mapping[str, InspectRequest], check: Check = lambda: None) -> dict[str, InspectResponse]:
        """Inspect the searches of a batch of requests, by id; a ValueError for too many edges to leave out."""
        return {uid: self._inspect(uid, request, check) for uid, request in jobs.items()}

    def probes(self) -> list[InspectRequest]:
        """Return inspections without and with explanations."""
        return [InspectRequest(query=query) for query in PROBE_QUERIES[:2]] + [
            InspectRequest(query=PROBE_QUERIES[0], explain=True)
        ]

    def _inspect(self, uid: str, request: InspectRequest, check: Check) -> InspectResponse:
        version, whole = self._search.current
        corpus = whole.view(request).by(self._scorer())
        meta = corpus.meta(version)
        if not corpus.graph.num_nodes:
            return InspectResponse(id=uid, nodes=[], edges=[], rankings=[], milliseconds={}, meta=meta)
        with STAGE_SECONDS.labels("inspect").time():
            begin = time.perf_counter()
            queries = Queries([uid], [request.query], corpus.encode([request.query]))
            seconds = {} if queries.vectors is None else {"encode query": time.perf_counter() - begin}
            with fault_of_service():
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
                InspectedNode(doc_id=graph.node_ids[i], text=graph.texts[i][:SHOWN_CHARACTERS], explanation=found)
                for i, found in zip(nodes, map(explained.get, nodes), strict=True)
            ],
            edges=_edges(graph, nodes),
            rankings=[_ranking(name, step, place_of) for name, step in shown],
            milliseconds={stage: round(1000 * taken, 3) for stage, taken in (seconds | dict(by_stage)).items()},
            meta=meta | {"model": getattr(scorer_of(last.step), "name", None)},
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
        numbers = graphs.nodes.tolist()
        rows = scorer.explain(queries, graphs, max_edges=most, check=check)
        explained = {node: explanation_of(row, None) for node, row in zip(numbers, rows, strict=True)}
        for edge in chain.from_iterable(explanation.edges for explanation in explained.values()):
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
    columns = (*edge_index[:, is_first], weight[is_first], edge_type[is_first])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(i, j, w, EDGE_TYPES[number]) for i, j, w, number in rows]
