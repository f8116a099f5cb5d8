"""Engine that reranks the documents of requests with an artifact.

The documents of each request are a separate corpus for BM25, cosine similarity and edges.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from graphrerank.artifacts.artifact import Artifact, fastest_format, load_artifact, read_artifact_manifest
from graphrerank.core import Encoder, PairEncoder
from graphrerank.core.adapters import as_encoder
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.features.text_match import TEXT_MATCH_FEATURES
from graphrerank.models.checkpoint import Checkpoint, load_checkpoint
from graphrerank.rerank.candidate_lists import BM25_SCORE
from graphrerank.rerank.explanation import Explainer
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.rerank.reranked_list import RerankedList
from graphrerank.serving.engine import Check, Engine, encode
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import STAGE_SECONDS
from graphrerank.serving.schemas.explanation import Explanation, explanation_of
from graphrerank.serving.schemas.requests import NO_CONFIDENCE
from graphrerank.serving.schemas.rerank import RankedDocuments, RerankRequest, RerankResponse, render_rerank
from graphrerank.text.languages import AUTO
from graphrerank.utils.checks import UserError

WORD_COLUMNS = {BM25_SCORE, *TEXT_MATCH_FEATURES}


class RerankEngine(Engine[RerankRequest]):
    """Ranks the documents of many requests in one forward pass.

    Args:
        artifact: Artifact of a reranker.
        encoder: Text encoder, whose vectors are cached in memory. If None, the cosine similarity is 0.
        limits: Limits of the service. If None, the default limits.
        device: Device of the model.
        language: Language of word matching for requests without a language. ``auto`` is the language of their
            documents.
        pair_encoder: Cross-encoder, required by a GRanker head, which cannot explain scores. None for other models.

    Attributes:
        encoder: Text encoder with a cache, or None.
        corpus: ``request``, which marks ids in the feedback log as positions in a request.
        name: Name of the model.

    Raises:
        ValueError: If the model needs vectors of another encoder.
    """

    encoder: MemoryVectorCache | None = None
    corpus = "request"

    def __init__(
        self,
        artifact: Artifact,
        encoder: Encoder | None = None,
        *,
        limits: Limits | None = None,
        device: str = "cpu",
        language: str = AUTO,
        pair_encoder: PairEncoder | None = None,
    ) -> None:
        checkpoint = Checkpoint(artifact.module, artifact.manifest, artifact.folder)
        self._reranker = GraphReranker(checkpoint, device=device, pair_encoder=pair_encoder)
        self._folder = artifact.folder
        self._is_calibrated = checkpoint.reranker.calibration is not None
        self._limits = limits or Limits()
        self.name = self._reranker.name
        if self._reranker.inputs.reads_vectors:  # other models use only cosines, which any encoder can provide
            described = (None, None) if encoder is None else (as_encoder(encoder).name, as_encoder(encoder).fingerprint)
            checkpoint.check_encoder(*described)
        if encoder is not None and not isinstance(encoder, MemoryVectorCache):
            encoder = MemoryVectorCache(encoder)
        self.encoder = encoder
        self._language = language

    def answer(self, jobs: Mapping[str, RerankRequest], check: Check = lambda: None) -> dict[str, RankedDocuments]:
        """Rank the documents of a batch of requests.

        Args:
            jobs: Requests by id.
            check: Function that raises TimeoutError once nobody waits for the batch.

        Returns:
            Ranked documents by request id.

        Raises:
            ValueError: If a request is invalid.
        """
        inputs = self._encoded([self._in_language(job.candidates) for job in jobs.values()])
        check()
        with STAGE_SECONDS.labels("rerank").time():
            rankings = self._reranker.rerank_batch(inputs, check=check, warns=False)
        return {
            uid: RankedDocuments(
                self.name,
                ranking.indices.tolist(),
                self._relevance(ranking),
                ranking.scores.tolist(),
                self._explain(candidates, ranking, check) if job.explain else None,
                _perfect_recall(ranking) if job.return_confidence else None,
                candidates.language if self._matches_words(candidates) else None,
            )
            for (uid, job), candidates, ranking in zip(jobs.items(), inputs, rankings, strict=True)
        }

    def rerank(self, requests: Mapping[str, RerankRequest]) -> dict[str, RerankResponse]:
        """Rank the documents of a batch of requests and return complete responses.

        Args:
            requests: Requests by id.

        Returns:
            Responses by request id.

        Raises:
            ValueError: If a request is invalid.
        """
        ranked = self.answer(requests)
        return {
            uid: RerankResponse.model_validate(render_rerank(request, ranked[uid], uid))
            for uid, request in requests.items()
        }

    def warm_up(self) -> None:
        """Rank twice, with and without edges, because TorchScript optimises its graphs on the second call."""
        texts = {"query": "what warms up", "documents": ["the first document", "the second", "a third one"]}
        for edges in ([], [[0, 1], [1, 2, 0.5]]):
            request = RerankRequest.model_validate({**texts, "edges": edges})
            for _ in range(2):
                self.rerank({"first": request, "second": request})
        if not self._reranker.inputs.reads_pairs:
            self.rerank({"explained": request.model_copy(update={"explain": True})})

    def probes(self) -> list[RerankRequest]:
        """Return requests of several sizes: scores only, texts, a long query, and explanations."""
        vectors = None if self.encoder is None else encode(self.encoder, ["the size of a vector"])[0].tolist()
        sizes: list[dict[str, int]] = [
            {"documents": 2, "edges": 1},
            {"documents": 100, "edges": 300},
            {"documents": 500, "edges": 300},
            {"documents": 200, "edges": 5000},
            {"documents": 2, "edges": 1, "words": 12},
            {"documents": 100, "edges": 300, "words": 12},
            {"documents": 100, "edges": 30, "words": 200},
            {"documents": 100, "edges": 300, "words": 12, "query_words": 500},
        ]
        if not self._reranker.inputs.reads_pairs:
            sizes += [
                {"documents": 20, "edges": 20, "explain": 1},
                {"documents": 50, "edges": 100, "explain": 1},
                {"documents": 400, "edges": 30, "explain": 1},
                {"documents": 100, "edges": 100, "words": 12, "explain": 1},
            ]
        else:  # a cross-encoder needs texts
            sizes = [size for size in sizes if "words" in size]
        return [probe_request(vectors=vectors, **size) for size in sizes]

    def _relevance(self, ranking: RerankedList) -> list[float] | list[None]:
        is_unknown = self._is_calibrated and ranking.probabilities is None
        return [None] * len(ranking) if is_unknown else ranking.relevance.tolist()

    def _matches_words(self, candidates: RerankInput) -> bool:
        """Return whether the words of the passages are matched with the words of the query."""
        has_word_features = not WORD_COLUMNS.isdisjoint(self._reranker.feature_names)
        return candidates.passages is not None and (has_word_features or candidates.scores is None)

    def _in_language(self, candidates: RerankInput) -> RerankInput:
        """Return candidates with the language of word matching: the request's, otherwise the service's."""
        if not self._matches_words(candidates):
            return candidates
        language = candidates.language if candidates.language != AUTO else self._language
        return replace(candidates, language=candidates.language_of_passages if language == AUTO else language)

    def _encoded(self, candidates: Sequence[RerankInput]) -> list[RerankInput]:
        """Return candidates with vectors. Missing vectors are encoded in one call for queries and one for passages."""
        encoded = list(candidates)
        if self.encoder is None:
            return encoded
        missing = [i for i, one in enumerate(candidates) if one.vectors is None and one.passages is not None]
        queries = encode(self.encoder.for_queries, [candidates[i].query for i in missing])
        texts = [text for i in missing for text in candidates[i].passages or ()]
        blocks = torch.split(encode(self.encoder, texts), [candidates[i].num_passages for i in missing])
        for i, query, vectors in zip(missing, queries, blocks, strict=True):
            encoded[i] = replace(candidates[i], query_vector=query, vectors=vectors)
        return encoded

    def _explain(self, candidates: RerankInput, ranking: RerankedList, check: Check) -> list[Explanation]:
        if self._reranker.inputs.reads_pairs:
            raise UserError("`explain` is not supported by a GRanker head")
        with STAGE_SECONDS.labels("explain").time():
            most = self._limits.most_explained_edges(candidates.num_passages)
            explanations = self._explainer.explain(candidates, max_edges=most, check=check)
        chances = [None] * len(ranking) if ranking.probabilities is None else ranking.probabilities.tolist()
        indices = ranking.indices.tolist()
        return [explanation_of(explanations[index], chance) for index, chance in zip(indices, chances, strict=False)]

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(load_checkpoint(self._folder))


def probe_request(
    *,
    documents: int,
    edges: int,
    words: int = 0,
    query_words: int = 8,
    explain: int = 0,
    vectors: Sequence[float] | None = None,
) -> RerankRequest:
    """Return a request of a given size with random scores and words. Half of the words are unique.

    Args:
        documents: Number of documents.
        edges: Number of distinct edges.
        words: Number of words of each document. 0 for scores without documents.
        query_words: Number of words of the query.
        explain: Whether to explain scores, 0 or 1.
        vectors: Vector of the query and of all documents. If None, the request has no vectors.

    Returns:
        The request.
    """
    draw = random.Random(f"{documents} {edges} {words} {query_words} {explain}")
    pairs = set[tuple[int, int]]()
    while len(pairs) < edges:
        first, second = sorted(draw.sample(range(documents), 2))
        pairs.add((first, second))

    def text(count: int) -> str:
        return " ".join(f"word{draw.randrange(1000 if draw.random() < 0.5 else 10**9)}" for _ in range(count))

    fields: dict[str, Any] = {
        "query": text(query_words),
        "scores": [draw.random() for _ in range(documents)],
        "edges": sorted(pairs),
        "explain": bool(explain),
    }
    if words:
        fields["documents"] = [text(words) for _ in range(documents)]
        if vectors is not None:
            fields |= {"query_vector": vectors, "vectors": [vectors] * documents}
    return RerankRequest.model_validate(fields)


def _perfect_recall(ranking: RerankedList) -> list[float] | None:
    if ranking.confidence is None:
        raise UserError(NO_CONFIDENCE)
    return None if ranking.perfect_recall is None else ranking.perfect_recall[: len(ranking)].tolist()


def load_rerank_engine(
    folder: Path,
    make_encoder: Callable[[], Encoder] | None,
    limits: Limits,
    device: str,
    *,
    format_name: str | None = None,
    language: str = AUTO,
    make_pair_encoder: Callable[[], PairEncoder] | None = None,
) -> RerankEngine:
    """Load an artifact and return its engine.

    Args:
        folder: Folder of the artifact.
        make_encoder: Factory of the text encoder. If None, there is no encoder.
        limits: Limits of the service.
        device: Device of the model.
        format_name: Format to load. If None, the fastest format on the device.
        language: Language of word matching for requests without a language.
        make_pair_encoder: Factory of the cross-encoder of a GRanker head. None for other models.

    Returns:
        The engine.

    Raises:
        ValueError: If the artifact cannot be loaded, or needs vectors of another encoder.
    """
    encoder = None if make_encoder is None else make_encoder()
    pair_encoder = None if make_pair_encoder is None else make_pair_encoder()
    artifact = load_artifact(folder, format_name or fastest_format(read_artifact_manifest(folder), device))
    return RerankEngine(artifact, encoder, limits=limits, device=device, language=language, pair_encoder=pair_encoder)
