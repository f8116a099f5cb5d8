"""Requests drawn from the OpenAPI schema, right and wrong ones: none may be answered with 5xx."""

import collections
import json
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.serve_fuzz import hostile_bodies

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette asks for httpx2 where there is httpx only
    from fastapi.testclient import TestClient

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is optional")
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402

ROUTES = ["/v1/rerank", "/v2/rerank", "/rerank"]


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
def test_a_few_hundred(make_app):
    statuses = fuzz(make_app(), 200)
    assert len(statuses) >= 200
    assert set(statuses) & {400, 422}


@pytest.mark.slow
def test_ten_thousand(make_app):
    assert len(fuzz(make_app(), 10_000)) >= 10_000


@pytest.mark.slow
def test_forty_thousand_of_another_structure(make_app):
    """Deep, wide, huge, not finite, duplicate, null; benchmarks/serve_fuzz.py sends them to a running service."""
    client, bodies, statuses = TestClient(make_app()), hostile_bodies(0), collections.Counter()
    for count in range(40_000):
        response = client.post(ROUTES[count % len(ROUTES)], content=next(bodies))
        statuses[response.status_code] += 1
        if response.status_code != 200:
            assert response.json()["message"]
            assert len(response.content) < 5000
    assert set(statuses) <= {200, 400, 413, 422}, statuses
    assert min(statuses[200], statuses[400], statuses[422]) > 100


def test_hundreds_of_another_structure(make_app):
    client, bodies, statuses = TestClient(make_app()), hostile_bodies(1), collections.Counter()
    for count in range(600):
        statuses[client.post(ROUTES[count % len(ROUTES)], content=next(bodies)).status_code] += 1
    assert {200, 400, 422} <= set(statuses) <= {200, 400, 413, 422}
