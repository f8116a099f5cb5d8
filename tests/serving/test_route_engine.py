import json

import pytest

from graphrerank.inference import AdapterScorer
from graphrerank.serving.route_engine import RouteEngine, RouteRequest, load_route_engine

TEXTS = ["Who directed the film that won?", "zebra", "Which actor of the film that Tarkovsky made was born in Moscow?"]


def test_against_the_scorer(adapter_folder):
    scores = AdapterScorer(checkpoint=adapter_folder).score(TEXTS).tolist()
    low, high = sorted(scores)[0], sorted(scores)[-1]
    engine = RouteEngine(AdapterScorer(checkpoint=adapter_folder, low=low, high=high))
    engine.warm_up()
    answers = engine.answer({str(i): RouteRequest(query=text) for i, text in enumerate(TEXTS)})
    found = [json.loads(answers[str(i)].body) for i in range(3)]
    assert [one["score"] for one in found] == pytest.approx(scores)
    expected = ["dense" if s == low else "graph" if s == high else "fusion" for s in scores]
    assert [one["route"] for one in found] == expected
    assert all(one["thresholds"] == {"low": low, "high": high} for one in found)
    assert [one["id"] for one in found] == ["0", "1", "2"]


def test_only_an_artifact_is_served(adapter_folder):
    with pytest.raises(ValueError, match="not an artifact"):
        load_route_engine(adapter_folder, None, "cpu")
