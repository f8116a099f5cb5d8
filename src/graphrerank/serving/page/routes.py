"""The routes of the page's files.

- The files hold nothing of corpus or model and need no key; all that they show comes from routes that do.
- They are in memory, and a browser that has one asks only whether it is the same.
- The policy lets the page load nothing from elsewhere, and run no script but these files.
"""

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Request, Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FILES = (
    *("index.html", "style.css", "icon.svg"),
    *("app.js", "client.js", "detail.js", "elements.js", "examples.js", "graph.js", "layout.js", "lists.js"),
    *("passages.js", "snippets.js"),
)
PAGE_PATHS = ("/", *(f"/page/{name}" for name in FILES))


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its other files below ``/page/``."""
    for path in PAGE_PATHS:
        name = path.removeprefix("/page").removeprefix("/") or "index.html"
        content = (files("graphrerank.serving.page") / name).read_bytes()
        app.add_api_route(path, _endpoint(name, content), methods=["GET", "HEAD"], include_in_schema=False)


def _endpoint(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    kind = MEDIA_TYPES[name.rpartition(".")[2]]
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {**HEADERS, "etag": tag}

    async def endpoint(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=f"{kind}; charset=utf-8")

    return endpoint
