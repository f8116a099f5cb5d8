"""Settings of ``graphrerank judge DATA``."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.config.settings.base import RunSettings


@dataclass(kw_only=True)
class JudgeSettings(RunSettings):
    """Settings of the page on which questions about a corpus are judged.

    Attributes:
        dataset: Data set folder, to which the questions and judgements are written.
        checkpoint: Checkpoint whose top passages are shown next to those of the retriever, PPR and other systems
            without training: a run folder, a .ckpt file, an exported artifact, or the name of a checkpoint that ships
            with the package.
        models: Your own model classes (PACKAGE.CLASS) that checkpoints may load. Only needed for classes that no entry
            point registers.
        split: Split to which the judgements are written, in qrels/SPLIT.tsv.
        depth: Number of top passages to show of each system.
        port: Port of the page, which only this machine can open.
        browser: Whether to open the page in a browser, if there is a screen.
    """

    dataset: str
    checkpoint: str = "base"
    models: Sequence[str] = ()
    split: str = "test"
    depth: int = 10
    port: int = 8001
    browser: bool = True
