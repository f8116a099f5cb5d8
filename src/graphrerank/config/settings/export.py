"""Settings of ``graphrerank export``."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(kw_only=True)
class ExportSettings:
    """Settings of the export of a checkpoint to an artifact.

    Attributes:
        checkpoint: Checkpoint to export: a run folder, a .ckpt file, the name of a checkpoint that ships with the
            package, or owner/name on the Hugging Face hub.
        artifact: Folder to write. An existing folder must be empty or contain an artifact, which is replaced. null
            writes to runs/export/<time>.
        revision: Branch, tag or commit on the Hugging Face hub. null uses the latest commit of the main branch.
        formats: Formats to write, a list of: torchscript, onnx, aot (machine code for this type of processor, which
            takes minutes to compile). null writes every format that is available on this machine for the model.
    """

    checkpoint: str
    artifact: str | None = None
    revision: str | None = None
    formats: Sequence[str] | None = ("torchscript",)
