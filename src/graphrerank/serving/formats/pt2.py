"""``torch.export``'s file: a graph of ATen operators that any later torch can run, compile or convert."""

from pathlib import Path

import torch
from torch import nn

from graphrerank.serving.formats.exportable import Exportable, Runner
from graphrerank.serving.formats.pt2_guard import check_pt2


def write(exportable: Exportable, path: Path) -> None:
    """Write the exported program.

    Raises:
        ValueError: If the model cannot be traced, or :func:`load` would refuse the file.
    """
    program = exportable.program
    program.example_inputs = None  # they would be pickled
    torch.export.save(program, path)
    check_pt2(path)


def load(path: Path) -> nn.Module:
    """Load an exported program after a check that it is a graph of operators and numbers only.

    Raises:
        ValueError: If it is none, or could run other code (:func:`check_pt2`).
    """
    check_pt2(path)
    try:
        module = torch.export.load(path).module(check_guards=False)  # the parity gate holds at sizes 0 and 1 too
    except Exception as error:  # a damaged archive raises almost anything
        raise ValueError(f"{path}: not an exported program that this torch can load: {error}") from error
    return Runner(module.forward, "pt2").eval()
