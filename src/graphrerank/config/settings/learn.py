"""Settings of ``graphrerank learn``."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class LearnSettings(TrackedSettings):
    """Settings of learning from a log of what was shown and clicked.

    Attributes:
        log: Log of what was shown and clicked: a file of JSON lines, or a folder of such files.
        start: Checkpoint that ranked: a run folder, a .ckpt file, an artifact, or the name of a checkpoint that ships
            with the package.
        artifact: Folder to write the artifact to if the update is accepted. null is artifact in the run folder.
        drafted: Number of questions to draft from the corpus, on which the update must not be worse. 0 drafts none.
        margin: Largest mean loss of nDCG@10 on drafted and on judged questions with which the update is accepted.
        level: Significance level of the one-sided test on later sessions, in (0, 1).
        any_corpus: Whether lists that name another corpus count too.
        allow_anonymous: Whether sessions without an authenticated user may suffice where fewer than 30 judged questions
            guard the result. One client can send any number of them, so set this to true only if nobody else could
            write to the log.
        formats: Formats of the artifact: a list of torchscript, onnx and aot.
    """

    log: str
    start: str = "base"
    artifact: str | None = None
    drafted: int = 200
    margin: float = 0.01
    level: float = 0.025
    any_corpus: bool = False
    allow_anonymous: bool = False
    formats: Sequence[str] = ("torchscript",)
    system: str = "learn"
