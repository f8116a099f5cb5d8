from graphrerank.inference.rerank_input import RerankInput
from graphrerank.serving.work import query_seconds, rerank_seconds


def test_more_of_anything_is_more_work() -> None:
    small = RerankInput("a query", ["a text"] * 10, edges=[(0, 1)])
    seconds = rerank_seconds(small, explain=False)
    larger = [
        RerankInput("a query", ["a text"] * 20, edges=[(0, 1)]),
        RerankInput("a query", ["a text" * 2] * 10, edges=[(0, 1)]),
        RerankInput("a query", ["a text"] * 10, edges=[(0, 1), (1, 2)]),
        RerankInput("a query" * 2, ["a text"] * 10, edges=[(0, 1)]),
    ]
    assert all(rerank_seconds(given, explain=False) > seconds for given in larger)
    assert rerank_seconds(small, explain=True) > seconds
    assert rerank_seconds(RerankInput("a query", scores=[1.0] * 10), explain=False) < seconds
    assert query_seconds("a longer query") > query_seconds("a query")
