from functools import partial
from pathlib import Path
from typing import Any

import pytest

from graphrerank import Dataset, GraphReranker
from graphrerank.config.components import ComponentFactory
from graphrerank.evaluation.evaluate import evaluate
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.systems import RankedDataset, StageResult
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from tests.support.folders import write_dataset

WORDS = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet", "bread", "castle", "ice", "sand"]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve passages in a ring, six queries of one relevant passage each."""
    return write_dataset(
        tmp_path_factory.mktemp("data") / "ring",
        corpus=[{"_id": f"p{i}", "title": "", "text": f"A text about {word}."} for i, word in enumerate(WORDS)],
        queries=[{"_id": f"q{i}", "text": f"What is {WORDS[i]}?"} for i in range(6)],
        edges=[(f"p{i}", f"p{(i + 1) % 12}", "next") for i in range(12)],
        test=[(f"q{i}", f"p{(i + i % 2) % 12}") for i in range(6)],
    )


def test_a_filter_leaves_passages_and_their_judgements_out(tmp_path: Path) -> None:
    rows = [
        {"_id": f"p{i}", "text": f"A text about {word}.", "metadata": {"even": i % 2 == 0}}
        for i, word in enumerate(WORDS)
    ]
    folder = write_dataset(
        tmp_path / "ring",
        corpus=rows,
        queries=[{"_id": f"q{i}", "text": f"What is {WORDS[i]}?"} for i in range(6)],
        test=[(f"q{i}", f"p{i}") for i in range(6)],
    )
    (tmp_path / "all.trec").write_text("".join(f"q{i} Q0 p{j} {j} {-j} x\n" for i in range(6) for j in range(12)))
    steps = [partial(VectorSearch, retriever=partial(BM25Retriever))]
    pipeline = Pipeline(Dataset.from_folder(folder).graph, steps=steps, budget=12)
    settings: dict[str, Any] = {"encoder": "none", "retriever": "bm25", "resamples": 10, "show": False}
    settings |= {"measures": ["MRR"], "significance_measures": ["MRR"]}
    systems = {"bm25": pipeline, "run": tmp_path / "all.trec"}
    found = evaluate(systems, Dataset.from_folder(folder), filter={"even": True}, **settings).datasets["ring"]
    assert len(found.query_ids) == 3
    assert found.systems["bm25"].means["MRR"] == 1.0
    assert found.systems["run"].means["MRR"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    with pytest.raises(
        ValueError, match=r"`filter\.odd` must be a field of the passages\. The known fields are \['even'\]"
    ):
        evaluate(systems, Dataset.from_folder(folder), filter={"odd": True}, **settings)
    with pytest.raises(ValueError, match="`filter` must match a passage of data set 'ring'"):
        evaluate(systems, Dataset.from_folder(folder), filter={"even": 7}, **settings)


class Lengths:
    """A stage that scores the number of passages that were ranked."""

    measures, tested = ("Length",), ("Length",)

    def __call__(self, ranked: RankedDataset, *, run_dir: Path | None = None, seed: int = 0) -> StageResult:
        scores = {system.name: (system.ranking.nodes >= 0).double().sum(1) for system in ranked.systems}
        return StageResult({name: {"Length": row} for name, row in scores.items()}, notes=["lengths were counted"])


@pytest.fixture
def parts(tmp_path: Path) -> ComponentFactory:
    return ComponentFactory(cache=tmp_path / "cache")


def test_systems_by_name_and_as_objects(ring: Path, parts: ComponentFactory, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    """A checkpoint by name, a loaded one, a run file and a pipeline of our own, with a stage after them."""
    (tmp_path / "their.trec").write_text("".join(f"q{i} Q0 p{i} 1 1 x\n" for i in range(6)))
    data = Dataset.from_folder(ring)
    systems = {
        "theirs": tmp_path / "their.trec",
        "search": Pipeline(data.graph, steps=[VectorSearch], budget=5, retriever=partial(BM25Retriever, top_k=5)),
        "base": "base",
        "mine": GraphReranker.from_pretrained("base"),
    }
    result = evaluate(
        systems,
        data,
        retriever=partial(BM25Retriever, top_k=8),
        encoder="none",
        stages=[Lengths()],
        edge_ablations=[],
        resamples=100,
        parts=parts,
        run_dir=tmp_path / "run",
    )
    (found,) = result.datasets.values()
    assert list(found.systems) == ["retriever", "ppr", "gcs", *systems]
    assert found.systems["mine"].means == found.systems["base"].means
    assert [system.kind for system in found.systems.values()][3:] == ["run", "pipeline", "checkpoint", "checkpoint"]
    assert found.tested == ("nDCG@10", "PR@10", "Length")
    assert (found.systems["theirs"].means["Length"], found.systems["base"].means["Length"]) == (1.0, 8.0)
    assert "lengths were counted" in capsys.readouterr().out
    assert EvaluationResult.load(tmp_path / "run").datasets["ring"].measures == found.measures


def test_one_checkpoint_names_its_models_itself_and_its_means_are_a_data_frame(
    ring: Path, parts: ComponentFactory
) -> None:
    settings: dict[str, Any] = {"retriever": partial(BM25Retriever, top_k=8), "encoder": "none", "parts": parts}
    settings |= {"edge_ablations": [], "resamples": 10, "show": False}
    result = evaluate("base", str(ring), **settings)
    assert list(result.datasets["ring"].systems) == ["retriever", "ppr", "gcs", "gatv2"]
    assert result.datasets["ring"].measures[:2] == ["PR@5", "PR@10"]
    pytest.importorskip("pandas")
    mean = result.datasets["ring"].systems["gatv2"].means["PR@10"]
    assert result.to_pandas().loc[("ring", "gatv2"), "PR@10"] == mean


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing", "x"), "must be a run folder, a .ckpt file, an artifact or one of the shipped names"),
        (("base", []), "`data` must name at least one data set, got none"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(arguments: tuple[Any, Any], message: str, parts: ComponentFactory) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(*arguments, parts=parts)
    with pytest.raises(ValueError, match=r"`settings` must name pipelines in `systems`, \[\], got \['gar'\]"):
        evaluate("base", "x", settings={"gar": {"budget": 5}}, parts=parts)


@pytest.mark.parametrize(
    ("deprecated", "current"),
    [({"tested": ["MRR"]}, {"significance_measures": ["MRR"]}), ({"counterfactuals": []}, {"edge_ablations": []})],
)
def test_the_old_name_of_an_argument_warns_and_works(
    ring: Path, parts: ComponentFactory, tmp_path: Path, deprecated: dict[str, Any], current: dict[str, Any]
) -> None:
    (tmp_path / "their.trec").write_text("".join(f"q{i} Q0 p{i} 1 1 x\n" for i in range(6)))
    run = partial(
        evaluate, tmp_path / "their.trec", str(ring), measures=["R@1", "MRR"], resamples=10, parts=parts, show=False
    )
    (old,), (new,) = deprecated, current
    with pytest.warns(DeprecationWarning, match=f"`{old}` of evaluate.. was renamed to `{new}`"):
        before = run(**deprecated).datasets["ring"]
    after = run(**current).datasets["ring"]
    assert (before.tested, before.counterfactuals) == (after.tested, after.counterfactuals)
    with pytest.raises(ValueError, match=f"`{new}` must be a subset of"), pytest.warns(DeprecationWarning, match=old):
        run(**{old: ["R@3"]})
