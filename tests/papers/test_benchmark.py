"""``experiment=benchmark`` on a small folder: rows in their tables, what is missing, and going on."""

import json
from pathlib import Path

import pytest

from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import DataEntry
from graphrerank_papers.benchmark import PUBLISHED, Benchmark, has_seen, read_published, settings_with, training_sets
from tests.support.commands import without_times
from tests.support.folders import write_dataset

NAMES = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet"]
SETS = {"ring": {"passages": 8, "questions": 3}}
ROWS = {"dense": {"title": "dense search", "pipeline": "vector_search"}}


def make(**settings) -> Benchmark:
    defaults = {"encoder": None, "sets": SETS, "rows": ROWS, "measures": ["R@5"], "split": "test"}
    return Benchmark(**{**defaults, **settings})


def test_every_set_that_is_there(run_command, run_on_device, tmp_path: Path) -> None:
    folder = write_dataset(
        tmp_path / "data" / "2wikimultihopqa",
        corpus=[
            {"_id": f"p{i}", "title": name, "text": f"A text about {name} and {NAMES[i - 1]}."}
            for i, name in enumerate(NAMES)
        ],
        queries=[{"_id": f"q{i}", "text": f"What is a {NAMES[i]}?"} for i in range(3)],
        test=[(f"q{i}", f"p{j}") for i in range(3) for j in (i, i + 1)],
    )
    run = tmp_path / "benchmark"
    arguments = [
        "experiment=benchmark", f"paths.datasets={tmp_path / 'data'}", f"paths.runs={tmp_path}",
        "~job.rows.hipporag2", "~job.rows.raptor", "~job.rows.hybrid", "~job.rows.pagerank", "num_queries=2",
        f"+job.sets.part={{passages: 6119, questions: 1000, of: 2wikimultihopqa, data: {folder}, skip: [base]}}",
    ]  # fmt: skip
    done = run_command("evaluate.py", *arguments)
    run_on_device("evaluate.py", *arguments, f"hydra.run.dir={tmp_path / 'device'}")
    assert without_times(tmp_path / "device") == without_times(run)
    assert "musique is not in `paths.datasets`" in done.stdout
    assert "two_wiki: ours, `base`" in done.stdout
    found = json.loads((run / "metrics.json").read_text())
    assert [(row["data set"], row["comparable"]) for row in found["data sets"]] == [("two_wiki", "no"), ("part", "no")]
    rows = {row["system"]: row for row in found["two_wiki"]}
    assert {name: row["saw its train split"] for name, row in rows.items()} == {
        "dense search": "no", "ours, `attack`": "no", "ours, `base`": "yes",
    }  # fmt: skip
    assert rows["ours, `base`"]["trained on"].startswith("attack, attack_paths, bird_train, hotpotqa,")
    assert [row["system"] for row in found["part"]] == ["dense search", "ours, `attack`"]
    assert {row["source"] for row in found["part: published"]} >= {"reproduced in EA-GraphRAG's paper"}
    report = (run / "report.md").read_text()
    assert "| ours, `attack` | all-MiniLM-L6-v2 | none | attack | no |" in report

    steps = {file: file.stat().st_mtime_ns for file in (run / "steps").iterdir()}
    assert len(steps) == 5
    next(file for file in steps if file.name.startswith("part-dense")).unlink()
    again = run_command("evaluate.py", *arguments)
    assert "part: dense search" in again.stdout
    assert "two_wiki: ours, `base`" not in again.stdout
    assert sum(file.stat().st_mtime_ns == stamp for file, stamp in steps.items()) == 4
    assert (run / "report.md").read_text() == report


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sets": {"ring": {"passages": 8}}}, r"`job.sets.ring.questions`: field required"),
        ({"sets": {"ring": {**SETS["ring"], "skip": ["base"]}}}, r"`job.sets.ring.skip` must be among `job.rows`"),
        ({"measures": ["R@10"]}, r"`job.measures` must contain R@5"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_settings_at_any_depth() -> None:
    group = {"steps": [{"budget": 3}, {"scorer": {"checkpoint": "base"}}]}
    assert list(settings_with(group, "checkpoint")) == [{"checkpoint": "base"}]
    assert list(settings_with({"steps": [{"budget": 3}]}, "checkpoint")) == []


ENTRY = {"method": "M", "source": "S", "embedder": "E", "language_model": "L", "R@5": {"musique": 50.0}}


def test_ours_names_a_source_and_an_embedder_for_every_row() -> None:
    rows = read_published(PUBLISHED)
    methods = {row.method.partition(" with ")[0] for row in rows}
    assert methods == {"HippoRAG 2", "PropRAG", "BridgeRAG", "GFM-RAG", "SAG"}
    assert all(row.source and row.embedder for row in rows)
    assert [row.recall["musique"] for row in rows if "musique" in row.recall] == [
        74.7, 65.1, 80.4, 67.1, 81.71, 80.04, 62.2, 78.3, 81.5, 59.3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "published.json`: invalid json"),
        (json.dumps([{**ENTRY, "R@5": {"musique": 101}}]), "0.R@5.musique`: .*less than or equal to 100"),
    ],
)
def test_another_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "published.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_published(file)


def test_of_the_checkpoints_that_ship() -> None:
    base, attack = load_primary("base").reranker, load_primary("attack").reranker
    assert training_sets(attack) == ["attack"]
    assert set(training_sets(base)) > {
        "bird_train", "spider", "2wikimultihopqa_train", "hotpotqa", "scifact", "nfcorpus", "attack", "attack_paths",
        "peps", "reviews", "git_click",
    }  # fmt: skip
    assert has_seen(base, {"2wikimultihopqa", "2wikimultihopqa_train"}, "")
    assert not has_seen(base, {"musique"}, "")
    assert not has_seen(attack, {"2wikimultihopqa", "2wikimultihopqa_train"}, "")
    assert has_seen(attack, {"attack under another name"}, attack.data.fingerprint)


def test_folders_are_named_by_their_last_part() -> None:
    attack = load_primary("attack").reranker
    folder = DataEntry(choice="folder", arguments={"path": "/data/mine"}, fingerprint="0")
    other = DataEntry(arguments={"data": "folder", "path": "/data/musique"}, fingerprint="1")
    mix = {"second": other, "spider": DataEntry(fingerprint="2")}
    manifest = attack.model_copy(update={"data": folder, "mix": mix})
    assert training_sets(manifest) == ["mine", "musique", "spider"]
    assert has_seen(manifest, {"musique"}, "")
