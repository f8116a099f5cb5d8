"""Web page to explore rankings: static files that call the routes of the service.

- The files contain nothing of the corpus or the model and need no key. All data comes from routes that require the key.
- The files are kept in memory. A browser with a cached copy only asks whether it is current.
- The content security policy forbids resources of other sites and all other scripts.
"""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

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
FILES = tuple(sorted(file.name for file in files(__name__).iterdir() if file.name.rpartition(".")[2] in MEDIA_TYPES))
PAGE_PATHS = ("/", *(f"/page/{name}" for name in FILES))


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its files below ``/page/``.

    Args:
        app: Application to change.
    """
    for path in PAGE_PATHS:
        static_file_route(app, path, files(__name__) / (path.removeprefix("/page").removeprefix("/") or "index.html"))


def static_file_route(app: FastAPI, path: str, file: Traversable) -> None:
    """Serve a file of the package, with the content security policy of the page.

    Args:
        app: Application to change.
        path: Path of the route.
        file: File with a suffix of ``MEDIA_TYPES``.
    """
    content = file.read_bytes()
    media_type = f"{MEDIA_TYPES[file.name.rpartition('.')[2]]}; charset=utf-8"
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    @app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
    async def endpoint(request: Request) -> Response:
        headers = {**HEADERS, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)
