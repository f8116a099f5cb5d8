"""Encoder behind an HTTP endpoint of embeddings, in the format of OpenAI or Cohere."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from graphrerank.core import Encoder
from graphrerank.data.encoder import RefusedTextError
from graphrerank.installation.extras import optional
from graphrerank.language_models.client import REQUEST_AT_FAULT, EndpointError, post
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative
from graphrerank.utils.redaction import check_no_password

COUNTED = ("requests", "texts", "tokens", "retries", "cache_hits")


class _Embeddings(NamedTuple):
    """Content of an endpoint's answer.

    Attributes:
        vectors: Vectors of the texts, ``[B, dim]``.
        num_tokens: Number of tokens that the endpoint counted. 0 if it does not report them.
    """

    vectors: Tensor
    num_tokens: int


@dataclass(eq=False)
class EndpointEncoder(Encoder):
    """Encoder that requests vectors from an HTTP endpoint.

    Texts are sent in batches to ``<base_url>/embeddings``, or to ``<base_url>/embed`` in Cohere's format. Commands wrap
    the encoder in a ``VectorCache``, so that no text is paid for twice. A request is repeated like those of a
    ``LanguageModel``, and also if the answer contains an unexpected number of vectors.

    Args:
        base_url: URL of the endpoint including the version, such as ``http://localhost:8000/v1``.
        model: Name of the model at the endpoint.
        name: Short name for the manifest. If None, the last part of ``model``.
        dimensions: Number of components per vector, for models with variable dimensions. If None, the model's default.
        wire: Format of requests and answers: ``openai``, or ``cohere`` (version 2).
        input_type: Value of the request field ``input_type`` for passages, such as ``search_document``. If None, the
            field is omitted.
        query_input_type: Value of ``input_type`` for queries. If None, ``input_type`` is used for queries too.
        prompt: Prefix of every passage.
        query_prompt: Prefix of every query. If None, ``prompt`` is used for queries too.
        api_key_variable: Environment variable that contains the API key. If the variable is not set, no key is sent.
        batch_size: Number of texts per request.
        concurrency: Maximum number of concurrent requests.
        timeout: Timeout per request in seconds.
        max_retries: Maximum number of attempts after the first.
        pause: Seconds before the second attempt. Doubled before each further attempt.

    Attributes:
        counts: Number of answered ``requests``, of ``texts`` in them, of ``tokens`` (0 if the endpoint does not report
            them), of ``retries``, and of ``cache_hits``, which are texts found in the cache around this encoder.

    Raises:
        ValueError: If a setting is out of range, or if ``base_url`` contains a password.
    """

    base_url: str
    _: KW_ONLY
    model: str
    name: Any = None
    dimensions: int | None = None
    wire: str = "openai"
    input_type: str | None = None
    query_input_type: str | None = None
    prompt: str = ""
    query_prompt: str | None = None
    api_key_variable: str = "OPENAI_API_KEY"
    batch_size: int = 64
    concurrency: int = 4
    timeout: float = 60.0
    max_retries: int = 5
    pause: float = 1.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0), init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        check_counts(batch_size=self.batch_size, concurrency=self.concurrency, dimensions=self.dimensions)
        check_not_negative(max_retries=self.max_retries, pause=self.pause)
        check_choice(("openai", "cohere"), wire=self.wire)
        check_no_password(base_url=self.base_url)
        self.base_url = self.base_url.rstrip("/")
        self.name = self.name or self.model.rsplit("/", 1)[-1]

    @property
    def fingerprint(self) -> str:
        """Hash of the model's name and of the settings that affect vectors, without the URL."""
        settings = ("endpoint", self.model, self.dimensions, self.prompt, self.query_prompt)
        types = tuple(filter(None, (self.input_type, self.query_input_type)))
        return hashlib.sha256(repr(settings + types).encode()).hexdigest()

    @cached_property
    def for_queries(self) -> "EndpointEncoder":
        """Encoder of queries with the same ``counts``, or this encoder if queries have no separate prompt and type."""
        if self.query_prompt is None and self.query_input_type is None:
            return self
        twin = copy(self)
        twin.prompt, twin.query_prompt = self.prompt if self.query_prompt is None else self.query_prompt, None
        twin.input_type, twin.query_input_type = self.query_input_type or self.input_type, None
        return twin

    def count_cache_hits(self, number: int) -> None:
        """Count texts that were found in the cache around this encoder.

        Args:
            number: Number of texts.
        """
        self.counts["cache_hits"] += number

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts.

        Args:
            texts: ``n`` texts.

        Returns:
            Unit vectors ``[n, d]`` float32.

        Raises:
            RefusedTextError: If the endpoint refuses a single text, for example because it is too long.
            ValueError: If the endpoint gives no usable answer, or vectors of different lengths.
        """
        if not texts:
            return torch.zeros(0, 0)
        httpx = optional("httpx", "an encoder's endpoint")
        key = os.environ.get(self.api_key_variable)
        batches = [texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size)]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with (
            httpx.Client(timeout=self.timeout, headers=headers) as client,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):
            try:
                vectors = list(pool.map(partial(self._ask, client), batches))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        widths = sorted({rows.shape[1] for rows in vectors})
        if len(widths) > 1:
            raise UserError(f"{self.base_url}: expected vectors of one length, got {widths}")
        return functional.normalize(torch.cat(vectors), dim=-1)

    def _ask(self, client: Any, batch: Sequence[str]) -> Tensor:
        """Return the vectors of a batch, and count the request."""
        url = f"{self.base_url}/{'embed' if self._is_cohere else 'embeddings'}"
        try:
            reply, attempts = post(
                client,
                url,
                self._body(batch),
                lambda answer: self._parsed(answer, len(batch)),
                shown=f"{len(batch)} texts that begin with {batch[0][:60]!r}",
                max_retries=self.max_retries,
                pause=self.pause,
            )
        except EndpointError as error:
            if error.status in REQUEST_AT_FAULT and len(batch) > 1:
                self._name_refused_text(client, batch, error)
            elif error.status in REQUEST_AT_FAULT:
                raise RefusedTextError(f"{error}, for a text of {_described(batch[0])}", batch[0]) from error
            raise
        with self._lock:
            for name, count in zip(COUNTED, (1, len(batch), reply.num_tokens, attempts - 1), strict=False):
                self.counts[name] += count
        return reply.vectors

    @property
    def _is_cohere(self) -> bool:
        return self.wire == "cohere"

    def _body(self, batch: Sequence[str]) -> dict[str, Any]:
        """Return the JSON content of a request."""
        body: dict[str, Any] = {"model": self.model}
        body["texts" if self._is_cohere else "input"] = [self.prompt + text for text in batch]
        if self.dimensions is not None:
            body["output_dimension" if self._is_cohere else "dimensions"] = self.dimensions
        if self.input_type is not None:
            body["input_type"] = self.input_type
        if self._is_cohere:
            body["embedding_types"] = ["float"]
        return body

    def _parsed(self, answer: Any, num_texts: int) -> _Embeddings:
        """Parse the JSON content of an answer.

        Args:
            answer: Content of the answer.
            num_texts: Number of texts in the request.

        Raises:
            UserError: If the answer has not one finite vector for each text.
        """
        if self._is_cohere:
            rows = answer["embeddings"]["float"]
            usage = (answer.get("meta") or {}).get("billed_units") or {}
        else:
            entries = sorted(answer["data"], key=lambda entry: entry["index"])
            rows = [entry["embedding"] for number, entry in enumerate(entries) if entry["index"] == number]
            usage = answer.get("usage") or {}
        if len(rows) != num_texts:
            raise UserError(f"expected {num_texts} vectors, got {len(rows)}")
        vectors = torch.tensor(rows, dtype=torch.float32)
        if vectors.dim() != 2 or not bool(torch.isfinite(vectors).all()):
            raise UserError(f"expected finite vectors, got a tensor of shape {list(vectors.shape)}")
        counts = [usage.get(key) for key in ("prompt_tokens", "total_tokens", "input_tokens")]
        return _Embeddings(vectors, int(next(filter(None, counts), 0)))

    def _name_refused_text(self, client: Any, batch: Sequence[str], error: EndpointError) -> None:
        """Raise an error that names the longest text of a refused batch if the endpoint also refuses it alone.

        If it accepts the shortest text alone and the longest one too, the batch as a whole is too large. If it refuses
        both, the length is not the reason.
        """
        shortest, longest = min(batch, key=len), max(batch, key=len)
        try:
            self._ask(client, [shortest])
        except RefusedTextError:
            return
        try:
            self._ask(client, [longest])
        except RefusedTextError as refused:
            message = f"{refused}. It accepts a text of {len(shortest)} characters, so this one may be too long"
            raise RefusedTextError(message, longest) from error
        num_chars = sum(map(len, batch))
        message = f"{error}, for {len(batch)} texts of {num_chars} characters, but accepts the longest of them alone"
        raise UserError(f"{message}. Reduce `batch_size`, which is {self.batch_size}") from error


def _described(text: str) -> str:
    return f"{len(text)} characters that begins with {text[:60]!r}"
