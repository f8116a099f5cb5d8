"""The checkpoints that ship as `base`, `base-2` and `base-1`: what they are, and the README's commands."""

from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.models.manifest import read_manifest
from tests.support.commands import manifest_of, systems_of

TRAINED_ON = {"bird_train", "spider", "2wikimultihopqa_train", "hotpotqa", "scifact", "nfcorpus", "attack"}
# and on questions along a graph's edges, and on folders that recipes make
MADE = {"base": {"attack_paths", "folder"}, "base-2": {"attack_paths"}, "base-1": set()}
NUM_QUESTIONS = 400  # of 1,534 of BIRD
QUESTION = "Where was the director of the film Solaris buried?"
SCORES = [0.9, 0.6, 0.5, 0.3, 0.7]
PASSAGES = [
    "Solaris. A 1972 film directed by Andrei Tarkovsky.",
    "The Mirror. A film about memory.",
    "Paris. The capital of France.",
    "Andrei Tarkovsky. Born in Zavrazhye, he is buried in Paris.",
    "A film director. Somebody who directs films.",
]


@pytest.fixture(scope="module", params=["base", "base-2", "base-1"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reranker(name: str) -> GraphReranker:
    return GraphReranker.from_pretrained(name)


def test_is_small_and_names_no_folder_of_the_machine_that_made_it(name: str) -> None:
    assert sum(file.stat().st_size for file in (PRETRAINED / name).iterdir()) < 1 << 20

    assert '"/' not in (PRETRAINED / name / "manifest.json").read_text()


def test_reads_scores_alone_and_was_trained_on_train_splits(name: str) -> None:
    manifest = manifest_of(PRETRAINED / name)
    assert manifest["model"]["arguments"]["features"] == "scores"
    trained_on = read_manifest(PRETRAINED / name).trained_on
    assert {entry.arguments["data"] for entry in trained_on.values()} == TRAINED_ON | MADE[name]
    for entry in trained_on.values():
        splits = entry.arguments.get("splits") or {"train": "train"}
        assert splits["train"].startswith("train")
    assert manifest["config"]["batches"]["train_split"] == "train"


def test_base_takes_the_scores_of_a_cross_encoder_and_needs_none() -> None:
    base, more = GraphReranker.from_pretrained("base"), {"scores": SCORES, "edges": [(0, 3)]}
    plain = base.rerank(QUESTION, PASSAGES, **more)
    nothing_read = base.rerank(QUESTION, PASSAGES, cross_encoder_scores=[None] * 5, **more)
    assert plain.scores.tolist() == nothing_read.scores.tolist()
    for favourite in range(5):
        given = [3.0 if place == favourite else -3.0 for place in range(5)]
        read = base.rerank(QUESTION, PASSAGES, cross_encoder_scores=given, **more)
        assert read.ids.index(favourite) <= plain.ids.index(favourite)


def test_a_neighbour_that_covers_the_rest_of_the_question_rises(reranker: GraphReranker) -> None:
    alone = reranker.rerank(QUESTION, PASSAGES, scores=SCORES)
    joined = reranker.rerank(QUESTION, PASSAGES, scores=SCORES, edges=[(0, 3)])
    assert joined.ids.index(3) <= alone.ids.index(3)


@pytest.mark.parametrize("scale", [1.0, 40.0, 0.001])
def test_one_score_and_no_edge_keep_their_order(reranker: GraphReranker, scale: float) -> None:
    scores = scale * torch.randperm(100, generator=torch.Generator().manual_seed(0)).float()
    ranking = reranker.rerank("anything", scores=scores)
    assert list(ranking.ids) == scores.argsort(descending=True).tolist()


@pytest.mark.parametrize(
    ("given", "ids", "scores", "probabilities"),
    [
        (
            {"scores": SCORES},
            (4, 0, 3, 1, 2),
            [3.634856, 3.562662, 0.002859, -1.399461, -2.144213],
            [0.199653, 0.192120, 0.021990, 0.008801, 0.005392],
        ),
        (
            {"scores": SCORES, "edges": [(0, 3)]},
            (0, 3, 4, 1, 2),
            [3.925961, 2.952975, 2.139024, -1.789006, -2.144213],
            [0.232262, 0.137021, 0.084745, 0.006813, 0.005392],
        ),
        (  # ties of BM25 get their mean rank since 0.4; before, the order of the request decided (0, 3, 4, 2, 1)
            {"edges": [(0, 3), (3, 2), (1, 4)], "edge_weights": [1, 1, 0.5]},
            (0, 3, 4, 1, 2),
            [4.190369, 2.603854, 0.839871, -0.891794, -0.973270],
            [0.264950, 0.111890, 0.037676, 0.012277, 0.011639],
        ),
    ],
)
def test_base_1_scores_as_base_of_0_2(given: dict, ids: tuple, scores: list, probabilities: list) -> None:
    found = GraphReranker.from_pretrained("base-1").rerank(QUESTION, PASSAGES, **given)
    assert found.ids == ids
    assert found.scores.tolist() == pytest.approx(scores, abs=1e-4)
    assert found.probabilities.tolist() == pytest.approx(probabilities, abs=1e-5)


@pytest.mark.slow
def test_the_users_command(run_command, datasets_folder: Path, tmp_path: Path) -> None:
    if not (datasets_folder / "bird").is_dir():
        pytest.skip(f"needs the data set folder bird in {datasets_folder}")
    run_command(
        "evaluate.py", "checkpoint=base", "datasets=[bird]", "retriever=hybrid_expand", "edge_ablations=[]",
        f"num_queries={NUM_QUESTIONS}", f"paths.datasets={datasets_folder}", f"hydra.run.dir={tmp_path / 'run'}",
    )  # fmt: skip
    systems = systems_of(tmp_path / "run")
    assert list(systems) == ["retriever", "ppr", "gcs", "rank_fusion", "gatv2"]
    for measure in ("PR@10", "nDCG@10"):
        assert systems["gatv2"][measure] > max(systems["retriever"][measure], systems["gcs"][measure])
    assert systems["gatv2"]["PR@10"] > 0.97
