"""Client of language models behind an OpenAI-compatible chat endpoint."""

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from pydantic import HttpUrl, TypeAdapter, ValidationError

from graphrerank.installation.extras import optional
from graphrerank.language_models.prompt import is_schema
from graphrerank.language_models.reply import FAILED, REJECTED, Reply, read_reply
from graphrerank.text.characters import whole_characters
from graphrerank.utils.checks import UserError, check_counts, check_not_negative, check_positive

Answer = TypeVar("Answer")

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
# Statuses that concern a single request, for example one that is too long. Other requests may succeed.
REQUEST_AT_FAULT = frozenset({400, 413, 422})
MAX_WAIT = 60.0  # Maximum pause between two attempts, in seconds.


class EndpointError(UserError):
    """Error raised when an endpoint refuses a request, or gives no usable answer in all attempts.

    Args:
        message: Error message.
        problem: Cause of the last failure, as reported by the endpoint.
        attempts: Number of attempts.
        status: HTTP status of the refusal. If None, all attempts failed.
        is_reached: Whether any attempt reached a server.
    """

    def __init__(
        self, message: str, problem: str, *, attempts: int, status: int | None = None, is_reached: bool = True
    ) -> None:
        super().__init__(message)
        self.problem, self.attempts, self.status, self.is_reached = problem, attempts, status, is_reached


@dataclass(eq=False)
class LanguageModel:
    """Chat model that answers several questions concurrently.

    A request is repeated after growing pauses (or the pause in ``Retry-After``) if it times out, reaches no server,
    gets a status in ``RETRIED``, or if its answer cannot be parsed.

    Args:
        base_url: URL of the endpoint including the version, such as ``http://localhost:8000/v1``.
        model: Name of the model at the endpoint.
        api_key_variable: Environment variable that contains the API key. If the variable is not set, no key is sent.
        temperature: Sampling temperature. 0 selects the most likely answer.
        request: Additional fields of each request, as defined by the endpoint, such as ``{"max_tokens": 500}`` or
            ``{"response_format": {"type": "json_object"}}``. If None, there are none.
        timeout: Timeout per request in seconds.
        max_retries: Maximum number of attempts after the first.
        pause: Seconds before the second attempt. Doubled before each further attempt.
        concurrency: Maximum number of concurrent requests.
        constrained: Whether to constrain answers to a prompt's JSON schema (:meth:`in_form`) with ``response_format``.
            OpenAI, vLLM, llama.cpp and Ollama support this field. Other endpoints may reject the requests.
    """

    base_url: str
    model: str
    _: KW_ONLY
    api_key_variable: str = "OPENAI_API_KEY"
    temperature: float = 0.0
    request: Mapping[str, Any] | None = None
    timeout: float = 60.0
    max_retries: int = 5
    pause: float = 1.0
    concurrency: int = 8
    constrained: bool = False

    def __post_init__(self) -> None:
        check_counts(concurrency=self.concurrency)
        check_not_negative(max_retries=self.max_retries, temperature=self.temperature, pause=self.pause)
        check_positive(timeout=self.timeout)
        try:
            TypeAdapter(HttpUrl).validate_python(self.base_url)
        except ValidationError:
            raise UserError(
                f"`base_url` must be an address such as http://localhost:8000/v1, got {self.base_url!r}"
            ) from None
        if reserved := sorted({"model", "messages", "temperature"} & set(self.request or ())):
            raise UserError(f"`request` must not contain model, messages or temperature, got {reserved}")
        self.base_url = self.base_url.rstrip("/")
        plain = json.dumps(
            self.request or {}, default=lambda part: dict(part) if isinstance(part, Mapping) else [*part]
        )
        self.request = json.loads(plain)

    @property
    def fingerprint(self) -> str:
        """Identifier made of the model's name and the settings that determine its answers, without the URL."""
        further = (sorted(self.request.items()),) if self.request else ()
        return repr(("language model", self.model, self.temperature, *further))

    def in_form(self, form: str) -> "LanguageModel":
        """Return this model constrained to a JSON schema.

        Args:
            form: JSON schema, or a regular expression, which endpoints do not support.

        Returns:
            Constrained model. If ``constrained`` is False, if the form is a regular expression, or if ``request``
            already contains a ``response_format``, this model.
        """
        request = dict(self.request or {})
        if not (self.constrained and is_schema(form)) or "response_format" in request:
            return self
        schema = {"name": "answer", "strict": True, "schema": json.loads(form)}
        return replace(self, request={**request, "response_format": {"type": "json_schema", "json_schema": schema}})

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation.

        Args:
            questions: ``n`` user messages.
            system: System message of each conversation. If None, there is none.
            read: Function that parses the text of an answer. If it raises a ValueError, the question is sent again.

        Returns:
            Parsed answers of the ``n`` questions, in order.

        Raises:
            EndpointError: If the endpoint refuses a request, or gives no usable answer in all attempts.
        """

        def read_text(body: Any) -> Answer:
            content = body["choices"][0]["message"]["content"]
            return read(whole_characters(content) if isinstance(content, str) else content)

        with closing(self._each(questions, system, read_text)) as each:
            answers = {index: future.result()[0] for index, future in each}
        return [answers[index] for index in range(len(questions))]

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, and yield the replies as they arrive.

        Failures that concern a single question are replies, too (:class:`~graphrerank.language_models.reply.Reply`). At
        most ``concurrency`` questions are pending at any time, including those whose replies were not consumed yet.

        Args:
            questions: ``n`` user messages.
            system: System message of each conversation. If None, there is none.

        Yields:
            Index of the question, and the reply.

        Raises:
            EndpointError: If the endpoint refuses all requests (wrong key, URL or model), or if no server can be
                reached.
        """
        answered: list[bool] = []  # Non-empty once a server has answered.

        def read(body: Any) -> Reply:
            answered.append(True)
            return read_reply(body)

        for index, future in self._each(questions, system, read):
            yield index, _reply(future, is_answered=bool(answered))

    def _each(
        self, questions: Sequence[str], system: str | None, read: Callable[[Any], Answer]
    ) -> "Generator[tuple[int, Future[tuple[Answer, int]]], None, None]":
        """Ask ``concurrency`` questions at a time, and yield the index and the future of each completed request."""
        httpx = optional("httpx", "a language model's endpoint")
        key = os.environ.get(self.api_key_variable)
        if key and not all("!" <= character <= "~" for character in key):
            raise UserError(
                f"`{self.api_key_variable}` must contain only printable ASCII characters without spaces, got another "
                f"character in a key of length {len(key)}"
            )
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        prefix = [] if system is None else [{"role": "system", "content": system}]
        url, waiting = f"{self.base_url}/chat/completions", iter(enumerate(questions))
        fixed = {"model": self.model, "temperature": self.temperature, **(self.request or {})}
        plan = {"max_retries": self.max_retries, "pause": self.pause}
        under_way: dict[Future[tuple[Answer, int]], int] = {}
        with (
            httpx.Client(timeout=self.timeout, headers=headers) as client,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):
            while True:
                for index, question in islice(waiting, self.concurrency - len(under_way)):
                    body = {**fixed, "messages": [*prefix, {"role": "user", "content": question}]}
                    shown = f"the text {question[:60]!r}"
                    under_way[pool.submit(post, client, url, body, read, shown=shown, **plan)] = index  # type: ignore[arg-type]
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    yield under_way.pop(future), future


def _reply(future: "Future[tuple[Reply, int]]", *, is_answered: bool) -> Reply:
    """Convert the outcome of a request to a reply, and raise errors that concern all requests."""
    try:
        reply, attempts = future.result()
    except EndpointError as error:
        if error.status is None and (error.is_reached or is_answered):
            return Reply("", FAILED, attempts=error.attempts, problem=error.problem)
        if error.status in REQUEST_AT_FAULT:
            return Reply("", REJECTED, attempts=error.attempts, problem=error.problem)
        raise
    return replace(reply, attempts=attempts)


def post(
    client: Any,
    url: str,
    body: Mapping[str, Any],
    read: Callable[[Any], Answer],
    *,
    shown: str,
    max_retries: int,
    pause: float,
) -> tuple[Answer, int]:
    """Send a JSON request, and repeat it until the answer can be parsed.

    Args:
        client: ``httpx.Client``.
        url: URL of the request.
        body: JSON content of the request.
        read: Function that parses the JSON content of an answer. The request is repeated if it raises a ValueError,
            LookupError, TypeError or AttributeError.
        shown: Description of the request, used in error messages.
        max_retries: Maximum number of attempts after the first.
        pause: Seconds before the second attempt. Doubled before each further attempt, and overridden by
            ``Retry-After``.

    Returns:
        Parsed answer, and the number of attempts.

    Raises:
        EndpointError: If the endpoint refuses the request, or gives no usable answer in all attempts.
    """
    httpx = optional("httpx", "an endpoint")
    problem, is_reached = "", False
    for attempt in range(max_retries + 1):
        wait_seconds = pause * 2**attempt
        try:
            response = client.post(url, json=body)
            is_reached = True
            if response.status_code == 200:
                return read(response.json()), attempt + 1
        except httpx.RequestError as error:
            problem = repr(error)
            is_reached = is_reached or not isinstance(error, httpx.ConnectError)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problem = repr(error)
        else:
            problem = f"status {response.status_code}"
            if response.status_code not in RETRIED:
                problem += f": {response.text[:200]!r}"
                message = f"{url} refused with {problem}"
                raise EndpointError(message, problem, attempts=attempt + 1, status=response.status_code)
            with suppress(ValueError):  # `Retry-After` can be a date, which is ignored.
                wait_seconds = max(0.0, float(response.headers.get("Retry-After", wait_seconds)))
        if attempt < max_retries:
            time.sleep(min(wait_seconds, MAX_WAIT))
    tries = max_retries + 1
    message = f"{url} gave no usable answer in {tries} tries for {shown}; last: {problem}"
    raise EndpointError(message, problem, attempts=tries, is_reached=is_reached)
