"""Distillation from the command line: from a run file and from soft labels, in a corpus without judgements."""

from pathlib import Path

import pytest

from tests.support.commands import RunCommand, manifest_of, systems_of
from tests.support.folders import write_word_pairs

USUAL = ("data=folder", "encoder=none", "features=scores", "retriever=bm25", "trainer.max_epochs=2", "~ablations.mlp")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pairs of passages with one word, and a question about each word, without judgements."""
    return write_word_pairs(tmp_path / "words", 30)


def test_a_corpus_without_judgements_learns_from_a_run(folder: Path, run_command: RunCommand, tmp_path: Path) -> None:
    run = tmp_path / "teacher.trec"
    run.write_text(
        "".join(f"q{n} Q0 {kind}{n} 1 {score} t\n" for n in range(30) for kind, score in (("a", 1), ("b", 3)))
    )
    done = run_command(
        "train.py", *USUAL, f"data.path={folder}", "teacher=run", f"teacher.path={run}", "loss=weighted",
        "loss.losses={kl: {weight: 0.5, temperature: 2}, margin_mse: 0.1}", "test_split=val",
        f"hydra.run.dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert "3 questions without judgements are held out" in done.stdout + done.stderr
    manifest = manifest_of(tmp_path / "run" / "gatv2")
    assert manifest["teacher"]["name"] == "RunTeacher"
    assert "calibration" not in manifest
    assert systems_of(tmp_path / "run").keys() >= {"gatv2", "retriever"}


def test_learns_from_soft_labels_next_to_judgements(folder: Path, run_command: RunCommand, tmp_path: Path) -> None:
    for split, numbers in (("train", range(20)), ("val", range(20, 25)), ("test", range(25, 30))):
        rows = [
            f"q{n}\t{kind}{n}\t{score}\t{soft}"
            for n in numbers
            for kind, score, soft in (("a", "", 0.2), ("b", 1, 0.9))
        ]
        text = "\n".join(["query-id\tcorpus-id\tscore\tteacher", *rows])
        (folder / "qrels" / f"{split}.tsv").write_text(text)
    run_command(
        "train.py", *USUAL, f"data.path={folder}", "teacher=soft_labels", "loss=weighted",
        "loss.losses={listwise: 1, kl: 1}", f"hydra.run.dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert manifest_of(tmp_path / "run" / "gatv2")["teacher"]["name"] == "SoftLabelTeacher"


def test_a_missing_evaluation_split_is_refused_before_the_teacher_is_read(
    folder: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    done = run_command(
        "train.py", *USUAL, f"data.path={folder}", "teacher=run", "teacher.path=nowhere.trec", "loss=kl",
        f"hydra.run.dir={tmp_path / 'run'}", status=1,
    )  # fmt: skip
    assert (
        "must have the split 'test' to evaluate on, got the splits []. Add judgements, or use test_split=val"
        in done.stderr
    )
