from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from graphrerank.config.components import ComponentFactory
from graphrerank.core import Ranking
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.loading import LoadedSystems, ResolvedComponent
from graphrerank.evaluation.plan import plan_evaluation
from graphrerank.evaluation.rank import build_runners, rank_systems, with_notes
from graphrerank.evaluation.runners.base import BASELINE_ROWS, RankingTask, SystemRunner
from graphrerank.evaluation.runners.checkpoint import CheckpointGroup, CheckpointRunner
from graphrerank.evaluation.runners.pipeline import PipelineRunner
from graphrerank.evaluation.runners.run_file import RunFileRunner
from graphrerank.evaluation.systems import RankedSystem, System, base_ranking
from graphrerank.models.checkpoint import load_primary

NOTHING = ResolvedComponent(None, "")


class Fixed(SystemRunner):
    """Returns rows that were made before."""

    needs_preparation: ClassVar[bool] = False

    def __init__(self, rows: dict[str, list[str]]) -> None:
        self.rows = rows

    def run(self, task: RankingTask) -> dict[str, list[RankedSystem]]:
        ranking = Ranking(torch.zeros(len(task.queries), 1).long(), torch.zeros(len(task.queries), 1))
        return {label: [RankedSystem(n, "run", n, ranking) for n in names] for label, names in self.rows.items()}


class FixedReranker(Fixed):
    reranks_candidates: ClassVar[bool] = True


@pytest.fixture
def task(prepared: PreparedDataset) -> RankingTask:
    return RankingTask(prepared.dataset, "val", torch.tensor([0, 2]), prepared)


def test_rows_are_in_the_order_of_the_labels_after_the_baselines(task: RankingTask) -> None:
    runners = [Fixed({"b": ["b-1", "b-2"], BASELINE_ROWS: ["gcs"]}), Fixed({"a": ["a"]})]
    ranked = rank_systems(task, runners, ["a", "b"], notes=["one"])
    assert [row.name for row in ranked.systems] == ["gcs", "a", "b-1", "b-2"]
    assert (ranked.split, ranked.queries.tolist(), ranked.candidates) == ("val", [0, 2], None)
    assert with_notes(ranked, ["two"]).notes == ["one", "two"]


def test_candidates_are_known_where_a_runner_reranks_them(task: RankingTask) -> None:
    ranked = rank_systems(task, [FixedReranker({"a": ["a"]})], ["a"])
    assert torch.equal(ranked.candidates.nodes, task.prepared.ranking.nodes[[0, 2]])


def test_two_rows_of_one_name_are_refused(task: RankingTask) -> None:
    with pytest.raises(ValueError, match=r"no duplicate names, got \['a', 'a'\]"):
        rank_systems(task, [Fixed({"a": ["a"]}), Fixed({"b": ["a"]})], ["a", "b"])


def test_a_runner_per_kind_of_system() -> None:
    components = ComponentFactory()
    planned = plan_evaluation({"gar": "gar", "base": "base", "theirs": "x.trec"}, "x", pipeline_names=["gar"])
    group = CheckpointGroup("base", {"base": load_primary("base")})
    loaded = LoadedSystems({"base": group}, {"gar": components.component("pipeline", {})}, NOTHING, NOTHING)
    scorer = System("mine", base_ranking)
    checkpoints, pipelines, files = build_runners(planned, loaded, components, scorers=[scorer], seed=3)
    assert isinstance(checkpoints, CheckpointRunner)
    assert (checkpoints.scorers, checkpoints.seed, checkpoints.reranks_candidates) == ([scorer], 3, True)
    assert isinstance(pipelines, PipelineRunner)
    assert (list(pipelines.pipelines), pipelines.reranks_candidates) == (["gar"], False)
    assert isinstance(files, RunFileRunner)
    assert ([spec.label for spec in files.specs], files.needs_preparation) == (["theirs"], False)
    assert build_runners(replace(planned, systems=[]), LoadedSystems({}, {}, NOTHING, NOTHING), components) == []


def test_a_runner_must_say_how_it_ranks() -> None:
    class Incomplete(SystemRunner):
        pass

    with pytest.raises(TypeError, match="run"):
        Incomplete()  # type: ignore[abstract]
