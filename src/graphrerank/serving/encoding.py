"""Encoding of the texts of requests, before their engines need the vectors.

Long requests are encoded in pieces, so that short ones wait for one piece at most.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.graphs.queries import query_encoder
from graphrerank.serving.engine import Check
from graphrerank.serving.limits import PER_ENCODED_CHARACTER, num_encoded_chars
from graphrerank.serving.metrics import STAGE_SECONDS

PIECE_CHARS = 2000  # of a request, encoded before others have their turn


class EncodingJob:
    """The texts of a request that are to be encoded.

    Args:
        encoder: Keeps the vectors for the request's engine.
        request: The request, whose ``texts_to_encode`` are queries and passages.
    """

    def __init__(self, encoder: MemoryVectorCache, request: Any) -> None:
        self._encoder = encoder
        self._request = request
        self._left: list[tuple[MemoryVectorCache, str]] | None = None  # the longest first
        self.seconds = PER_ENCODED_CHARACTER * PIECE_CHARS  # estimated, of the last piece
        self.seconds_left = math.inf

    def next_piece(self) -> list[tuple[MemoryVectorCache, str]]:
        """Take texts of similar lengths, with their encoders."""
        if self._left is None:
            queries, passages = self._request.texts_to_encode()
            encoders = (query_encoder(self._encoder), self._encoder)
            self._left = [
                (encoder, text)
                for encoder, texts in zip(encoders, (queries, passages), strict=True)
                for text in encoder.missing(texts)
            ]
            self._left.sort(key=lambda entry: len(entry[1]), reverse=True)
        piece, num_chars = [], 0
        while self._left and num_chars < PIECE_CHARS:
            piece.append(self._left.pop())
            num_chars += num_encoded_chars([piece[-1][1]])
        self.seconds = PER_ENCODED_CHARACTER * num_chars
        self.seconds_left = PER_ENCODED_CHARACTER * num_encoded_chars(text for _, text in self._left)
        return piece


class EncodingEngine:
    """Encodes a piece of each request of a batch."""

    def answer(self, jobs: Mapping[str, EncodingJob], check: Check = lambda: None) -> dict[str, EncodingJob]:
        """Encode the next piece of each job; return the jobs."""
        texts: defaultdict[MemoryVectorCache, list[str]] = defaultdict(list)
        for job in jobs.values():
            for encoder, text in job.next_piece():
                texts[encoder].append(text)
        for encoder, piece in texts.items():
            with STAGE_SECONDS.labels("encode").time():
                try:
                    for similar in _of_similar_lengths(piece):
                        encoder.encode(similar)
                except ValueError as error:
                    raise RuntimeError(str(error)) from error  # not the request's fault
        return dict(jobs)

    def warm_up(self) -> None:
        """Do nothing: the engines warm up their encoders."""


def _of_similar_lengths(texts: Iterable[str]) -> Iterator[list[str]]:
    """Split texts into batches, in which the shorter ones are padded by little."""
    batch: list[str] = []
    for text in sorted(texts, key=len):
        if batch and (len(batch) + 1) * num_encoded_chars([text]) > 4 * PIECE_CHARS:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch
