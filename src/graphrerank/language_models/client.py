"""A client of language models behind an OpenAI-compatible chat endpoint."""

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
REQUEST_AT_FAULT = frozenset({400, 413, 422})  # this one, as one that is too long; others may be answered
MAX_WAIT = 60.0  # seconds between two attempts


class EndpointError(UserError):
    """An endpoint refused a request for good (with ``status``), or gave no usable answer in all attempts."""

    def __init__(
        self, message: str, problem: str, *, attempts: int, status: int | None = None, is_reached: bool = True
    ) -> None:
        super().__init__(message)
        # of the last attempt; is_reached: whether any attempt found a server
        self.problem, self.attempts, self.status, self.is_reached = problem, attempts, status, is_reached


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
    # whether the endpoint is asked to keep to the JSON schema that a prompt has as `form` (:func:`in_form`), by the
    # `response_format` of OpenAI, vLLM, llama.cpp and Ollama; an endpoint that does not know it may reject each request
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
            raise UserError(f"`request` must not set fields of the client, got {reserved}")
        self.base_url = self.base_url.rstrip("/")
        plain = json.dumps(
            self.request or {}, default=lambda part: dict(part) if isinstance(part, Mapping) else [*part]
        )
        self.request = json.loads(plain)

    @property
    def fingerprint(self) -> str:
        """The model's name with the settings that determine its answers, without the endpoint, which may move."""
        further = (sorted(self.request.items()),) if self.request else ()
        return repr(("language model", self.model, self.temperature, *further))

    def in_form(self, form: str) -> "LanguageModel":
        """Return this model with answers of a JSON schema; itself unless ``constrained``, or for a regular expression.

        A ``response_format`` of ``request`` is the user's and stays.
        """
        request = dict(self.request or {})
        if not (self.constrained and is_schema(form)) or "response_format" in request:
            return self
        schema = {"name": "answer", "strict": True, "schema": json.loads(form)}
        return replace(self, request={**request, "response_format": {"type": "json_schema", "json_schema": schema}})

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation, after a system message if there is one.

        ``read`` parses an answer's text; after its ``ValueError`` the question is sent again. Returns the parsed
        answers in the order of the questions, or raises an :class:`EndpointError`.
        """

        def read_text(body: Any) -> Answer:
            content = body["choices"][0]["message"]["content"]
            return read(whole_characters(content) if isinstance(content, str) else content)

        with closing(self._each(questions, system, read_text)) as each:
            answers = {index: future.result()[0] for index, future in each}
        return [answers[index] for index in range(len(questions))]

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, and yield its index with the reply, as they come.

        What is refused for its own sake, or fails in all attempts, is a reply too. No more than ``concurrency``
        questions are under way, those included whose replies were not taken yet. An :class:`EndpointError` comes only
        if the endpoint refuses every request (a wrong key, address or model), or no server is there at first.
        """
        found: list[bool] = []  # not empty from the first answer of a server on

        def read(body: Any) -> Reply:
            found.append(True)
            return read_reply(body)

        for index, future in self._each(questions, system, read):
            yield index, _reply(future, is_found=bool(found))

    def _each(
        self, questions: Sequence[str], system: str | None, read: Callable[[Any], Answer]
    ) -> "Generator[tuple[int, Future[tuple[Answer, int]]], None, None]":
        """Ask ``concurrency`` questions at a time, and yield their indices with what became of them, as they come."""
        httpx = optional("httpx", "a language model's endpoint")
        key = os.environ.get(self.api_key_variable)
        if key and not all("!" <= character <= "~" for character in key):
            raise UserError(
                f"`{self.api_key_variable}` must hold ASCII characters without blanks and line breaks, got another one "
                f"among its {len(key)}"
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


def _reply(future: "Future[tuple[Reply, int]]", *, is_found: bool) -> Reply:
    """Make a reply of the outcome of a request; raise an error that concerns all requests."""
    try:
        reply, attempts = future.result()
    except EndpointError as error:
        if error.status is None and (error.is_reached or is_found):
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
    """Send JSON until ``read`` can parse its answer; ``shown`` names the request in messages.

    Returns what was read and the number of attempts, or raises an :class:`EndpointError`.
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
            with suppress(ValueError):  # a date
                wait_seconds = max(0.0, float(response.headers.get("Retry-After", wait_seconds)))
        if attempt < max_retries:
            time.sleep(min(wait_seconds, MAX_WAIT))
    tries = max_retries + 1
    message = f"{url} gave no usable answer in {tries} tries for {shown}; last: {problem}"
    raise EndpointError(message, problem, attempts=tries, is_reached=is_reached)
