"""A client of language models behind an OpenAI-compatible chat endpoint."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from graphrerank.checks import check_counts, check_not_negative

Answer = TypeVar("Answer")

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
MAX_WAIT = 60.0  # seconds between two attempts


@dataclass(eq=False)
class LanguageModel:
    """Asks a chat model, several questions at a time.

    A request is repeated after growing pauses (or as long as ``Retry-After`` says) if it times out, reaches no server,
    gets one of ``RETRIED``, or if its reader refuses the answer.
    """

    base_url: str  # of the endpoint, up to and including its version, such as `http://localhost:8000/v1`
    model: str  # its name there
    _: KW_ONLY
    api_key_variable: str = "OPENAI_API_KEY"  # environment variable of the key; no key is sent if it is not set
    temperature: float = 0.0  # of sampling; 0 for the likeliest answer
    # further fields of each request, in the endpoint's terms: `{"max_tokens": 500}`, or
    # `{"response_format": {"type": "json_object"}}` for a model that does not keep to JSON by itself
    request: Mapping[str, Any] | None = None
    timeout: float = 60.0  # seconds per request
    max_retries: int = 5  # attempts after the first
    pause: float = 1.0  # seconds before the second attempt; doubled before each further one
    concurrency: int = 8  # requests at once

    def __post_init__(self) -> None:
        check_counts(concurrency=self.concurrency)
        check_not_negative(max_retries=self.max_retries, temperature=self.temperature)
        if reserved := sorted({"model", "messages", "temperature"} & set(self.request or ())):
            raise ValueError(f"`request` must not set fields of the client, got {reserved}")
        self.base_url = self.base_url.rstrip("/")
        self.request = _plain(self.request or {})

    @property
    def fingerprint(self) -> str:
        """The model's name with the settings that determine its answers, without the endpoint, which may move."""
        further = (sorted(self.request.items()),) if self.request else ()
        return repr(("language model", self.model, self.temperature, *further))

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation.

        Args:
            questions: The user's messages.
            system: System message before each; None for none.
            read: Parses an answer's text; after a ``ValueError`` the question is asked again.

        Returns:
            The parsed answers, in the order of the questions.

        Raises:
            ValueError: If the endpoint refuses, or gives no usable answer within the attempts.
        """
        import httpx

        key = os.environ.get(self.api_key_variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        prefix = [] if system is None else [{"role": "system", "content": system}]
        with (
            httpx.Client(timeout=self.timeout, headers=headers) as client,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):
            futures = [
                pool.submit(self._ask_one, client, [*prefix, {"role": "user", "content": question}], read)
                for question in questions
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _ask_one(self, client: Any, messages: list[dict[str, str]], read: Callable[[str], Answer]) -> Answer:
        import httpx

        body = {"model": self.model, "messages": messages, "temperature": self.temperature, **(self.request or {})}
        url, problem = f"{self.base_url}/chat/completions", ""
        for attempt in range(self.max_retries + 1):
            wait = self.pause * 2**attempt
            try:
                response = client.post(url, json=body)
            except (httpx.TimeoutException, httpx.TransportError) as error:
                problem = repr(error)
            else:
                if response.status_code == 200:
                    try:
                        return read(response.json()["choices"][0]["message"]["content"])
                    except (ValueError, LookupError, TypeError) as error:
                        problem = repr(error)
                elif response.status_code in RETRIED:
                    problem = f"status {response.status_code}"
                    wait = _retry_after(response.headers.get("Retry-After"), wait)
                else:
                    raise ValueError(f"{url} refused with status {response.status_code}: {response.text[:200]!r}")
            if attempt < self.max_retries:
                time.sleep(min(wait, MAX_WAIT))
        raise ValueError(
            f"{url} gave no usable answer in {self.max_retries + 1} tries for the text "
            f"{messages[-1]['content'][:60]!r}; last: {problem}"
        )


def _plain(value: Any) -> Any:
    """Convert a configuration's mappings and sequences to dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value


def _retry_after(header: str | None, wait: float) -> float:
    try:
        return max(0.0, float(header)) if header is not None else wait
    except ValueError:  # a date
        return wait
