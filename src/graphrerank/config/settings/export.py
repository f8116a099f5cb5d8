"""Settings of ``graphrerank export``."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(kw_only=True)
class ExportSettings:
    """Settings of an export of a checkpoint to an artifact.

    Attributes:
        checkpoint: Checkpoint to export: a run folder, a .ckpt file, the name of a checkpoint that ships with the
            package, or owner/name on the hub.
        artifact: Folder to write: new, empty, or an older artifact, which is replaced. null is runs/export/<time>.
        revision: Branch, tag or commit of owner/name on the Hugging Face hub. null is the newest.
        formats: Formats to write: a list of torchscript, onnx and aot (machine code for this kind of processor,
            compiled in minutes). null writes every format that can be written here for the model.
    """

    checkpoint: str
    artifact: str | None = None
    revision: str | None = None
    formats: Sequence[str] | None = ("torchscript",)
