"""FastAPI's test client, without its warning about another HTTP library."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette asks for httpx2 where there is httpx only
    from fastapi.testclient import TestClient

__all__ = ["TestClient"]
