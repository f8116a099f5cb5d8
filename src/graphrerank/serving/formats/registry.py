"""The formats by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from graphrerank.serving.formats import aot, onnx, torchscript
from graphrerank.serving.formats.exportable import Exportable


@dataclass(frozen=True)
class Format:
    """The functions of a format."""

    file: str  # name of its file in an artifact
    write: Callable[[Exportable, Path], None]
    load: Callable[[Path], nn.Module]  # a module that scores, on the CPU, in evaluation mode


FORMATS = {
    "torchscript": Format("model.pt", torchscript.write, torchscript.load),
    "onnx": Format("model.onnx", onnx.write, onnx.load),
    "aot": Format("model.aot.pt2", aot.write, aot.load),
}


def find_formats(names: Sequence[str]) -> dict[str, Format]:
    """Return unique formats by name; a ValueError if there is none, or one is unknown."""
    unknown = [name for name in names if name not in FORMATS]
    if unknown or not names:
        raise ValueError(f"`formats` must be one or more of {list(FORMATS)}, got {list(names)}")
    return {name: FORMATS[name] for name in FORMATS if name in names}
