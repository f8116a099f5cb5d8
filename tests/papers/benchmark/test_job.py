"""``experiment=benchmark`` on a small folder: rows in their tables, what is missing, and going on."""

import json
from pathlib import Path

import pytest

from graphrerank_papers.benchmark.job import Benchmark, holders, is_missing, set_checkpoint
from tests.support.folders import write_dataset

NAMES = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet"]
SETS = {"ring": {"passages": 8, "questions": 3}}
ROWS = {"dense": {"title": "dense search", "pipeline": "vector_search"}}


def make(**settings) -> Benchmark:
    defaults = {"page": "page.md", "sets": SETS, "rows": ROWS, "measures": ["R@5"], "split": "test"}
    return Benchmark(**{**defaults, **settings})


def test_every_set_that_is_there(run_command, tmp_path: Path) -> None:
    folder = write_dataset(
        tmp_path / "data" / "2wikimultihopqa",
        corpus=[
            {"_id": f"p{i}", "title": name, "text": f"A text about {name} and {NAMES[i - 1]}."}
            for i, name in enumerate(NAMES)
        ],
        queries=[{"_id": f"q{i}", "text": f"What is a {NAMES[i]}?"} for i in range(3)],
        test=[(f"q{i}", f"p{j}") for i in range(3) for j in (i, i + 1)],
    )
    page, run = tmp_path / "page.md", tmp_path / "benchmark"
    arguments = [
        "experiment=benchmark", f"paths.datasets={tmp_path / 'data'}", f"job.page={page}", f"paths.runs={tmp_path}",
        "job.notes=[Made by hand.]", "~job.rows.hipporag2", "~job.rows.hybrid", "~job.rows.pagerank", "num_queries=2",
        f"+job.sets.part={{passages: 6119, questions: 1000, of: 2wikimultihopqa, data: {folder}, skip: [base]}}",
    ]  # fmt: skip
    done = run_command("evaluate.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert "missing: musique is not in paths.datasets" in done.stdout
    assert "two_wiki: ours, `base`" in done.stdout
    text = page.read_text()
    assert "not on this page: `musique`, `hotpotqa`." in text
    assert "\n- Made by hand.\n" in text
    assert "8 passages, 8 edges, 2 of 3 questions. **Not the corpus of published numbers**" in text
    without, trained = text.split("### 2wikimultihopqa: trained on this set's train questions")
    assert "| ours, `attack` | all-MiniLM-L6-v2 | none | attack |" in without
    assert "ours, `base`" not in without
    assert (
        "| ours, `base` | all-MiniLM-L6-v2 | none | attack, attack_paths, bird_train, hotpotqa,"
        in trained.split("## part")[0]
    )
    assert "Not run here: ours, `base`." in text
    assert "| HippoRAG 2 | reproduced in EA-GraphRAG's paper |" in text.split("### part: published")[1]

    found = json.loads((run / "metrics.json").read_text())
    assert found["missing"] == ["musique", "hotpotqa"]
    steps = {file: file.stat().st_mtime_ns for file in (run / "steps").iterdir()}
    assert len(steps) == 5
    next(file for file in steps if file.name.startswith("part-dense")).unlink()
    again = run_command("evaluate.py", *arguments)
    assert again.returncode == 0, again.stderr
    assert "part: dense search" in again.stdout
    assert "base`" not in again.stdout
    assert sum(file.stat().st_mtime_ns == stamp for file, stamp in steps.items()) == 4
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sets": {"ring": {"passages": 8}}}, r"`job.sets.ring.questions`: field required"),
        ({"rows": {"dense": {**ROWS["dense"], "budget": 3}}}, r"`job.rows.dense.budget`: unexpected"),
        ({"rows": {}}, r"`job.rows` must hold at least one entry"),
        ({"sets": {"ring": {**SETS["ring"], "skip": ["base"]}}}, r"`job.sets.ring.skip` must be of `job.rows`"),
        ({"measures": ["R@10"]}, r"`job.measures` must hold R@5"),
        ({"num_queries": 0}, r"`num_queries` must be a positive integer, got 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_missing_is_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert not is_missing({"datasets": str(tmp_path), "source": "here"})
    assert is_missing({"datasets": str(tmp_path), "source": "there"})
    assert is_missing({"path": str(tmp_path / "there")})
    assert not is_missing({"edge_share": 0.5})  # of a registry package


def test_a_checkpoint_goes_to_every_reranker_of_a_pipeline() -> None:
    group = {"steps": [{"budget": 3}, {"scorer": {"checkpoint": "base"}}]}
    set_checkpoint(group, "RUN")
    assert list(holders(group, "checkpoint")) == [{"checkpoint": "RUN"}]
    with pytest.raises(ValueError, match="must give a checkpoint to a pipeline that reranks"):
        set_checkpoint({"steps": [{"budget": 3}]}, "RUN")
