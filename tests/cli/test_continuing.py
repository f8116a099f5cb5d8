"""``graphrerank train ckpt_path=RUN`` of interrupted and of finished runs."""

import shlex
from pathlib import Path

import pytest

from tests.support.commands import changed_weights, manifest_of
from tests.support.folders import write_dataset

pytestmark = pytest.mark.slow  # a training each


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    """Settings of a training on towns and their lords: the answer is linked to the town."""
    names = [f"town{number}" for number in range(20)]
    write_dataset(
        tmp_path / "towns",
        corpus=[{"_id": name, "title": name, "text": f"{name} lies on a river."} for name in names]
        + [{"_id": f"{name}-lord", "title": "", "text": f"Lord {name[::-1]}."} for name in names],
        queries=[{"_id": f"q-{name}", "text": f"Who is the lord of {name}?"} for name in names],
        edges=[(name, f"{name}-lord", "link") for name in names],
        **{
            split: [(f"q-{name}", f"{name}-lord", 1) for name in part]
            for split, part in (("train", names[:12]), ("val", names[12:16]), ("test", names[16:]))
        },
    )
    return (
        "data=folder", f"data.path={tmp_path / 'towns'}", "retriever=bm25", "encoder=none", "~ablations.mlp",
        "features=scores", "batches.batch_size=4", "scheduler=constant", "module.warmup_steps=0",
    )  # fmt: skip


def test_a_finished_run_trains_on_and_other_settings_are_refused(run_command, job: tuple[str, ...], tmp_path: Path):
    runs = {name: f"hydra.run.dir={tmp_path / name}" for name in ("unbroken", "mine", "second", "third")}
    run_command("train.py", *job, "trainer.max_epochs=3", runs["unbroken"])
    run_command("train.py", *job, "trainer.max_epochs=1", runs["mine"])
    more = (*job, "trainer.max_epochs=3", f"ckpt_path={tmp_path / 'mine'}")
    done = run_command("train.py", *more, runs["second"])
    assert f"continuing in {tmp_path / 'mine'}; hydra.run.dir={tmp_path / 'second'} is not used" in done.stdout
    assert manifest_of(tmp_path / "mine" / "gatv2")["trained"]["epochs"] == 3
    assert changed_weights(tmp_path / "unbroken" / "gatv2", tmp_path / "mine" / "gatv2", "last") == []
    for change, named in (
        ("loss=bce", "loss.name=listwise_softmax_cross_entropy, got binary_cross_entropy"),
        ("batches.batch_size=3", "batch_size=4, got 3"),
        ("seed=7", "seed=1, got 7"),
    ):
        refused = run_command("train.py", *more, change, runs["third"], status=1)
        assert f"`ckpt_path` must be used with the settings of its run, which has {named}" in refused.stderr


def test_a_signal_saves_the_state_and_prints_the_command_to_resume(run_command, job: tuple[str, ...], tmp_path: Path):
    settings = (*job, "trainer.max_epochs=3")
    run_command("train.py", *settings, f"hydra.run.dir={tmp_path / 'unbroken'}")
    stop = "+callbacks.stop={_target_: tests.support.stopping.SignalInEpoch, epoch: 1}"
    stopped = run_command("train.py", *settings, stop, f"hydra.run.dir={tmp_path / 'mine'}", status=143)
    (line,) = [line for line in stopped.stderr.splitlines() if line.startswith("to resume: ")]
    arguments = shlex.split(line)
    assert arguments[-1] == f"ckpt_path={tmp_path / 'mine'}"
    assert not manifest_of(tmp_path / "mine" / "gatv2")["finished"]
    start = arguments.index("data=folder")
    again = [argument for argument in arguments[start:] if not argument.startswith("+callbacks.stop")]
    run_command("train.py", *again)
    assert changed_weights(tmp_path / "unbroken" / "gatv2", tmp_path / "mine" / "gatv2", "last") == []


@pytest.mark.parametrize("buffer", [5, 1000])
def test_a_buffer_writes_candidates_to_files_and_resumes(
    run_command, job: tuple[str, ...], tmp_path: Path, buffer: int
):
    """A buffer with room for all queries gives the weights of a training in memory, a smaller one others."""
    settings = (*job, "features=scores_match", "trainer.max_epochs=3", f"paths.cache={tmp_path / 'cache'}")
    run_command("train.py", *settings, f"hydra.run.dir={tmp_path / 'memory'}")
    assert not list((tmp_path / "cache" / "candidates").rglob("table.json"))
    settings = (*settings, f"batches.buffer={buffer}")
    run_command("train.py", *settings, f"hydra.run.dir={tmp_path / 'whole'}")
    assert len(list((tmp_path / "cache" / "candidates").rglob("table.json"))) == 1
    stop = "+callbacks.stop={_target_: tests.support.stopping.SignalInEpoch, epoch: 1}"
    run_command("train.py", *settings, stop, f"hydra.run.dir={tmp_path / 'mine'}", status=143)
    run_command("train.py", *settings, f"ckpt_path={tmp_path / 'mine'}")
    memory, whole, resumed = (tmp_path / name / "gatv2" for name in ("memory", "whole", "mine"))
    assert changed_weights(whole, resumed, "last") == []
    assert (changed_weights(memory, whole, "last") == []) == (buffer == 1000)
    refused = run_command(
        "train.py", *settings, "batches.buffer=7", f"ckpt_path={tmp_path / 'mine'}",
        f"hydra.run.dir={tmp_path / 'other'}", status=1,
    )  # fmt: skip
    assert f"which has buffer={buffer}, got 7" in refused.stderr


def test_callbacks_trec_run_writes_the_test_split(run_command, job: tuple[str, ...], tmp_path: Path):
    run_command("train.py", *job, "trainer.max_epochs=1", "callbacks=trec_run", f"hydra.run.dir={tmp_path / 'mine'}")
    lines = (tmp_path / "mine" / "gatv2" / "predictions.trec").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {f"q-town{number}" for number in range(16, 20)}
    assert {line.split()[-1] for line in lines} == {"gatv2"}
