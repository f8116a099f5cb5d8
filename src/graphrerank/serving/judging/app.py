"""Application of the page for judging: routes, checks of requests, and static files."""

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from graphrerank.evaluation.pooling import PooledPassage
from graphrerank.serving.engine import Refusal, error_response
from graphrerank.serving.http_guard import HttpGuard, RefusalLog
from graphrerank.serving.judging.store import MAX_QUESTION, JudgedQuestion, JudgementStore
from graphrerank.serving.page import static_file_route
from graphrerank.serving.settings import ServiceSettings
from graphrerank.utils.checks import UserError

PAGE_FILES = {"/": "index.html", "/page/judge.js": "judge.js", "/page/judge.css": "judge.css"}
MAX_PASSAGES = 500  # maximum number of passages of a request
Text = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]
Ids = Annotated[list[str], Field(max_length=MAX_PASSAGES)]


class Search(Protocol):
    """Search for the passages to judge, such as :class:`~graphrerank.evaluation.pooling.PooledSearch`."""

    def __call__(self, text: str) -> list[PooledPassage]:
        """Return the passages to judge for a question.

        Args:
            text: Question.
        """

    def passages(self, ids: Sequence[str]) -> list[PooledPassage]:
        """Return passages by id.

        Args:
            ids: Ids of passages.
        """


class PassageRequest(BaseModel):
    """Request for passages to judge.

    Attributes:
        text: Question, or other words to search for.
    """

    text: Text


class JudgeRequest(BaseModel):
    """Question with the user's judgements.

    Attributes:
        text: Text of the question.
        relevant: Ids of the relevant passages.
        shown: Ids of all passages that the user saw.
        query_id: Id of the question to change. If None, the question is new.
    """

    text: Text
    relevant: Ids
    shown: Ids
    query_id: str | None = None


def create_judging_app(
    search: Search, store: JudgementStore, *, port: int, name: str, token: str | None = None
) -> FastAPI:
    """Create the application of the page for judging.

    Only this machine can connect, and requests must have a local name in the header ``Host``. A request that changes
    files must also have the token, which other web pages cannot read, in the header ``X-Judge-Token``.

    Args:
        search: Search for the passages to judge.
        store: Questions and judgements of the data set folder.
        port: Port of the service.
        name: Name of the data set, for the page.
        token: Token of the page. If None, a random one is used.

    Returns:
        The application, an ASGI callable.
    """
    token = token or secrets.token_urlsafe(32)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for path, file in PAGE_FILES.items():
        static_file_route(app, path, files("graphrerank.serving.judging.page") / file)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    add_judging_routes(app, search, store, name=name, token=token)
    app.add_middleware(
        HttpGuard,
        settings=ServiceSettings(port=port, workers=1),
        open_paths=(),
        check_wait=lambda sender: None,
        refusals=RefusalLog(),
        logs_requests=False,  # the terminal is for the person who judges
    )
    return app


def add_judging_routes(app: FastAPI, search: Search, store: JudgementStore, *, name: str, token: str) -> None:
    """Add the routes that search, list questions and change judgements.

    Args:
        app: Application to change.
        search: Search for the passages to judge.
        store: Questions and judgements of the data set folder.
        name: Name of the data set.
        token: Token that requests must have.
    """
    lock = threading.Lock()  # one search or change at a time; FastAPI calls the endpoints in threads

    def check_token(x_judge_token: Annotated[str, Header()] = "") -> None:
        if not secrets.compare_digest(x_judge_token.encode(), token.encode()):
            raise Refusal(403, "the header `x-judge-token` must have the token of the page. Reload the page")

    checked = [Depends(check_token)]

    @app.get("/state")
    def state() -> dict[str, Any]:
        questions = run(lock, store.questions)
        return {"name": name, "token": token, "questions": [described(question) for question in questions]}

    @app.post("/search", dependencies=checked)
    def find(request: PassageRequest) -> dict[str, Any]:
        return {"passages": [asdict(passage) for passage in run(lock, lambda: search(request.text))]}

    @app.get("/questions/{query_id}")
    def show(query_id: str) -> dict[str, Any]:
        for question in run(lock, store.questions):
            if question.query_id == query_id:
                passages = search.passages(list(question.scores))
                return {**described(question), "passages": [asdict(passage) for passage in passages]}
        raise Refusal(404, f"there is no question {query_id!r}")

    @app.post("/questions", dependencies=checked)
    def judge(request: JudgeRequest) -> dict[str, Any]:
        saved = run(lock, lambda: store.save(request.text, request.relevant, request.shown, query_id=request.query_id))
        return described(saved)

    @app.delete("/questions/{query_id}", dependencies=checked)
    def remove(query_id: str) -> dict[str, Any]:
        run(lock, lambda: store.remove(query_id))
        return {}


def described(question: JudgedQuestion) -> dict[str, Any]:
    """Return a question as JSON.

    Args:
        question: Question with its judgements.
    """
    return {"query_id": question.query_id, "text": question.text, "relevant": question.relevant}


def run(lock: threading.Lock, call: Callable[[], Any]) -> Any:
    """Call a function while no other request does. A user error becomes a response with status 422.

    Args:
        lock: Lock of the application.
        call: Function without arguments.

    Returns:
        Result of the function.

    Raises:
        Refusal: If the function raises a user error.
    """
    with lock:
        try:
            return call()
        except UserError as error:
            raise Refusal(422, str(error)) from error


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error, request.state.uid)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = "; ".join(f"{'.'.join(map(str, entry['loc'][1:]))}: {entry['msg']}" for entry in error.errors())
    return error_response(Refusal(422, fields or "the request is invalid"), request.state.uid)
