"""``experiment=grapher_tables`` on two small folders: the whole protocol, going on where it stopped, and the page."""

import json
import random
from pathlib import Path

import pytest

from tests.support.commands import without_times
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


@pytest.mark.slow
def test_tables_are_written_and_gone_on_with(run_command, run_on_device, tmp_path: Path) -> None:
    one = _folder(tmp_path / "one", 1, train=40, val=20)  # as those that are only trained on
    two = _folder(tmp_path / "two", 2, train=40, val=20, test=20)
    aside = _folder(tmp_path / "aside", 3, test=20)
    run = tmp_path / "run"
    arguments = [
        "experiment=grapher_tables", f"job.train=[{one},{two}]", f"job.judge={two}",
        f"job.test=[{aside},{two}]", "job.features=[scores]",
        "job.grid.learning_rate=[0.003]", "job.grid.weight_decay=[0.01]", "job.grid.max_epochs=[1]",
        "+job.grid.restart_prob=[0.3,0.6]",
        'job.ablations=["loss=bce","retriever.top_k=5"]',
        f"hydra.run.dir={run}",
    ]  # fmt: skip
    done = run_command("train.py", *arguments, "job.seeds=[1]", "logger=[csv,wandb]")
    on_device = f"hydra.run.dir={tmp_path / 'device'}"
    run_on_device("train.py", *arguments, "job.seeds=[1]", on_device, trainer=False)
    assert without_times(tmp_path / "device") == without_times(run)
    assert done.stdout.splitlines()[-1] == str(run)
    assert "[4/4] " in done.stdout  # 2 models with 2 settings
    assert "[7/7] " in done.stdout  # 3 frozen operators, 2 models, 2 ablations
    tables = json.loads((run / "metrics.json").read_text())
    tracked = OfflineRun(run / "gatv2")
    assert set(tracked.tables) == {f"tables/{name}" for name in tables if tables[name]}
    assert tracked.summary["aside/gatv2/pr@10"] == tables["aside"][-1]["PR@10"]
    assert {"dataset-one", "dataset-two", "dataset-aside"} == set(tracked.inputs)
    assert [row["data set"] for row in tables["test sets"]] == ["aside", "two"]
    assert {"ceiling at 200", "ceiling at 5"} <= set(tables["test sets"][0])
    systems = [(row["system"], row["features"]) for row in tables["aside"]]
    assert systems == [("retriever", ""), ("ppr", ""), ("gcs", ""), ("MLP", "scores"), ("GATv2", "scores")]
    assert {"minus retriever", "minus gcs", "minus MLP", "p, MLP"} <= set(tables["two"][-1])
    assert [row["change"] for row in tables["ablations"]] == ["none", "loss=bce", "retriever.top_k=5"]
    assert [row["settings"].rpartition(", ")[2] for row in tables["tried settings, PR@10 on validation"]] == [
        "restart prob 0.3", "restart prob 0.6",
    ]  # fmt: skip

    step = next(json.loads(file.read_text()) for file in (run / "steps").glob("gatv2-scores-seed-1-*.json"))
    assert step["parameters"] == 30850
    model = next((run / "models").glob("gatv2-scores-seed-1-*"))
    run_command(
        "evaluate.py", f"checkpoint={model}", f"datasets=[{aside},{two}]", f"hydra.run.dir={tmp_path / 'evaluated'}"
    )
    metrics = json.loads((tmp_path / "evaluated" / "metrics.json").read_text())["datasets"]
    for name in ("aside", "two"):
        hits = step["values"][name]["PR@10"]
        assert metrics[name]["systems"]["gatv2"]["PR@10"] == pytest.approx(sum(hits) / len(hits))
        base = next(json.loads(file.read_text()) for file in (run / "steps").glob("retriever-*.json"))["values"][name][
            "PR@10"
        ]
        assert metrics[name]["systems"]["retriever"]["PR@10"] == pytest.approx(sum(base) / len(base))

    next((run / "steps").glob("ppr-*.json")).unlink()
    again = run_command("train.py", *arguments, "job.seeds=[1,2]")
    assert "[3/3] " in again.stdout  # PPR, and the second seed of two models; nothing else is repeated
    rows = json.loads((run / "metrics.json").read_text())["two"]
    assert [row["deviation"] is None for row in rows] == [True, True, True, False, False]
