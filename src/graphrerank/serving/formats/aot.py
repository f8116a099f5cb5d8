"""Ahead-of-time compiled: AOTInductor's machine code for this kind of processor, asked for by name."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphrerank.serving.formats.exportable import Exportable, Runner, all_sizes_alike

COMPILERS = ("g++", "clang++", "cl")


def write(exportable: Exportable, path: Path) -> None:
    """Compile the exported program.

    Raises:
        ValueError: If there is no C++ compiler, or the program cannot be traced or compiled.
    """
    if not any(map(shutil.which, COMPILERS)):
        raise ValueError(f"formats=[aot] needs a C++ compiler, one of {list(COMPILERS)}, found none")
    program = exportable.program
    program.example_inputs = exportable.example, {}
    try:
        with torch.no_grad(), all_sizes_alike(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of torch to itself
            torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    except Exception as error:  # also what the C++ compiler says
        raise ValueError(f"aot cannot compile this model: {error}") from error


def load(path: Path, manifest: dict[str, Any]) -> nn.Module:
    """Load machine code.

    Raises:
        ValueError: If it is none for this machine.
    """
    try:
        return Runner(torch._inductor.aoti_load_package(str(path), run_single_threaded=False), "aot").eval()
    except RuntimeError as error:
        raise ValueError(f"{path}: not machine code that this torch can load: {error}") from error
