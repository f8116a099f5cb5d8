"""The formats of an exported model, each a file that is written by one function and read by another.

All but ``torchscript`` are made of one exported program. ``torchscript``, ``pt2`` and ``aot`` hold programs: they are
loaded from a folder that the operator named, and by no other way.
"""

from graphrerank.serving.formats.exportable import Exportable, Runner
from graphrerank.serving.formats.registry import FORMATS, Format, find_formats

__all__ = ["FORMATS", "Exportable", "Format", "Runner", "find_formats"]
