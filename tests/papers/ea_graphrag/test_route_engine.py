import pytest

from graphrerank.artifacts.export import export_artifact
from graphrerank.installation.plugins import load_service
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank_papers.ea_graphrag.route_engine import RouteEngine, RouteRequest, load_route_engine
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer

TEXTS = ["Who directed the film that won?", "zebra", "Which actor of the film that Tarkovsky made was born in Moscow?"]


def test_against_the_scorer(adapter_folder):
    scores = AdapterScorer(checkpoint=adapter_folder).score(TEXTS).tolist()
    low, high = sorted(scores)[0], sorted(scores)[-1]
    engine = RouteEngine(AdapterScorer(checkpoint=adapter_folder, low=low, high=high))
    engine.warm_up()
    answers = engine.answer({str(i): RouteRequest(query=text) for i, text in enumerate(TEXTS)})
    found = [answers[str(i)].model_dump() for i in range(3)]
    assert [one["score"] for one in found] == pytest.approx(scores)
    expected = ["dense" if s == low else "graph" if s == high else "fusion" for s in scores]
    assert [one["route"] for one in found] == expected
    assert all(one["thresholds"] == {"low": low, "high": high} for one in found)
    assert [one["id"] for one in found] == ["0", "1", "2"]


def test_every_format_scores_alike(adapter_folder, tmp_path):
    formats = ["torchscript", "onnx"]
    folder = export_artifact(load_checkpoint(adapter_folder), tmp_path / "artifact", formats, num_batches=20)
    expected = AdapterScorer(checkpoint=adapter_folder).score(TEXTS).tolist()
    for name in [None, *formats]:
        engine = load_route_engine(folder, name, None)
        answers = engine.answer({str(i): RouteRequest(query=text) for i, text in enumerate(TEXTS)})
        assert [answer.score for answer in answers.values()] == pytest.approx(expected, abs=1e-5)
    (folder / "model.onnx").write_bytes(b"another file")
    with pytest.raises(ValueError, match="SHA-256 hash must be"):
        load_route_engine(folder, "onnx", None)
    with pytest.raises(ValueError, match=r"`format` must be one of \['torchscript', 'onnx'\], got 'aot'"):
        load_route_engine(folder, "aot", None)


def test_the_service_is_found_by_its_entry_point(run_command, adapter_folder, tmp_path):
    with pytest.raises(ValueError, match="not an artifact"):
        load_route_engine(adapter_folder, None, None)
    folder = export_artifact(load_checkpoint(adapter_folder), tmp_path / "artifact", num_batches=2)
    ((route,), engines) = load_service("complexity_adapter")(folder, None, stanza_folder=None)
    assert (route.paths, route.kind, list(engines)) == (("/route",), "route", ["route"])
    (answer,) = engines["route"]().answer({"0": RouteRequest(query=TEXTS[0])}, lambda: None).values()
    assert answer.route == "fusion"
    refused = run_command("serve.py", f"artifact={folder}", "+service.folders=x", status=1)
    assert "`service` must contain only arguments of serve_routes: " in refused.stderr
    assert "unexpected keyword argument 'folders'" in refused.stderr
