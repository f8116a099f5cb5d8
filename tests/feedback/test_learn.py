"""``graphrerank learn``: from a log to an artifact with its lineage, or a refusal with its reason."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

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


@pytest.fixture
def corpus(linked: Dataset, tmp_path: Path) -> Path:
    graph = linked.graph
    records = [{"_id": name, "text": text} for name, text in zip(graph.node_ids, graph.texts, strict=True)]
    edges = [(f"p{name[1:]}", name, "references") for name in graph.node_ids if name.startswith("t")]
    return write_dataset(tmp_path / "linked", corpus=records, edges=edges)


def test_a_better_ranker_becomes_an_artifact(
    run_command: RunCommand,
    small_encoder: tuple[str, ...],
    corpus: Path,
    simulate: Simulate,
    tmp_path: Path,
) -> None:
    log, artifact, run = write_log(tmp_path / "log.jsonl", simulate(1500)), tmp_path / "next", tmp_path / "run"
    arguments = ("data=folder", f"data.path={corpus}", f"artifact={artifact}", *small_encoder)
    refused = run_command("learn", str(log), *arguments, "drafted=30", f"hydra.run.dir={run}1")
    assert "nDCG@10 on drafted questions, margin 0.01" in refused.stdout  # they want the passage that the users do not
    assert not artifact.exists()
    loggers = () if find_spec("wandb") is None else ("logger=wandb",)
    done = run_command("learn", str(log), *arguments, "drafted=0", *loggers, f"hydra.run.dir={run}")
    assert done.stdout.splitlines()[-2:] == [f"artifact: {artifact}", str(run)], done.stdout
    for found in ("1,500 lists shown", "left out: 1 half line", "position bias: ", "learned (", "later sessions: ",
                  "the most frequent queries:", "\naccepted\n"):  # fmt: skip
        assert found in done.stdout
    entry = manifest_of(artifact)["learned"]
    assert entry["parent"]["name"] == "base"
    assert entry["log"]["left_out"] == {"half line": 1}
    assert entry["tests"]["later sessions"]["p"] <= 0.025
    assert json.loads((run / "metrics.json").read_text())["accepted"] == 1
    state = load_checkpoint(artifact).model.state_dict()
    before = load_checkpoint(PRETRAINED / "base").model.state_dict()
    assert any(not torch.equal(weight, before[name]) for name, weight in state.items())
    load_artifact(artifact)
    if loggers:
        tracked = OfflineRun(run / "learn")
        assert tracked.summary["tests/later sessions/p"] == entry["tests"]["later sessions"]["p"]
        assert {"dataset-linked", "model-base"} <= set(tracked.inputs)
        assert {"model-next", "report-run"} <= set(tracked.outputs)
    again = run_command("learn", str(log), *arguments, f"start={artifact}", "level=0.000001", f"hydra.run.dir={run}2")
    assert "refused: not significantly better" in again.stdout  # and the older artifact stays
    assert manifest_of(artifact)["learned"] == entry


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
    with pytest.raises(ValueError, match="20 lists are of other corpora"):
        learn(other, str(corpus))
    with pytest.raises(ValueError, match="`margin` must be a finite number above 0"):
        learn(log, str(corpus), retriever="bm25", margin=-1)
