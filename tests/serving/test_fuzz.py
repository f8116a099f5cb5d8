"""Requests drawn from the OpenAPI schema, right and wrong ones: none may be answered with 5xx."""

import asyncio
import collections
import itertools
import json
import random

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.serve_fuzz import encoded_body, hostile_bodies

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is optional")
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402

ROUTES = ["/v1/rerank", "/v2/rerank", "/rerank", "/infinity/rerank", "/voyage/v1/rerank"]


def fuzz(app, examples):
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    modes = st.one_of(
        *(
            schema[path]["POST"].as_strategy(generation_mode=mode)
            for path in ROUTES
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        )
    )
    statuses = []

    @given(case=modes)
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    def send(case):
        response = case.call()
        statuses.append(response.status_code)
        case.validate_response(response, checks=[not_a_server_error])
        if response.status_code >= 400:
            assert json.loads(response.content)["message"] or response.status_code in (404, 405)

    right = schema["/v2/rerank"]["POST"].Case(body={"query": "worm", "documents": ["a worm", "a cake"]})
    assert right.call().status_code == 200  # what is drawn below reaches a service that answers
    send()
    return statuses


@pytest.mark.slow
def test_hundreds_drawn_from_the_schema(make_app):
    statuses = fuzz(make_app(), 400)
    assert len(statuses) >= 400
    assert set(statuses) & {400, 422}


@pytest.mark.parametrize("count", [600, pytest.param(2_000, marks=pytest.mark.slow)])
def test_another_structure(make_app, count):
    """Deep, wide, huge, not finite, duplicate, null; benchmarks/serve_fuzz.py sends 50,000 to a running service."""
    statuses = asyncio.run(send_hostile(make_app(), count))
    assert {200, 400, 422} <= set(statuses) <= {200, 400, 413, 415, 422}, statuses
    assert min(statuses[200], statuses[400], statuses[422]) > count // 100


async def send_hostile(app, count):
    """Send bodies in turn to all routes, in one event loop; return how often each status came."""
    bodies, statuses, draw = hostile_bodies(count), collections.Counter(), random.Random(count)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        for number, body in enumerate(itertools.islice(bodies, count)):
            content, headers = encoded_body(body, draw)
            response = await client.post(ROUTES[number % len(ROUTES)], content=content, headers=headers)
            statuses[response.status_code] += 1
            if response.status_code != 200:
                assert response.json()["message"]
                assert len(response.content) < 5000
    return statuses
