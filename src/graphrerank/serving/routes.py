"""HTTP routes of a service."""

import asyncio
import difflib
import re
import time
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json, to_json

from graphrerank.serving import metrics
from graphrerank.serving.auth import Caller
from graphrerank.serving.batching import Batcher
from graphrerank.serving.body_decoder import BodyDecoder
from graphrerank.serving.deployment.shadow import SHADOW_OF, ShadowRanker
from graphrerank.serving.engine import Refusal
from graphrerank.serving.fair_queue import peer_sender
from graphrerank.serving.limits import Limits
from graphrerank.serving.prices import DEFAULTS, Prices, Work
from graphrerank.serving.recorder import Answered, Recorder
from graphrerank.serving.schemas.requests import CallerRequest

SHOWN_FIELDS, SHOWN_CHARS = 5, 40  # number of unknown fields in an error message, and characters of each
NEAR = 0.8  # smallest similarity of a known field that is suggested
LONE_SURROGATE = re.compile(  # escape of a lone surrogate whose backslash is not escaped itself
    rb"(?<!\\)((?:\\\\)*)\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)[dD][c-fC-F][0-9a-fA-F]{2})"
)
MOST_HALVES = 10_000  # largest number of lone surrogates in a body that are replaced
HALVES = "lone surrogates, which are replaced"
LARGE_BODY = 65_536  # size in bytes from which bodies are parsed in a thread, one at a time
ERRORS = {
    400: "The body is not valid JSON.",
    401: "The API key or the token is missing or invalid.",
    403: "The web page may not call the service, or the caller may not write.",
    404: "No results were shown for this request id.",
    409: "The corpus does not accept documents.",
    413: "The request is too large.",
    415: "The encoding of the body is not supported.",
    422: "A field is invalid, or the request exceeds a limit. The message names the field or the limit.",
    429: "The wait would be too long.",
    431: "The headers are too large.",
    503: "The open requests of the client are too large.",
    504: "The request timed out.",
    507: "The disk is full.",
}


class ErrorAnswer(BaseModel):
    """Response to a failed request."""

    id: str = Field(description="Id of the request, which is also in the logs.")
    message: str = Field(description="Message that describes all errors.")
    error: str = Field(description="Same as `message`, under the name that TEI clients read.")
    detail: list[dict[str, Any]] = Field(
        description="Errors of single fields, each with `loc`, `msg` and `type`. If no field is concerned, one entry "
        "with the message and an empty `loc`."
    )


@dataclass(frozen=True)
class Route:
    """HTTP route that is answered by an engine.

    Attributes:
        paths: Paths of the route.
        kind: Kind of the engine.
        request: Model of the body. Its ``to_job`` returns the input of the engine, which has a method ``work``.
        response: Model of the response, for ``openapi.json``.
        summary: Summary of the route, for ``openapi.json``.
        render: Function that returns the content of the response from the request, the engine's result, the request id
            and the path. If None, the result itself is the content.
        method: HTTP method.
        with_documents: Model of a body with the field ``documents``. If None, ``request`` is the model of all bodies.
    """

    paths: tuple[str, ...]
    kind: str
    request: type[BaseModel]
    response: Any
    summary: str
    render: Callable[[Any, Any, str, str], Any] | None = None
    method: str = "POST"
    with_documents: type[BaseModel] | None = None


class ParsedRequest(NamedTuple):
    """Valid request of a route.

    Attributes:
        body: Body of the request, an instance of a model of the route.
        job: Input of the engine.
        work: Estimated work of the request at the prices of the engine.
        bad_items: Number of problematic items by how they were handled.
    """

    body: Any
    job: Any
    work: Work
    bad_items: Counter[str]


class RequestRoute(APIRoute):
    """FastAPI route whose endpoint parses the request and builds the response itself.

    It appears in ``openapi.json`` like any other route, but saves FastAPI's time for resolving dependencies.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint.

        Returns:
            Coroutine function from a request to its response.
        """
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


class Endpoints:
    """Endpoints that let the engines of a batcher answer requests.

    Args:
        batcher: Batcher with the engines.
        recorder: Recorder of shown results. If None, nothing is recorded.
    """

    def __init__(self, batcher: Batcher, recorder: Recorder | None = None) -> None:
        self._batcher = batcher
        self._recorder = recorder
        self._shadow = ShadowRanker(batcher, recorder)
        self._limits = batcher.limits
        self._parsing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_bytes = Counter[str]()  # size of the bodies of unanswered requests, by client

    def add_to(self, app: FastAPI, route: Route) -> None:
        """Add a route to an application.

        Args:
            app: Application to change.
            route: Route to add.
        """

        async def endpoint(request: Request) -> Response:
            body = bytearray()
            try:
                await self._read(request, body)
                is_query = route.method == "DELETE" and not body and request.query_params
                content = to_json(dict(request.query_params)) if is_query else bytes(body)
                return await self._answer(route, request, content)
            finally:
                self._hold(request, -len(body))

        endpoint.__name__ = route.kind
        schemas = [form.model_json_schema() for form in (route.request, route.with_documents) if form]
        content = {"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}
        for path in route.paths:
            app.router.add_api_route(
                path,
                endpoint,
                route_class_override=RequestRoute,
                methods=[route.method],
                summary=route.summary,
                description=route.request.__doc__,
                response_model=route.response,
                responses={status: {"model": ErrorAnswer, "description": text} for status, text in ERRORS.items()},
                openapi_extra={"requestBody": {"required": True, "content": content}},
            )

    async def _read(self, request: Request, body: bytearray) -> None:
        """Read and decompress a body within the limits on its size and on the memory of the process."""
        decoder = BodyDecoder(request.headers.get("content-encoding", ""))
        async for chunk in request.stream():
            for piece in decoder.pieces(chunk):
                body += piece
                client_bytes = self._hold(request, len(piece))
                if len(body) > self._limits.body_bytes:
                    raise Refusal(413, f"body: must have at most {self._limits.body_bytes} bytes")
                limit = self._limits.held_bytes
                # beyond the limit, only clients with more than their share are rejected
                if self._held_bytes.total() > limit and client_bytes > limit // len(self._held_bytes):
                    raise Refusal(503, "the open requests of this client are too large. Try again later", retry_after=1)
        decoder.finish()

    def _hold(self, request: Request, num_bytes: int) -> int:
        """Add to the size of a client's open requests, and return the new size in bytes."""
        client: str = request.state.sender.client
        self._held_bytes[client] += num_bytes
        client_bytes = self._held_bytes[client]
        if not client_bytes:
            del self._held_bytes[client]
        return client_bytes

    async def _answer(self, route: Route, request: Request, content: bytes) -> Response:
        """Let the engine of a route answer a request, and build the response.

        Args:
            route: Route of the request.
            request: HTTP request.
            content: Decompressed body.

        Returns:
            The response, with the time of each stage and the warnings in its headers.
        """
        begin = time.perf_counter()
        parsed = await self._parse(route, content)
        job = parsed.job
        caller = getattr(request.state, "caller", Caller())
        # unauthenticated senders are distinguished by their network addresses
        user = caller.known_user
        sender = request.state.sender if user is None else peer_sender(request.scope.get("client"), user)
        if isinstance(job, CallerRequest):
            job.sent_by(caller)
            caller = job.caller
        request.state.counts = {"documents": parsed.work.num_documents}
        parse_end = time.perf_counter()
        result = await self._batcher.ask(
            route.kind,
            job,
            parsed.work,
            request.state.uid,
            sender=sender,
            arrival=request.state.arrival,
            receive=request.receive,
        )
        rank_end = time.perf_counter()
        if isinstance(result, Answered):
            result = self._record(route, parsed, result, request.state.uid, caller)
        with metrics.STAGE_SECONDS.labels("render").time():
            warnings = [f"{problem}: {count}" for problem, count in parsed.bad_items.items() if count]
            answer = _rendered(route, request, parsed.body, result, warnings)
        render_seconds = time.perf_counter() - rank_end
        stages = {"read": parse_end - begin, "rank": rank_end - parse_end, "render": render_seconds}
        timing = ", ".join(f"{stage};dur={1000 * seconds:.2f}" for stage, seconds in stages.items())
        headers = {"server-timing": timing}
        if warnings:
            headers["warning"] = f'199 - "{"; ".join(warnings)}"'
        return Response(answer, headers=headers, media_type="application/json")

    async def _parse(self, route: Route, content: bytes) -> ParsedRequest:
        """Parse a body. A large body is parsed in a thread, so that the event loop stays responsive."""
        prices = self._batcher.prices.get(route.kind, DEFAULTS)
        if len(content) < LARGE_BODY:
            return parse(route, content, self._limits, prices)
        async with self._parsing:
            return await asyncio.to_thread(parse, route, content, self._limits, prices)

    def _record(self, route: Route, parsed: ParsedRequest, answered: Answered, uid: str, caller: Caller) -> Any:
        """Record a response, start its shadow ranking if there is a shadow, and return the content to show."""
        job = parsed.job
        if self._recorder is not None:
            answered = self._recorder.record(job, answered, uid, caller)
        shadow_kind = SHADOW_OF + route.kind
        if shadow_kind in self._batcher.engines:
            ranking = self._shadow.rank(shadow_kind, job, parsed.work, uid, caller, answered)
            task = asyncio.create_task(ranking)
            self._tasks.add(task)  # asyncio keeps only a weak reference
            task.add_done_callback(self._tasks.discard)
        return answered.answer


def _rendered(route: Route, request: Request, body: Any, result: Any, warnings: Sequence[str]) -> bytes:
    """Return the content of a response as JSON, with the warnings in its metadata."""
    content = result
    if route.render is not None:
        content = route.render(body, result, request.state.uid, request.scope["path"])
    if warnings and not isinstance(content, list):  # the format of TEI has no field for warnings
        meta = content["meta"] if isinstance(content, dict) else content.meta
        meta["warnings"] = list(warnings)
    return to_json(content, exclude_none=True)


def parse(route: Route, content: bytes, limits: Limits, prices: Prices = DEFAULTS) -> ParsedRequest:
    """Parse and validate a body. Lone surrogates are replaced.

    Args:
        route: Route of the request.
        content: Body of the request.
        limits: Limits of the service.
        prices: Prices of the route's engine.

    Returns:
        The parsed request.

    Raises:
        Refusal: If the body is invalid or exceeds a limit.
    """
    with metrics.STAGE_SECONDS.labels("read").time():
        count = content.count(b"[") + content.count(b"{") + content.count(b":")
        if count > limits.json_nodes:
            raise Refusal(413, f"body: must have at most {limits.json_nodes} opening brackets and colons, got {count}")
        fields, num_halves = _from_json(content)
        form = route.with_documents if isinstance(fields, dict) and "documents" in fields else None
        form = form or route.request
        if isinstance(fields, dict) and (unknown := fields.keys() - form.model_fields.keys()):
            raise _unknown(unknown, form)
        try:
            body: Any = form.model_validate(fields, context=limits)
            job = body.to_job()
            work = prices.reprice(job.work())
            bad_items = Counter({HALVES: num_halves} | getattr(job, "bad_items", {}))
        except ValidationError as error:
            raise Refusal.of(error) from None
        except ValueError as error:
            raise Refusal(422, str(error)) from None
        if work.seconds > limits.work_seconds:
            message = f"the request must need at most `limits.work_seconds` = {limits.work_seconds:g} seconds of work"
            hint = "Send fewer documents, edges or words, or omit `explain`"
            raise Refusal(422, f"{message}, got about {work.seconds:.1f}. {hint}")
        return ParsedRequest(body, job, work, bad_items)


def _from_json(content: bytes) -> tuple[Any, int]:
    """Parse JSON, replace escaped lone surrogates, and return the content with the number of replacements.

    A byte order mark, which some editors and clients on Windows write, is ignored.
    """
    content = content.removeprefix(BOM_UTF8)
    with suppress(ValueError):
        return from_json(content), 0
    whole, count = LONE_SURROGATE.subn(rb"\1\\ufffd", content, MOST_HALVES)
    try:
        return from_json(whole), count
    except ValueError:
        raise Refusal(400, "body: must be JSON in UTF-8 with at most 200 levels of nesting") from None


def _unknown(names: set[Any], request: type[BaseModel]) -> Refusal:
    """Return the error response for unknown fields, which names some of them and suggests similar known fields."""
    known_fields = sorted(request.model_fields)
    named_fields = [name[:SHOWN_CHARS] for name in sorted(names)[:SHOWN_FIELDS]]
    suggestions = {
        similar for name in named_fields for similar in difflib.get_close_matches(name, known_fields, 1, NEAR)
    }
    if suggestions:
        hint = f"did you mean {', '.join(f'`{name}`' for name in sorted(suggestions))}?"
    else:
        hint = f"the known fields are {known_fields}"
    num_unnamed = len(names) - len(named_fields)
    others = f" and {num_unnamed} others" if num_unnamed else ""
    message = f"body: unknown fields {', '.join(map(repr, named_fields))}{others}; {hint}"
    return Refusal(422, message, [{"loc": ["body"], "msg": message, "type": "extra_forbidden"}])
