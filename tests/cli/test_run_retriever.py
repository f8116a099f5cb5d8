"""Commands with candidates of the user's own, and without an encoder."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.folders import write_dataset

DOCUMENTS = 12
QUERIES = 10


def write_folder(folder: Path) -> Path:
    """A ring of documents; query ``i`` has the relevant documents ``i`` and ``i + 1``, its run lists ``i`` and two."""
    splits = {"train": range(6), "val": range(6, 8), "test": range(8, 10)}
    write_dataset(
        folder,
        corpus=[{"_id": f"d{i}", "title": f"Thing {i}", "text": f"number {i}"} for i in range(DOCUMENTS)],
        queries=[{"_id": f"q{i}", "text": f"which is number {i}?"} for i in range(QUERIES)],
        edges=[(f"d{i}", f"d{(i + 1) % DOCUMENTS}", "next") for i in range(DOCUMENTS)],
        **{split: [(f"q{i}", f"d{j}") for i in queries for j in (i, i + 1)] for split, queries in splits.items()},
    )
    lines = [
        f"q{i} Q0 d{(i + step) % DOCUMENTS} {rank} {10 - rank} mine\n"
        for i in range(QUERIES)
        for rank, step in enumerate((0, 4, 6), start=1)
        if i != 9  # a query of the test split without candidates
    ]
    (folder / "mine.trec").write_text("".join(lines))
    return folder


def metrics(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())["datasets"]["things"]


def train(run_command: Any, folder: Path, run: Path, *arguments: str, status: int = 0) -> Any:
    small = ["debug=fast", "features=scores", "data=folder", f"data.path={folder}", f"paths.cache={run / 'cache'}"]
    return run_command("train.py", *small, *arguments, f"hydra.run.dir={run}", status=status)


def test_train_then_evaluate_on_a_run_without_an_encoder(run_command: Any, tmp_path: Path) -> None:
    folder, run = write_folder(tmp_path / "things"), tmp_path / "run"
    retriever = ["retriever=run", f"retriever.path={folder / 'mine.trec'}"]
    done = train(run_command, folder, run, *retriever)
    assert "none for q9" in done.stderr
    assert not (run / "cache" / "vectors").exists()
    manifest = json.loads((run / "gatv2" / "manifest.json").read_text())
    assert manifest["encoder"] is None
    assert manifest["retriever"]["feature_names"] == ["base_score"]
    assert metrics(run)["ceiling"] == metrics(run)["base_ceiling"] == 0.0  # the second document is never listed

    out = tmp_path / "evaluated"
    folders = (f"datasets=[{folder}]", f"paths.cache={run / 'cache'}", f"hydra.run.dir={out}")
    run_command("evaluate.py", f"checkpoint={run}", *folders)
    for name, system in metrics(run)["systems"].items():
        assert metrics(out)["systems"][name]["nDCG@10"] == system["nDCG@10"]


def test_expanded_run_with_the_graph_alone_lifts_the_ceiling(run_command: Any, tmp_path: Path) -> None:
    folder, run = write_folder(tmp_path / "things"), tmp_path / "run"
    expand = ["retriever=run_expand", f"retriever.base.path={folder / 'mine.trec'}", "retriever.similarity_weight=0"]
    sizes = ["retriever.top_k=8", "retriever.base_k=3", "retriever.num_seeds=2"]
    done = train(run_command, folder, run, "encoder=none", *expand, *sizes)
    assert not (run / "cache" / "vectors").exists()
    assert (metrics(run)["base_ceiling"], metrics(run)["ceiling"]) == (0.0, 0.5)
    assert "ceiling of PR 50.00 (0.00 before expansion)" in done.stdout


@pytest.mark.parametrize("encoder", [["encoder=none"], []], ids=["none", "of the checkpoint"])
def test_edges_to_nearest_neighbours_where_there_is_an_encoder(
    run_command: Any, tmp_path: Path, encoder: list[str]
) -> None:
    folder = write_folder(tmp_path / "things")
    settings = ["data=folder", f"data.path={folder}", "data.edges=auto", "retriever=bm25", f"paths.cache={tmp_path}/c"]
    done = run_command("evaluate.py", "checkpoint=base", *settings, *encoder, f"hydra.run.dir={tmp_path / 'o'}")
    assert (tmp_path / "c" / "vectors").exists() == (encoder == [])
    assert ("without the 10 nearest neighbours of each passage (no encoder)" in done.stdout) == (encoder != [])
    assert ("candidates: bm25, vectors: minilm of base" in done.stdout) == (encoder == [])


def test_pipelines_and_the_doctor_go_without_an_encoder(run_command: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "things")
    settings = [f"paths.cache={tmp_path}/c", "encoder=none", f"hydra.run.dir={tmp_path / 'o'}"]
    run_command("evaluate.py", "pipeline=vector_search", f"datasets=[{folder}]", "retriever=bm25", *settings)
    done = run_command("doctor", str(folder), *settings, status=1)
    assert "`encoder` must be set for a retriever that searches vectors, got none" in done.stderr


def test_an_evaluation_has_the_splits_of_the_training(run_command: Any, tmp_path: Path) -> None:
    folder, run = write_folder(tmp_path / "things"), tmp_path / "run"
    splits = 'data.splits={train: "train[:50%]", val: val, test: "train[50%:]"}'
    train(run_command, folder, run, splits, "encoder=none", "retriever=bm25", "retriever.top_k=5", "~ablations.mlp")
    for number, data in enumerate(([f"datasets=[{folder}]"], ["data=folder", f"data.path={folder}"])):
        judged = tmp_path / f"judged{number}"
        run_command("evaluate.py", f"checkpoint={run}", *data, f"hydra.run.dir={judged}")
        assert metrics(judged)["queries"] == metrics(run)["queries"] == 3


def test_a_missing_split_is_refused_before_anything_is_encoded(run_command: Any, tmp_path: Path) -> None:
    folder = write_dataset(write_folder(tmp_path / "things"), all=[("q0", "d0")])
    for split in ("train", "val", "test"):
        (folder / "qrels" / f"{split}.tsv").unlink()
    encoder = ("encoder=sentence_transformer", "encoder.model=/nowhere")
    done = train(run_command, folder, tmp_path / "run", *encoder, status=1)
    assert done.stderr == (
        "data set 'things' must have the split 'train', got the splits ['all']; to divide the existing splits: "
        "data.splits=auto, or "
        '\'data.splits={train: "all[:80%]", val: "all[80%:90%]", test: "all[90%:]"}\' (in Python: splits="auto")\n'
    )
