"""The checkpoint that ships as `base`: what it is, and that the user's command gives what the README says."""

import json
from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.models.checkpoint import PRETRAINED

FOLDER = PRETRAINED / "base"
TRAINED_ON = {"bird_train", "spider", "two_wiki", "hotpotqa", "scifact", "nfcorpus", "attack"}


@pytest.fixture(scope="module")
def manifest() -> dict:
    return json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))


def test_is_small_and_names_no_folder_of_the_machine_that_made_it(manifest: dict) -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1 << 20

    def strings(entry: object) -> list[str]:
        if isinstance(entry, dict):
            return [text for value in entry.values() for text in strings(value)]
        if isinstance(entry, list):
            return [text for value in entry for text in strings(value)]
        return [entry] if isinstance(entry, str) else []

    assert [text for text in strings(manifest) if text.startswith("/")] == []


def test_reads_scores_alone_and_was_trained_on_train_splits(manifest: dict) -> None:
    assert manifest["model"]["arguments"]["features"] == "scores"
    assert {manifest["data"]["choice"], *manifest["mix"]} == TRAINED_ON
    for entry in (manifest["data"], *manifest["mix"].values()):
        splits = entry["arguments"].get("splits") or {"train": "train"}
        assert splits["train"].startswith("train")
    assert manifest["config"]["batches"]["train_split"] == "train"


def test_a_neighbour_that_covers_the_rest_of_the_question_rises() -> None:
    passages = [
        "Solaris. A 1972 film directed by Andrei Tarkovsky.",
        "The Mirror. A film about memory.",
        "Paris. The capital of France.",
        "Andrei Tarkovsky. Born in Zavrazhye, he is buried in Paris.",
        "A film director. Somebody who directs films.",
    ]
    reranker = GraphReranker.from_pretrained("base")
    question, scores = "Where was the director of the film Solaris buried?", [0.9, 0.6, 0.5, 0.3, 0.7]
    alone = reranker.rerank(question, passages, scores=scores)
    joined = reranker.rerank(question, passages, scores=scores, edges=[(0, 3)])
    assert joined.ids[0] == 0
    assert joined.ids.index(3) <= alone.ids.index(3)


@pytest.mark.parametrize("scale", [1.0, 40.0, 0.001])
def test_one_score_and_no_edge_keep_their_order(scale: float) -> None:
    scores = scale * torch.randperm(100, generator=torch.Generator().manual_seed(0)).float()
    ranking = GraphReranker.from_pretrained("base").rerank("anything", scores=scores)
    assert list(ranking.ids) == scores.argsort(descending=True).tolist()


@pytest.mark.slow
def test_the_users_command(run_command, datasets_folder: Path, tmp_path: Path) -> None:
    if not (datasets_folder / "bird").is_dir():
        pytest.skip(f"needs the data set folder bird in {datasets_folder}")
    done = run_command(
        "evaluate.py", "checkpoint=base", "datasets=[bird]", "retriever=hybrid_expand",
        f"paths.datasets={datasets_folder}", f"hydra.run.dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    systems = json.loads((tmp_path / "run" / "metrics.json").read_text())["datasets"]["bird"]["systems"]
    assert list(systems) == ["retriever", "ppr", "gcs", "gatv2"]
    for measure in ("PR@10", "nDCG@10"):
        assert systems["gatv2"][measure] > max(systems["retriever"][measure], systems["gcs"][measure])
    assert systems["gatv2"]["PR@10"] > 0.97
