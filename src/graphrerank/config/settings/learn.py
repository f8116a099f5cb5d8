"""Settings of ``graphrerank learn``."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class LearnSettings(TrackedSettings):
    """Settings of learning from a log of shown and clicked results.

    Attributes:
        log: Log of shown and clicked results: a file of JSON lines, or a folder of such files.
        start: Checkpoint that produced the logged rankings: a run folder, a .ckpt file, an artifact, or the name of a
            checkpoint that ships with the package.
        artifact: Folder to write the artifact to if the update is accepted. null writes to the folder artifact in the
            run folder.
        drafted: Number of questions to draft from the corpus. The update must not be worse on them. 0 disables this
            check.
        margin: Largest acceptable loss of mean nDCG@10 on drafted and on judged questions.
        level: Significance level of the one-sided test on later sessions, in (0, 1).
        any_corpus: Whether to use logged rankings of other corpora, too.
        allow_anonymous: Whether to learn from sessions without an authenticated user if there are fewer than 30 judged
            questions. A single client can create any number of such sessions, so enable this only if no untrusted
            client could write to the log.
        formats: Formats of the artifact, a list of: torchscript, onnx, aot.
        system: Name of the run in the logger.
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
