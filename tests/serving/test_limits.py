"""What every request with a query refuses."""

import pytest
from pydantic import ValidationError

from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.serving.limits import Limits
from graphrerank.serving.schemas.inspection import InspectRequest
from graphrerank.serving.schemas.rerank import RerankRequest
from graphrerank.serving.schemas.search import SearchRequest
from graphrerank.serving.schemas.tei import TeiRequest
from graphrerank.serving.work_estimates import rerank_work
from graphrerank_papers.ea_graphrag.route_engine import RouteRequest

BODIES = {
    SearchRequest: {},
    InspectRequest: {},
    RouteRequest: {},
    RerankRequest: {"documents": ["a text"]},
    TeiRequest: {"texts": ["a text"]},
}


@pytest.mark.parametrize("request_class", BODIES)
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "`query` must be a non-blank string"),
        (" \t\n\u3000", "`query` must be a non-blank string"),
        ("four words of a query", "`query` must have at most 20 characters, got 21"),
    ],
)
def test_queries_that_are_blank_or_too_long(request_class, query, message):
    body, limits = BODIES[request_class], Limits(query_chars=20)
    assert request_class.model_validate({**body, "query": " a query "}, context=limits).query == " a query "
    with pytest.raises(ValidationError, match=message):
        request_class.model_validate({**body, "query": query}, context=limits)


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match=r"`limits\.edges` must be a finite number above 0, got 0"):
        Limits(edges=0)


def test_more_of_anything_is_more_work() -> None:
    small = RerankInput("a query", ["a text"] * 10, edges=[(0, 1)])
    seconds = rerank_work(small).seconds
    larger = [
        RerankInput("a query", ["a text"] * 20, edges=[(0, 1)]),
        RerankInput("a query", ["a text" * 2] * 10, edges=[(0, 1)]),
        RerankInput("a query", ["a text"] * 10, edges=[(0, 1), (1, 2)]),
        RerankInput("a query" * 2, ["a text"] * 10, edges=[(0, 1)]),
    ]
    assert all(rerank_work(given).seconds > seconds for given in larger)
    assert rerank_work(small, explain=True).seconds > seconds
    assert rerank_work(RerankInput("a query", scores=[1.0] * 10)).seconds < seconds
    assert SearchRequest(query="a longer query").work() > SearchRequest(query="a query").work()
