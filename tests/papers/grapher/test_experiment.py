"""``experiment=grapher_tables`` on two small folders: the whole protocol, going on where it stopped, and the page."""

import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.commands import RunCommand, measures_of, without_times
from tests.support.folders import write_dataset
from tests.support.tracking import OfflineRun

COLOURS = ["red", "green", "blue", "pale", "dark", "bright", "dull", "grey"]
THINGS = ["cat", "dog", "cow", "car", "bus", "train", "plane", "ship", "house", "tower", "river", "lake", "hill"]


def _folder(path: Path, seed: int, **counts: int) -> Path:
    """Linked passages; each question of a split quotes one and needs its neighbour too."""
    draw = random.Random(seed)
    texts = [f"{draw.choice(COLOURS)} {draw.choice(COLOURS)} {draw.choice(THINGS)} number {i}" for i in range(40)]
    edges = sorted({tuple(sorted(draw.sample(range(40), 2))) for _ in range(60)})
    queries: list[dict[str, str]] = []
    splits: dict[str, list[tuple[str, int]]] = {}
    for split, count in counts.items():
        splits[split] = []
        for _ in range(count):
            a, b = draw.choice(edges)
            query = str(len(queries))
            splits[split] += [(query, node) for node in ((a, b) if draw.random() < 0.7 else (a,))]
            queries.append({"_id": query, "text": " ".join(texts[a].split()[:3])})
    corpus = [{"_id": str(i), "title": "", "text": text} for i, text in enumerate(texts)]
    return write_dataset(path, corpus=corpus, queries=queries, edges=edges, **splits)


class Experiment(NamedTuple):
    """A run of ``experiment=grapher_tables`` on small folders.

    Attributes:
        arguments: Settings of the run, without those of its seeds, loggers and folder.
        folder: Run folder.
        output: Standard output of the command.
        tables: Tables of ``metrics.json``.
        aside: Folder that is only tested on.
        two: Folder that is trained, chosen and tested on.
    """

    arguments: tuple[str, ...]
    folder: Path
    output: str
    tables: dict[str, Any]
    aside: Path
    two: Path

    def steps(self, pattern: str) -> list[dict[str, Any]]:
        """Read the steps whose file names match a pattern."""
        return [json.loads(file.read_text()) for file in (self.folder / "steps").glob(f"{pattern}.json")]


@pytest.fixture(scope="module")
def experiment(run_command: RunCommand, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    folder = tmp_path_factory.mktemp("grapher")
    one = _folder(folder / "one", 1, train=40, val=20)  # as those that are only trained on
    two = _folder(folder / "two", 2, train=40, val=20, test=20)
    aside = _folder(folder / "aside", 3, test=20)
    run = folder / "run"
    arguments = (
        "experiment=grapher_tables", f"job.train=[{one},{two}]", f"job.judge={two}",
        f"job.test=[{aside},{two}]", "job.features=[scores]",
        "job.grid.learning_rate=[0.003]", "job.grid.weight_decay=[0.01]", "job.grid.max_epochs=[1]",
        "+job.grid.restart_prob=[0.3,0.6]",
        'job.ablations=["loss=bce","retriever.top_k=5"]',
    )  # fmt: skip
    done = run_command("train.py", *arguments, "job.seeds=[1]", "logger=[csv,wandb]", f"hydra.run.dir={run}")
    tables = json.loads((run / "metrics.json").read_text())
    return Experiment(arguments, run, done.stdout, tables, aside, two)


pytestmark = pytest.mark.slow


def test_progress_counts_the_whole_protocol(experiment: Experiment) -> None:
    assert "[4/4] " in experiment.output  # 2 models with 2 settings
    assert "[7/7] " in experiment.output  # 3 frozen operators, 2 models, 2 ablations
    assert experiment.output.splitlines()[-1] == str(experiment.folder)


def test_on_a_device_as_on_the_cpu(experiment: Experiment, run_on_device: RunCommand, tmp_path: Path) -> None:
    settings = (*experiment.arguments, "job.seeds=[1]", f"hydra.run.dir={tmp_path}")
    run_on_device("train.py", *settings, trainer=False)
    assert without_times(tmp_path) == without_times(experiment.folder)


def test_a_logger_gets_tables_measures_and_inputs(experiment: Experiment) -> None:
    tracked = OfflineRun(experiment.folder / "gatv2")
    assert set(tracked.tables) == {f"tables/{name}" for name, rows in experiment.tables.items() if rows}
    assert tracked.summary["aside/gatv2/pr@10"] == experiment.tables["aside"][-1]["PR@10"]
    assert {"dataset-one", "dataset-two", "dataset-aside"} == set(tracked.inputs)
    assert not any(name.startswith(("train/", "val/")) for name in tracked.points)  # as docs/tracking.md says


def test_test_sets_have_their_ceilings(experiment: Experiment) -> None:
    rows = experiment.tables["test sets"]
    assert [row["data set"] for row in rows] == ["aside", "two"]
    assert {"ceiling at 200", "ceiling at 5"} <= set(rows[0])


def test_every_system_is_judged(experiment: Experiment) -> None:
    systems = [(row["system"], row["features"]) for row in experiment.tables["aside"]]
    assert systems == [("retriever", ""), ("ppr", ""), ("gcs", ""), ("MLP", "scores"), ("GATv2", "scores")]


def test_gatv2_is_compared_with_the_others(experiment: Experiment) -> None:
    assert {"minus retriever", "minus gcs", "minus MLP", "p, MLP"} <= set(experiment.tables["two"][-1])


def test_every_ablation_has_a_row(experiment: Experiment) -> None:
    changes = [row["change"] for row in experiment.tables["ablations"]]
    assert changes == ["none", "loss=bce", "retriever.top_k=5"]


def test_every_setting_of_the_grid_is_tried(experiment: Experiment) -> None:
    rows = experiment.tables["tried settings, PR@10 on validation"]
    assert [row["settings"].rpartition(", ")[2] for row in rows] == ["restart prob 0.3", "restart prob 0.6"]


def test_parameters_are_counted(experiment: Experiment) -> None:
    (step,) = experiment.steps("gatv2-scores-seed-1-*")
    assert step["parameters"] == 30850


@pytest.fixture(scope="module")
def evaluated(experiment: Experiment, run_command: RunCommand, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation of the model that the experiment trained."""
    (model,) = (experiment.folder / "models").glob("gatv2-scores-seed-1-*")
    folder = tmp_path_factory.mktemp("evaluated")
    datasets = f"datasets=[{experiment.aside},{experiment.two}]"
    run_command("evaluate.py", f"checkpoint={model}", datasets, f"hydra.run.dir={folder}")
    return folder


@pytest.mark.parametrize("dataset", ["aside", "two"])
@pytest.mark.parametrize(("system", "step"), [("gatv2", "gatv2-scores-seed-1-*"), ("retriever", "retriever-*")])
def test_evaluate_agrees_with_the_tables(
    system: str, step: str, dataset: str, experiment: Experiment, evaluated: Path
) -> None:
    hits = experiment.steps(step)[0]["values"][dataset]["PR@10"]
    assert measures_of(evaluated, dataset)[system]["PR@10"] == pytest.approx(sum(hits) / len(hits))


def test_a_second_call_repeats_only_what_is_missing(
    experiment: Experiment, run_command: RunCommand, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(experiment.folder, run)
    next((run / "steps").glob("ppr-*.json")).unlink()
    again = run_command("train.py", *experiment.arguments, "job.seeds=[1,2]", f"hydra.run.dir={run}")
    assert "[3/3] " in again.stdout  # PPR, and the second seed of two models
    rows = json.loads((run / "metrics.json").read_text())["two"]
    assert [row["deviation"] is None for row in rows] == [True, True, True, False, False]
