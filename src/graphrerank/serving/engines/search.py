"""Engine of ``POST /search``, which runs a pipeline over an indexed corpus that can change while it is served."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.calibration.list_confidence import adaptive_k
from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.metadata_fields import CONTRADICTS, SUPERSEDED
from graphrerank.corpus.passages import Passages
from graphrerank.corpus.relations import relations_among
from graphrerank.data.readers.documents import split_passage
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.engine import Check, Engine, Refusal, fault_of_service
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus, scorer_of
from graphrerank.serving.hot_reload import WatchedFolder
from graphrerank.serving.metrics import STAGE_SECONDS
from graphrerank.serving.schemas.requests import NO_CONFIDENCE
from graphrerank.serving.schemas.search import SearchRequest, SearchResponse, SearchResult
from graphrerank.utils.checks import UserError

PROBE_QUERIES = ("what has a price?", "how long does a search take? " * 8, "how long is a long query? " * 40)


class SearchEngine(Engine[SearchRequest]):
    """Searches a corpus for the queries of many requests at once.

    Args:
        load: Function that opens the corpus of ``folder``.
        folder: Folder of the corpus, or a link to it.
        look_seconds: Time between two checks of ``folder``, whose new content replaces the corpus
            (:class:`WatchedFolder`). If None, only a corpus folder is updated.
    """

    def __init__(
        self, load: Callable[[Path], SearchableCorpus], folder: Path, *, look_seconds: float | None = 2.0
    ) -> None:
        self._corpus = WatchedFolder(folder, load, "corpus", look_seconds=look_seconds)

    @property
    def current(self) -> tuple[str, SearchableCorpus]:
        """Version and corpus that are searched now."""
        return self._corpus.current

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """Encoder of queries. None if no vectors are needed."""
        return self.current[1].encoder

    def answer(
        self,
        jobs: Mapping[str, SearchRequest],
        check: Check = lambda: None,
        *,
        scorer: CheckpointScorer | None = None,
    ) -> dict[str, SearchResponse | Refusal]:
        """Search for the queries of a batch of requests.

        Args:
            jobs: Requests by id.
            check: Function that raises TimeoutError once nobody waits for the batch. It is not called.
            scorer: Scorer that replaces the scorer of the pipeline's last step. If None, the pipeline is unchanged.

        Returns:
            Response or refusal of each request by id.
        """
        version, whole = self.current
        answers: dict[str, SearchResponse | Refusal] = {}
        views: dict[int, tuple[SearchableCorpus, dict[str, SearchRequest]]] = {}
        for uid, request in jobs.items():
            try:
                view = whole.view(request)
                views.setdefault(id(view), (view, {}))[1][uid] = request
            except Refusal as refusal:  # the filter of the request is invalid
                answers[uid] = refusal
        for view, requests in views.values():
            answers |= self._search(version, view.by(scorer), requests)
        return answers

    def _search(
        self, version: str, corpus: SearchableCorpus, jobs: Mapping[str, SearchRequest]
    ) -> dict[str, SearchResponse | Refusal]:
        """Search one view of the corpus for several requests."""
        if not corpus.graph.num_nodes:
            return {uid: _response(corpus, uid, job, [], torch.zeros(0), version) for uid, job in jobs.items()}
        texts = [request.query for request in jobs.values()]
        with fault_of_service():  # error messages could reveal hidden passages
            retrieved = corpus.pipeline.retrieve(Queries(list(jobs), texts, corpus.encode(texts)))
        for stage, seconds in retrieved.seconds.items():
            STAGE_SECONDS.labels(f"search/{stage}").observe(seconds)
        ranking = retrieved.ranking
        answers: dict[str, SearchResponse | Refusal] = {}
        for (uid, request), nodes, scores in zip(jobs.items(), ranking.nodes.tolist(), ranking.scores, strict=True):
            try:
                answers[uid] = _response(corpus, uid, request, nodes, scores, version)
            except ValueError as error:  # the request needs a calibration that the pipeline does not have
                answers[uid] = Refusal(422, str(error))
        return answers

    def warm_up(self) -> None:
        """Run one search."""
        self.answer({"first": SearchRequest(query="what warms up?")})

    def probes(self) -> list[SearchRequest]:
        """Return searches with short and long queries."""
        return [SearchRequest(query=query, return_documents=True) for query in PROBE_QUERIES]


def _response(
    corpus: SearchableCorpus, uid: str, request: SearchRequest, nodes: list[int], scores: Tensor, version: str
) -> SearchResponse:
    """Return the response to a request.

    Args:
        corpus: Corpus that was searched.
        uid: Id of the request.
        request: Request to respond to.
        nodes: Ranked passages, padded with -1.
        scores: Scores of the passages.
        version: Version of the corpus.
    """
    scorer = scorer_of(corpus.pipeline.last_step)
    num_ranked = sum(node >= 0 for node in nodes)
    confidence = None if scorer is None else scorer.confidence
    probabilities = None if scorer is None else scorer.probabilities(scores[:num_ranked])
    # a calibrated scorer returns no probabilities if all scores are equal
    is_unknown = probabilities is None and scorer is not None and scorer.calibration is not None
    cutoff = None
    if not is_unknown:
        cutoff = adaptive_k(
            probabilities,
            confidence,
            min_probability=request.min_probability,
            min_perfect_recall=request.min_perfect_recall,
        )
    count = min(request.top_n, num_ranked if cutoff is None else cutoff)
    perfect_recall = None
    if request.return_confidence:
        if confidence is None:
            raise UserError(NO_CONFIDENCE)
        perfect_recall = None if probabilities is None else confidence.perfect_recall(probabilities)[:count].tolist()
    relations = _relations(corpus.graph.passages, nodes[:num_ranked])
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
    """Return the relations among the given passages, keyed by their positions."""
    relations = defaultdict[int, list[tuple[str, str]]](list)
    for position, other, kind in relations_among(passages, nodes):
        relations[position].append((kind, passages.ids[nodes[other]]))
        relations[other].append((kind if kind == CONTRADICTS else SUPERSEDED, passages.ids[nodes[position]]))
    return relations


def _document(graph: CorpusGraph, node: int) -> dict[str, str]:
    title, text = split_passage(graph.texts[node], len(graph.passages.title(node)))
    return {"title": title, "text": text} if title else {"text": text}
