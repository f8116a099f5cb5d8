"""``graphrerank learn``: update a checkpoint from logged clicks, and accept the update only if it ranks better."""

from pathlib import Path

from omegaconf import DictConfig

from graphrerank.cli.command import CommandContext
from graphrerank.cli.jobs import run_job
from graphrerank.feedback.learn import learn
from graphrerank.utils.files import write_json, write_text


def run(cfg: DictConfig) -> Path | None:
    """Run the command with the settings of ``conf/learn.yaml``.

    Args:
        cfg: Settings of ``conf/learn.yaml``.

    Returns:
        Run folder, or None in a process that is not the first.
    """
    return run_job(cfg, _learn)


def _learn(command: CommandContext) -> Path:
    """Learn from a log, print the result, write the artifact if the update is accepted, and return the run folder."""
    cfg = command.cfg
    command.tracking.reads_checkpoint(cfg.start)
    artifact = Path(cfg.artifact or command.run_dir / "artifact")
    learned = learn(
        cfg.log,
        command.chosen("data"),
        start=cfg.start,
        artifact=artifact,
        formats=list(cfg.formats),
        retriever=command.chosen("retriever"),
        encoder=command.chosen("encoder"),
        drafted=cfg.drafted,
        margin=cfg.margin,
        level=cfg.level,
        any_corpus=cfg.any_corpus,
        allow_anonymous=cfg.allow_anonymous,
        seed=cfg.seed,
        parts=command.parts,
    )
    if learned.accepted and cfg.artifact is not None:
        command.tracking.writes_checkpoint(artifact)
    print(learned, *([f"artifact: {artifact}"] if learned.accepted else []), sep="\n")
    write_text(command.run_dir / "report.md", f"```\n{learned}\n```\n")
    left_out = {} if learned.log is None else dict(learned.log.left_out)
    numbers = {"accepted": float(learned.accepted), "left_out": left_out, "tests": learned.tests}
    write_json(command.run_dir / "metrics.json", numbers)
    return command.run_dir
