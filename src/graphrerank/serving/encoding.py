"""Encoding of the texts of requests before their engines run, in pieces: others have their turn between them."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.graphs.queries import query_encoder
from graphrerank.serving.engine import Check, Engine
from graphrerank.serving.limits import encoding_seconds, num_encoded_chars
from graphrerank.serving.metrics import STAGE_SECONDS


class EncodingJob:
    """The texts of a request that are to be encoded by an encoder, which keeps the vectors for the request's engine."""

    def __init__(self, encoder: MemoryVectorCache, request: Any, seconds: float) -> None:
        self._encoder = encoder
        self._request = request
        self._left: list[tuple[MemoryVectorCache, str]] | None = None  # the longest first
        self.seconds = 0.0  # estimated, of the last piece
        self.seconds_left = seconds

    def next_piece(self, seconds: float) -> list[tuple[MemoryVectorCache, str]]:
        """Take texts of similar lengths, with their encoders, of about this estimated time."""
        if self._left is None:
            queries, passages = self._request.texts_to_encode()
            encoders = ((query_encoder(self._encoder), queries), (self._encoder, passages))
            self._left = [(encoder, text) for encoder, texts in encoders for text in encoder.missing(texts)]
            self._left.sort(key=lambda entry: len(entry[1]), reverse=True)
        piece, self.seconds = [], 0.0
        while self._left and self.seconds < seconds:
            piece.append(self._left.pop())
            self.seconds += encoding_seconds(1, num_encoded_chars([piece[-1][1]]))
        self.seconds_left = encoding_seconds(len(self._left), num_encoded_chars(text for _, text in self._left))
        return piece


class EncodingEngine(Engine[EncodingJob]):
    """Encodes the next piece of each request of a batch, ``piece_seconds`` of estimated time."""

    def __init__(self, piece_seconds: float) -> None:
        self._piece_seconds = piece_seconds

    def answer(self, jobs: Mapping[str, EncodingJob], check: Check = lambda: None) -> dict[str, EncodingJob]:
        """Return the jobs."""
        texts: defaultdict[MemoryVectorCache, list[str]] = defaultdict(list)
        for job in jobs.values():
            for encoder, text in job.next_piece(self._piece_seconds):
                texts[encoder].append(text)
        for encoder, pieces in texts.items():
            # a batch is padded to its longest text: texts of one have at most twice the length of each other
            for _, batch in groupby(sorted(pieces, key=len), key=lambda text: len(text).bit_length()):
                with STAGE_SECONDS.labels("encode").time():
                    try:
                        encoder.encode(list(batch))
                    except ValueError as error:
                        raise RuntimeError(str(error)) from error  # not the request's fault
        return dict(jobs)
