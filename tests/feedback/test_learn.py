"""``graphrerank learn``: from a log to an artifact with its lineage, or a refusal with its reason."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from graphrerank import Dataset, learn
from graphrerank.artifacts.artifact import load_artifact
from graphrerank.feedback.log import Session
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint
from tests.feedback.conftest import Simulate
from tests.support.commands import RunCommand, manifest_of
from tests.support.folders import write_dataset
from tests.support.tracking import OfflineRun


def write_log(path: Path, sessions: Sequence[Session], **of_lists: object) -> Path:
    lines = []
    for session in sessions:
        time = 1.7e9 + session.time
        name, ids = session.request_id, list(session.ids)
        shown = {"event": "shown", "request_id": name, "time": time, "query": session.query, "ids": ids}
        lines.append(shown | {"user": session.user, "swaps": list(session.swaps)} | of_lists)
        clicked = [at for at, gain in enumerate(session.gains, 1) if gain]
        if clicked:
            lines.append({"event": "feedback", "request_id": name, "time": time + 5, "clicked": clicked})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "sho')
    return path


def write_corpus(folder: Path, linked: Dataset) -> Path:
    graph = linked.graph
    records = [{"_id": name, "text": text} for name, text in zip(graph.node_ids, graph.texts, strict=True)]
    edges = [(f"p{name[1:]}", name, "references") for name in graph.node_ids if name.startswith("t")]
    return write_dataset(folder / "linked", corpus=records, edges=edges)


@pytest.fixture
def corpus(linked: Dataset, tmp_path: Path) -> Path:
    return write_corpus(tmp_path, linked)


class Learning(NamedTuple):
    """A run of ``graphrerank learn`` that was accepted.

    Attributes:
        arguments: Log and settings of the command.
        artifact: Folder of the new artifact.
        run: Run folder.
        output: Standard output of the command.
    """

    arguments: tuple[str, ...]
    artifact: Path
    run: Path
    output: str


@pytest.fixture(scope="module")
def learned(
    run_command: RunCommand,
    small_encoder: tuple[str, ...],
    linked: Dataset,
    simulate: Simulate,
    tmp_path_factory: pytest.TempPathFactory,
) -> Learning:
    """Learn from 1,500 sessions."""
    folder = tmp_path_factory.mktemp("learned")
    log, artifact, run = write_log(folder / "log.jsonl", simulate(1500)), folder / "next", folder / "run"
    corpus = write_corpus(folder, linked)
    arguments = (str(log), "data=folder", f"data.path={corpus}", *small_encoder)
    loggers = () if find_spec("wandb") is None else ("logger=wandb",)
    settings = (f"artifact={artifact}", "drafted=0", *loggers, f"hydra.run.dir={run}")
    done = run_command("learn", *arguments, *settings)
    return Learning(arguments, artifact, run, done.stdout)


def test_the_report_says_what_was_learned(learned: Learning) -> None:
    assert learned.output.splitlines()[-2:] == [f"artifact: {learned.artifact}", str(learned.run)], learned.output
    for text in ("1,500 lists shown", "left out: 1 half line", "position bias: ", "learned (", "later sessions: ",
                 "the most frequent queries:", "\naccepted\n"):  # fmt: skip
        assert text in learned.output
    assert json.loads((learned.run / "metrics.json").read_text())["accepted"] == 1


def test_a_better_ranker_becomes_an_artifact_with_its_lineage(learned: Learning) -> None:
    entry = manifest_of(learned.artifact)["learned"]
    assert entry["parent"]["name"] == "base"
    assert entry["log"]["left_out"] == {"half line": 1}
    assert entry["tests"]["later sessions"]["p"] <= 0.025
    weights = load_checkpoint(learned.artifact).model.state_dict()
    before = load_checkpoint(PRETRAINED / "base").model.state_dict()
    assert any(not torch.equal(weight, before[name]) for name, weight in weights.items())
    load_artifact(learned.artifact)


def test_a_logger_gets_its_tests_inputs_and_outputs(learned: Learning) -> None:
    pytest.importorskip("wandb", reason="wandb is optional")
    tracked = OfflineRun(learned.run / "learn")
    p_value = manifest_of(learned.artifact)["learned"]["tests"]["later sessions"]["p"]
    assert tracked.summary["tests/later sessions/p"] == p_value
    assert {"dataset-linked", "model-base"} <= set(tracked.inputs)
    assert {"model-next", "report-run"} <= set(tracked.outputs)


def test_a_ranker_that_is_worse_on_drafted_questions_is_refused(
    learned: Learning, run_command: RunCommand, tmp_path: Path
) -> None:
    """Users want the passage that the drafted questions do not ask for."""
    settings = (f"artifact={tmp_path / 'next'}", "drafted=30", f"hydra.run.dir={tmp_path / 'run'}")
    refused = run_command("learn", *learned.arguments, *settings)
    assert "refused: nDCG@10 on drafted questions drops by" in refused.stdout
    assert not (tmp_path / "next").exists()


def test_a_refusal_leaves_the_older_artifact(learned: Learning, run_command: RunCommand, tmp_path: Path) -> None:
    entry = manifest_of(learned.artifact)["learned"]
    settings = (f"artifact={learned.artifact}", "drafted=0", f"start={learned.artifact}", "level=0.000001")
    refused = run_command("learn", *learned.arguments, *settings, f"hydra.run.dir={tmp_path}")
    assert "refused: not significantly better" in refused.stdout
    assert manifest_of(learned.artifact)["learned"] == entry


def test_users_that_clients_name_are_strangers(
    run_command: RunCommand, small_encoder: tuple[str, ...], corpus: Path, simulate: Simulate, tmp_path: Path
) -> None:
    log = write_log(tmp_path / "log.jsonl", simulate(1500), authenticated=False)
    artifact = tmp_path / "next"
    arguments = (str(log), "data=folder", f"data.path={corpus}", f"artifact={artifact}", *small_encoder, "drafted=0")
    refused = run_command("learn", *arguments)
    assert "0 known users" in refused.stdout
    assert "refused: too few known users" in refused.stdout
    assert not artifact.exists()
    assert run_command("learn", *arguments, "allow_anonymous=true").stdout.splitlines()[-3] == "accepted"
    assert manifest_of(artifact)["learned"]["settings"]["allow_anonymous"] is True


def test_refusals(corpus: Path, simulate: Simulate, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", simulate(20))
    outcome = learn(log, str(corpus), retriever="bm25", artifact=tmp_path / "next")
    assert not outcome.accepted
    assert not (tmp_path / "next").exists()
    other = tmp_path / "other.jsonl"
    other.write_text(log.read_text().replace('"query"', '"corpus": "abc", "query"'))
    with pytest.raises(ValueError, match="20 lists are from other corpora"):
        learn(other, str(corpus))
    with pytest.raises(ValueError, match="`margin` must be a finite number above 0"):
        learn(log, str(corpus), retriever="bm25", margin=-1)
