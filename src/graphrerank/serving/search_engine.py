"""Searches an indexed corpus with a pipeline, and goes over to a new corpus without a break."""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from graphrerank.data.encoder import Encoder
from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.pipelines import Pipeline
from graphrerank.serving.engine import Answer
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import limits_of
from graphrerank.serving.metrics import metrics


class SearchRequest(BaseModel):
    """What ``POST /search`` takes.

    Attributes:
        query: The query, not empty.
        top_n: How many results to return; fewer where the pipeline finds fewer.
        return_documents: Whether results hold the texts.
    """

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1)]
    top_n: Annotated[int, Field(ge=1, strict=True)] = 10
    return_documents: Annotated[bool, Field(strict=True)] = False

    @field_validator("query")
    @classmethod
    def _not_too_long(cls, query: str, info: ValidationInfo) -> str:
        return limits_of(info).check_text("query", query)


class SearchResult(BaseModel):
    """One passage.

    Attributes:
        doc_id: Its id in the corpus.
        score: Of the pipeline's last step, of any scale; higher is more relevant, comparable within an answer only.
        document: Its text, where ``return_documents`` asks for it.
    """

    doc_id: str
    score: float
    document: dict[str, Any] | None = None


class SearchResponse(BaseModel):
    """What ``POST /search`` answers.

    Attributes:
        id: Of the request, as in the logs.
        results: Best first.
        meta: ``index``, the version of the corpus that was searched.
    """

    id: str
    results: list[SearchResult]
    meta: dict[str, Any]


@dataclass(frozen=True)
class SearchableCorpus:
    """A corpus and what searches it.

    Attributes:
        graph: The corpus.
        pipeline: Retrieves from it.
        encoder: Encodes queries; None where nothing reads vectors.
    """

    graph: CorpusGraph
    pipeline: Pipeline
    encoder: Encoder | None


class SearchEngine:
    """Searches for the queries of many requests at once.

    A thread looks at the folder, and at where it is if it is a link. When it has changed, and has then been at rest
    from one look to the next, the new corpus is loaded beside the old one and takes its place: a batch is answered
    from one of them. A corpus that cannot be loaded is logged, and the old one stays.

    Args:
        load: Loads a corpus.
        folder: Where it lies.
        look_seconds: Time between looks at the folder.

    Raises:
        ValueError: If the first corpus cannot be loaded.
    """

    def __init__(self, load: Callable[[Path], SearchableCorpus], folder: Path, *, look_seconds: float = 2.0) -> None:
        self._load = load
        self._folder = folder
        self._look_seconds = look_seconds
        version = corpus_version(folder)
        self._current = (version, load(folder))
        Thread(target=self._watch, args=(version,), daemon=True).start()

    def answer(self, requests: Mapping[str, SearchRequest]) -> dict[str, Answer]:
        """Answer a batch of requests, by their ids."""
        version, corpus = self._current
        texts = [request.query for request in requests.values()]
        vectors = None if corpus.encoder is None else corpus.encoder.encode(texts).to(corpus.graph.device)
        found = corpus.pipeline.retrieve(Queries(list(requests), texts, vectors))
        for stage, seconds in found.seconds.items():
            metrics().stage_seconds.labels(f"search/{stage}").observe(seconds)
        rows = zip(requests.items(), found.ranking.nodes.tolist(), found.ranking.scores.tolist(), strict=True)
        return {
            uid: Answer.of(
                SearchResponse(id=uid, results=_results(corpus.graph, request, nodes, scores), meta={"index": version})
            )
            for (uid, request), nodes, scores in rows
        }

    def warm_up(self) -> None:
        """Search once."""
        self.answer({"first": SearchRequest(query="what warms up?")})

    def _watch(self, served: str) -> None:
        seen = served
        while True:
            time.sleep(self._look_seconds)
            before, seen = seen, corpus_version(self._folder)
            if seen not in (served, "") and seen == before:
                served = seen  # tried once
                self._replace(seen)

    def _replace(self, version: str) -> None:
        try:
            corpus = self._load(self._folder)
        except Exception as error:
            log("corpus could not be loaded, the old one stays", level=logging.ERROR, error=error, index=version)
            return
        self._current = (version, corpus)
        log("corpus loaded", index=version, nodes=corpus.graph.num_nodes)


def corpus_version(folder: Path) -> str:
    """Return what changes with the place, the size or the time of a corpus's files; empty while there are none."""
    place = folder.resolve()
    try:
        stamps = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in place.rglob("*")]
    except FileNotFoundError:  # one went while it was looked at
        return ""
    return hashlib.sha256(repr((place, sorted(stamps))).encode()).hexdigest()[:16] if stamps else ""


def _results(graph: CorpusGraph, request: SearchRequest, nodes: list[int], scores: list[float]) -> list[SearchResult]:
    return [
        SearchResult(
            doc_id=graph.node_ids[node],
            score=score,
            document={"text": graph.texts[node]} if request.return_documents else None,
        )
        for node, score in list(zip(nodes, scores, strict=True))[: request.top_n]
        if node >= 0
    ]
