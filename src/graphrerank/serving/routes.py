"""The HTTP routes of a service."""

import asyncio
import difflib
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from graphrerank.serving import metrics
from graphrerank.serving.auth import Caller
from graphrerank.serving.batching import Batcher
from graphrerank.serving.deployment.shadow import SHADOW_OF, ShadowRanker
from graphrerank.serving.engine import Refusal
from graphrerank.serving.fair_queue import peer_sender
from graphrerank.serving.limits import Limits
from graphrerank.serving.prices import DEFAULTS, Prices, Work
from graphrerank.serving.recorder import Answered, Recorder
from graphrerank.serving.schemas.requests import CallerRequest

SHOWN_FIELDS, SHOWN_CHARS = 5, 40  # of unknown fields and their names, in an error
NEAR = 0.8  # share of characters, from which on a known field is suggested
LONE_SURROGATE = re.compile(  # an escape of half a character, whose backslash is no escaped one
    rb"(?<!\\)((?:\\\\)*)\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)[dD][c-fC-F][0-9a-fA-F]{2})"
)
MOST_HALVES = 10_000  # that are replaced, which takes time, in a body
HALVES = "halves of characters, which are replaced"
LARGE_BODY = 65_536  # bytes, from which on bodies are parsed in a thread, one after the other
ERRORS = {
    400: "The body is not JSON.",
    401: "The key is missing or wrong, or a token is wrong.",
    403: "The page may not call, or the caller may not write.",
    404: "Nothing was shown under this id.",
    409: "The corpus takes no documents.",
    413: "The body is too long.",
    422: "A field is invalid, or the request is too much work; the message says which limit.",
    429: "The wait would be too long.",
    431: "The headers are too long.",
    503: "Too many bytes of bodies.",
    504: "The request timed out.",
    507: "The disk is full.",
}


class ErrorAnswer(BaseModel):
    """Response of every error."""

    id: str  # of the request, as in the logs
    message: str  # the errors, by field
    error: str  # the same, under the name that TEI's clients read
    detail: list[dict[str, Any]]  # `loc`, `msg` and `type` of each error


@dataclass(frozen=True)
class Route:
    """A route of the HTTP service, which an engine answers.

    Attributes:
        paths: Paths of the route.
        kind: Kind of the engine that answers.
        request: Model of the body. Its ``to_job`` returns what the engine needs, which has a method ``work``.
        response: Model of the response, for the description in ``openapi.json``.
        summary: One sentence for the description.
        render: Returns the content of the response from the request, the engine's result, the id and the path. None
            if the result is the content.
        method: HTTP method.
        with_documents: Model of a body with the field ``documents``. None if ``request`` is the model of all bodies.
    """

    paths: tuple[str, ...]
    kind: str
    request: type[BaseModel]
    response: Any
    summary: str
    render: Callable[[Any, Any, str, str], Any] | None = None
    method: str = "POST"
    with_documents: type[BaseModel] | None = None


class RequestRoute(APIRoute):
    """Route of FastAPI whose endpoint reads the request and builds the response itself.

    FastAPI describes it in ``openapi.json`` like any other, and does not spend time on looking for dependencies.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint.

        Returns:
            Coroutine function from a request to its response.
        """
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


class Endpoints:
    """Answers requests to routes by the engines of a batcher."""

    def __init__(self, batcher: Batcher, recorder: Recorder | None = None) -> None:
        self._batcher = batcher
        self._recorder = recorder  # of what is shown
        self._shadow = ShadowRanker(batcher, recorder)
        self._limits = batcher.limits
        self._parsing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_bytes = Counter[str]()  # of bodies that are not answered yet, by client

    def add_to(self, app: FastAPI, route: Route) -> None:
        """Add a route to an application."""

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
        """Read a body, within the limits of its bytes and of those that the process holds."""
        async for chunk in request.stream():
            if not chunk:  # the last one
                continue
            body += chunk
            held = self._hold(request, len(chunk))
            if len(body) > self._limits.body_bytes:
                raise Refusal(413, f"body: must have at most {self._limits.body_bytes} bytes")
            most = self._limits.held_bytes
            # beyond the limit those clients are refused that have more than their share of it
            if self._held_bytes.total() > most and held > most // len(self._held_bytes):
                raise Refusal(503, "too many bytes are held; try again later", retry_after=1)

    def _hold(self, request: Request, num_bytes: int) -> int:
        """Count bytes of bodies of a client; return how many are held."""
        client: str = request.state.sender.client
        self._held_bytes[client] += num_bytes
        held = self._held_bytes[client]
        if not held:
            del self._held_bytes[client]
        return held

    async def _answer(self, route: Route, request: Request, content: bytes) -> Response:
        begin, uid = time.perf_counter(), request.state.uid
        prices = self._batcher.prices.get(route.kind, DEFAULTS)
        if len(content) < LARGE_BODY:
            body, job, work, bad = parse(route, content, self._limits, prices)
        else:
            async with self._parsing:  # in a thread, while the loop serves others
                body, job, work, bad = await asyncio.to_thread(parse, route, content, self._limits, prices)
        caller = getattr(request.state, "caller", Caller())
        # strangers, of whom nothing is known, are told apart by their addresses
        user = caller.known_user
        sender = request.state.sender if user is None else peer_sender(request.scope.get("client"), user)
        if isinstance(job, CallerRequest):
            job.sent_by(caller)
            caller = job.caller
        request.state.counts = {"documents": work.num_documents}
        read, arrival = time.perf_counter(), request.state.arrival
        result = await self._batcher.ask(
            route.kind, job, work, uid, sender=sender, arrival=arrival, receive=request.receive
        )
        ranked = time.perf_counter()
        if isinstance(result, Answered):
            shown = result if self._recorder is None else self._recorder.record(job, result, uid, caller)
            if (kind := SHADOW_OF + route.kind) in self._batcher.engines:
                task = asyncio.create_task(self._shadow.rank(kind, job, work, uid, caller, shown))
                self._tasks.add(task)  # asyncio keeps no reference
                task.add_done_callback(self._tasks.discard)
            result = shown.answer
        with metrics.STAGE_SECONDS.labels("render").time():
            rendered = result if route.render is None else route.render(body, result, uid, request.scope["path"])
            warnings = [f"{what}: {count}" for what, count in bad.items() if count]
            if warnings and not isinstance(rendered, list):  # TEI's answers have no place for them
                meta = rendered["meta"] if isinstance(rendered, dict) else rendered.meta
                meta["warnings"] = warnings
            answer = to_json(rendered, exclude_none=True)
        stages = {"read": read - begin, "rank": ranked - read, "render": time.perf_counter() - ranked}
        timing = ", ".join(f"{stage};dur={1000 * seconds:.2f}" for stage, seconds in stages.items())
        headers = {"server-timing": timing} | ({"warning": f'199 - "{"; ".join(warnings)}"'} if warnings else {})
        return Response(answer, headers=headers, media_type="application/json")


def parse(
    route: Route, content: bytes, limits: Limits, prices: Prices = DEFAULTS
) -> tuple[Any, Any, Work, Counter[str]]:
    """Parse and check a body. Halves of characters are replaced.

    Args:
        route: The route.
        content: The body.
        limits: Limits of the service.
        prices: Prices of the route's engine.

    Returns:
        The request, its job, its work, and the number of bad items by what was done with them.

    Raises:
        Refusal: If the body is invalid or too much.
    """
    with metrics.STAGE_SECONDS.labels("read").time():
        count = content.count(b"[") + content.count(b"{") + content.count(b":")
        if count > limits.json_nodes:
            raise Refusal(413, f"body: must have at most {limits.json_nodes} opening brackets and colons, got {count}")
        given, num_halves = _from_json(content)
        form = route.with_documents if isinstance(given, dict) and "documents" in given else None
        form = form or route.request
        if isinstance(given, dict) and (unknown := given.keys() - form.model_fields.keys()):
            raise _unknown(unknown, form)
        try:
            body: Any = form.model_validate(given, context=limits)
            job = body.to_job()
            work = prices.reprice(job.work())
            bad = Counter({HALVES: num_halves} | getattr(job, "bad_items", {}))
        except ValidationError as error:
            raise Refusal.of(error) from None
        except ValueError as error:
            raise Refusal(422, str(error)) from None
        if work.seconds > limits.work_seconds:
            message = f"the request must be at most `limits.work_seconds` = {limits.work_seconds:g} seconds of work"
            hint = "give fewer documents, edges or words, or leave out `explain`"
            raise Refusal(422, f"{message}, got about {work.seconds:.1f}; {hint}")
        return body, job, work, bad


def _from_json(content: bytes) -> tuple[Any, int]:
    """Parse JSON, and replace escapes of halves of characters, where there are any, and count them."""
    with suppress(ValueError):
        return from_json(content), 0
    whole, count = LONE_SURROGATE.subn(rb"\1\\ufffd", content, MOST_HALVES)
    try:
        return from_json(whole), count
    except ValueError:
        raise Refusal(400, "body: must be JSON in UTF-8, nested at most 200 times") from None


def _unknown(names: set[Any], request: type[BaseModel]) -> Refusal:
    """Refuse fields that do not exist; name some, and known ones that are near."""
    known, shown = sorted(request.model_fields), [name[:SHOWN_CHARS] for name in sorted(names)[:SHOWN_FIELDS]]
    meant = sorted({near for name in shown for near in difflib.get_close_matches(name, known, 1, NEAR)})
    hint = f"did you mean {', '.join(f'`{name}`' for name in meant)}?" if meant else f"the known ones are {known}"
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    message = f"body: unknown fields {', '.join(map(repr, shown))}{more}; {hint}"
    return Refusal(422, message, [{"loc": ["body"], "msg": message, "type": "extra_forbidden"}])
