"""The formats of an exported model, each a file that one function writes and another reads.

All but ``torchscript`` are derived from one exported program. ``torchscript`` and ``aot`` contain programs:
they are loaded only from a folder that the operator named.
"""

from graphrerank.serving.formats.exportable import Exportable, Runner
from graphrerank.serving.formats.registry import FORMATS, Format, find_formats

__all__ = ["FORMATS", "Exportable", "Format", "Runner", "find_formats"]
