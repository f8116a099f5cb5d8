"""An encoder behind an endpoint of embeddings, in OpenAI's wire format or in Cohere's."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphrerank.core import Encoder
from graphrerank.installation.extras import optional
from graphrerank.language_models.client import post
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative
from graphrerank.utils.redaction import check_no_password

COUNTED = ("requests", "texts", "tokens", "retries", "cache_hits")


@dataclass(eq=False)
class EndpointEncoder(Encoder):
    """Request vectors from ``<base_url>/embeddings``, in Cohere's format from ``<base_url>/embed``, in batches.

    Commands wrap it in a ``VectorCache``, so that no text is paid for twice. A batch is repeated as a request of a
    ``LanguageModel`` is, also if its answer has other vectors than requested. ``counts`` has ``requests`` that were
    answered, ``texts`` in them, ``tokens`` as the endpoint counts them (0 where it does not), ``retries``, and
    ``cache_hits``, texts that a cache around it held.
    """

    base_url: str  # up to and including the version, such as `http://localhost:8000/v1`
    _: KW_ONLY
    model: str  # its name there
    name: Any = None  # short name for the manifest; the last part of `model` when None
    dimensions: int | None = None  # length of the vectors, for models that shorten theirs
    wire: str = "openai"  # format of requests and answers; or `cohere`, version 2
    input_type: str | None = None  # field of every request for passages, such as `search_document`; none when None
    query_input_type: str | None = None  # of those for queries in its place; as `input_type` when None
    prompt: str = ""  # prefix of every passage
    query_prompt: str | None = None  # prefix of every query in its place; as `prompt` when None
    api_key_variable: str = "OPENAI_API_KEY"  # environment variable of the key; no key is sent if it is not set
    batch_size: int = 64  # texts in a request
    concurrency: int = 4  # requests at once
    timeout: float = 60.0  # seconds per request
    max_retries: int = 5  # attempts after the first
    pause: float = 1.0  # seconds before the second attempt; doubled before each further one
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
        """Hash of the model's name and of the settings that change vectors, without the endpoint, which may move."""
        settings = ("endpoint", self.model, self.dimensions, self.prompt, self.query_prompt)
        types = tuple(filter(None, (self.input_type, self.query_input_type)))
        return hashlib.sha256(repr(settings + types).encode()).hexdigest()

    @cached_property
    def for_queries(self) -> "EndpointEncoder":
        """The encoder of queries, with the same counts; itself if queries have no separate prompt and type."""
        if self.query_prompt is None and self.query_input_type is None:
            return self
        twin = copy(self)
        twin.prompt, twin.query_prompt = self.prompt if self.query_prompt is None else self.query_prompt, None
        twin.input_type, twin.query_input_type = self.query_input_type or self.input_type, None
        return twin

    def count_cache_hits(self, number: int) -> None:
        """Add the texts that a cache around the encoder had to ``counts["cache_hits"]``."""
        self.counts["cache_hits"] += number

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode ``n`` texts as ``[n, d]`` float32 unit vectors; a ValueError without a usable answer."""
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
        if len(widths := sorted({part.shape[1] for part in vectors})) > 1:
            raise UserError(f"{self.base_url}: needed vectors of one length, got {widths}")
        return functional.normalize(torch.cat(vectors), dim=-1)

    def _ask(self, client: Any, batch: Sequence[str]) -> Tensor:
        of_cohere = self.wire == "cohere"
        body: dict[str, Any] = {"model": self.model}
        body["texts" if of_cohere else "input"] = [self.prompt + text for text in batch]
        if self.dimensions is not None:
            body["output_dimension" if of_cohere else "dimensions"] = self.dimensions
        if self.input_type is not None:
            body["input_type"] = self.input_type
        if of_cohere:
            body["embedding_types"] = ["float"]

        def read(answer: Any) -> tuple[Tensor, int]:
            if of_cohere:
                rows, usage = answer["embeddings"]["float"], (answer.get("meta") or {}).get("billed_units") or {}
            else:
                entries = sorted(answer["data"], key=lambda entry: entry["index"])
                rows = [entry["embedding"] for number, entry in enumerate(entries) if entry["index"] == number]
                usage = answer.get("usage") or {}
            if len(rows) != len(batch):
                raise UserError(f"needed {len(batch)} vectors, got {len(rows)}")
            vectors = torch.tensor(rows, dtype=torch.float32)
            if vectors.dim() != 2 or not bool(torch.isfinite(vectors).all()):
                raise UserError(f"needed finite vectors, got a tensor of shape {list(vectors.shape)}")
            tokens = (usage.get(key) for key in ("prompt_tokens", "total_tokens", "input_tokens"))
            return vectors, int(next(filter(None, tokens), 0))

        shown = f"{len(batch)} texts that begin with {batch[0][:60]!r}"
        url = f"{self.base_url}/{'embed' if of_cohere else 'embeddings'}"
        plan = {"max_retries": self.max_retries, "pause": self.pause}
        (vectors, tokens), attempts = post(client, url, body, read, shown=shown, **plan)  # type: ignore[arg-type]
        with self._lock:
            for what, count in zip(COUNTED, (1, len(batch), tokens, attempts - 1), strict=False):
                self.counts[what] += count
        return vectors
