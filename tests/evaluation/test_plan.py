from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.evaluation.baselines import BASELINES
from graphrerank.evaluation.measuring import MIXED_MEASURES, RERANKER_MEASURES
from graphrerank.evaluation.plan import SystemSpec, name_systems, plan_evaluation, plan_measures, short_names
from graphrerank.evaluation.systems import RankedDataset, StageResult

PIPELINES = ("vector_search", "gar")
plan = partial(plan_evaluation, pipeline_names=PIPELINES)


class Lengths:
    """A stage with a measure of its own."""

    measures, tested = ("Length",), ("Length",)

    def __call__(self, ranked: RankedDataset, *, run_dir: Path | None = None, seed: int = 0) -> StageResult:
        raise AssertionError("a plan runs no stage")


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ("vector_search", "pipeline"),
        ("runs/train/1", "checkpoint"),
        ("base", "checkpoint"),
        ("mine.trec", "run"),
        ("runs/{dataset}", "run"),
        ("model.ckpt", "checkpoint"),
        ({"_target_": "x.Pipeline"}, "pipeline"),
    ],
)
def test_the_kind_of_a_system(system: Any, kind: str) -> None:
    (spec,) = name_systems({"a": system}, PIPELINES)
    assert (spec.label, spec.kind, spec.argument) == ("a", kind, system)


def test_an_existing_file_is_a_run_file_unless_it_is_a_checkpoint(tmp_path: Path) -> None:
    for name in ("mine", "model.ckpt"):
        (tmp_path / name).write_text("")
    specs = name_systems([str(tmp_path / "mine"), tmp_path / "model.ckpt"], PIPELINES)
    assert [spec.kind for spec in specs] == ["run", "checkpoint"]


def test_a_loaded_reranker_is_named_by_its_source() -> None:
    reranker = GraphReranker.from_pretrained("base")
    assert name_systems(reranker, PIPELINES) == [SystemSpec("base", "checkpoint", "base", reranker)]


def test_short_names() -> None:
    assert short_names(["runs/1/gatv2", "runs/2/gatv2"]) == ["1-gatv2", "2-gatv2"]
    assert short_names(["a/x.trec", "b/x.trec.gz", "re2"]) == ["a-x", "b-x", "re2"]
    with pytest.raises(ValueError, match="must have unique names"):
        short_names(["a/x.trec", "a/x.run"])


@pytest.mark.parametrize("name", BASELINES)
def test_the_name_of_a_baseline_is_reserved(name: str) -> None:
    assert short_names([f"runs/{name}", "base"]) == [f"runs-{name}", "base"]
    assert short_names([f"/runs/{name}.trec"]) == [f"runs-{name}"]
    assert short_names([f"a/{name}", f"b/{name}"]) == [f"a-{name}", f"b-{name}"]
    with pytest.raises(
        ValueError,
        match=rf"other than those of the baselines .*, got \['{name}.trec', 'base'\]\. Write a path with its parent",
    ):
        short_names([f"{name}.trec", "base"])


@pytest.mark.parametrize(
    ("systems", "measures", "only_checkpoint"),
    [
        ("base", RERANKER_MEASURES, True),
        (["base"], MIXED_MEASURES, False),
        ({"mine": "base"}, MIXED_MEASURES, False),
        ("vector_search", MIXED_MEASURES, True),
    ],
)
def test_default_measures_depend_on_the_systems(systems: Any, measures: tuple[str, ...], only_checkpoint: bool) -> None:
    planned = plan(systems, "attack")
    assert tuple(planned.measures.measures) == measures
    assert planned.only_checkpoint == only_checkpoint


def test_a_plan_lists_systems_by_kind() -> None:
    planned = plan({"a": "gar", "b": "base", "c": "c.trec", "d": "base-1"}, ["one"], edge_ablations=["removed"])
    assert planned.labels == ["a", "b", "c", "d"]
    assert [spec.label for spec in planned.of_kind("checkpoint")] == ["b", "d"]
    assert (planned.datasets, planned.edge_ablations) == (["one"], ("removed",))


def test_measures_of_stages_are_added_and_tested() -> None:
    measures = plan_measures([], [], [Lengths()], default=["R@5", "nDCG@10"])
    assert measures.measures == ("R@5", "nDCG@10", "Length")
    assert measures.significance_measures == ("nDCG@10", "Length")
    named = plan_measures(["R@5"], ["R@5"], [Lengths()], default=["nDCG@10"])
    assert (named.measures, named.significance_measures) == (("R@5", "Length"), ("R@5",))


@pytest.mark.parametrize(
    ("systems", "arguments", "message"),
    [
        ({"gcs": "base"}, {}, "no name of a baseline"),
        ({}, {}, "must contain at least one system"),
        (["base", "base"], {}, "must contain at least one system and no duplicates"),
        ([], {}, "must contain at least one system and no duplicates"),
        ("base", {"data": []}, "`data` must name at least one data set, got none"),
        ("a.trec", {"data": ["one", "two"]}, "a.trec is for one data set, but `datasets` names 2. Replace the name"),
        ("base", {"edge_ablations": ["turned"]}, r"`edge_ablations` must be a subset of .*, got \['turned'\]"),
        (
            "base",
            {"pipeline_settings": {"gar": {"budget": 5}}},
            r"must name pipelines in `systems`, \[\], got \['gar'\]",
        ),
        (["gar"], {"pipeline_settings": {"gar": 5}}, "must be a mapping such as settings.gar.KEY=..., got 5"),
        (
            "base",
            {"significance_measures": ["R@7"]},
            r"`significance_measures` must be a subset of `measures` .*, got \['R@7'",
        ),
        ("base", {"measures": ["Recoll@3"]}, "got 'Recoll@3'"),
        ("base", {"ties": "random"}, "`ties` must be one of"),
        ("base", {"resamples": 0}, "`resamples` must be a positive integer, got 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(systems: Any, arguments: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(systems, **{"data": "x", **arguments})


def test_run_files_of_several_data_sets_name_the_data_set() -> None:
    (spec,) = plan("runs/{dataset}.mine.trec", ["one", "two"]).systems
    assert (spec.kind, spec.label) == ("run", "mine")


def test_an_object_is_a_pipeline() -> None:
    (spec,) = name_systems([torch.nn.Identity()], PIPELINES)
    assert spec.kind == "pipeline"  # or a factory of one


def test_unknown_baselines_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`baselines` must be a subset of .*'rank_fusion'.*, got \['bm25'\]"):
        plan_evaluation("base", "x", pipeline_names=[], baselines=["ppr", "bm25"])
