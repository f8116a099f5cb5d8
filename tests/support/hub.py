"""A stand-in for the HTTP interface of the Hugging Face hub: repositories in memory, uploads and downloads."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.web import listening

COMMIT = "c" * 40


class HubStandIn:
    """Repositories of a stand-in for the hub.

    Attributes:
        repositories: Content of each file, by repository and path.
        requests: Bodies of the requests that created repositories.
        url: Address of the stand-in.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    def post(self, path: str, body: bytes) -> Any:
        """Answer a request that creates a repository or uploads files."""
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            request = json.loads(body)
            self.requests.append(request)
            name = f"{request['organization']}/{request['name']}" if request.get("organization") else request["name"]
            self.repositories.setdefault(name, {})
            return {"url": f"{self.url}/{name}", "name": name}
        repository = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            files = json.loads(body)["files"]
            return {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
        if "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.repositories[repository][line["value"]["path"]] = content
            return {"commitOid": COMMIT, "commitUrl": f"{self.url}/{repository}/commit/{COMMIT}"}
        return None

    def get(self, path: str) -> Any:
        """Answer a request for a repository or one of its files: JSON, or the bytes of a file."""
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+)?", path):
            files = self.repositories.get(found[1])
            listed = [{"rfilename": name} for name in files or ()]
            return None if files is None else {"id": found[1], "sha": COMMIT, "siblings": listed}
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+", path):
            return [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.repositories.get(found[1], {}).items()
            ]
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            return self.repositories.get(found[1], {}).get(found[2])
        return None


@contextmanager
def hub_stand_in() -> Iterator[HubStandIn]:
    """Serve a stand-in for the hub until the block ends."""
    hub = HubStandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send(hub.post(self.plain_path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))

        def do_GET(self) -> None:
            self.send(hub.get(self.plain_path))

        def do_HEAD(self) -> None:
            self.send(hub.get(self.plain_path), with_body=False)

        @property
        def plain_path(self) -> str:
            return unquote(urlsplit(self.path).path)

        def send(self, answer: Any, *, with_body: bool = True) -> None:
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as hub.url:
        yield hub
