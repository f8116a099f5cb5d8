"""Ahead-of-time compilation: AOTInductor's machine code for this kind of processor, only on request."""

import os
import shutil
import warnings
import zipfile
from pathlib import Path

import torch
from torch import nn

from graphrerank.serving.formats.exportable import Exportable, Runner, all_sizes_alike

ONE_THREAD = {"cpp.threads": 1}  # else it uses as many threads as the export had, whatever the service sets
COMPILERS = ("g++", "clang++", "cl")


def write(exportable: Exportable, path: Path) -> None:
    """Compile the exported program; a ValueError without a C++ compiler, or if it cannot be traced or compiled."""
    if not any(map(shutil.which, COMPILERS)):
        raise ValueError(f"formats=[aot] needs a C++ compiler, one of {list(COMPILERS)}, found none")
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # heavy: not for loading

    program = exportable.program
    program.example_inputs = exportable.example, {}
    try:
        with torch.no_grad(), all_sizes_alike(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # raised by torch about itself
            torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=ONE_THREAD)
    except Exception as error:  # including those of the C++ compiler
        raise ValueError(f"aot cannot compile this model: {error}") from error
    _remove_folders(path, [cache_dir(), str(Path(torch.__file__).parents[1])])


def _remove_folders(path: Path, folders: list[str]) -> None:
    """Empty a package's C++ sources, which contain the compiler's command, and mask folders of this machine.

    Machine code contains folders in assertions and debug records; masking them by as many dots keeps every offset.
    """
    with zipfile.ZipFile(path) as package:
        entries = [(entry, package.read(entry)) for entry in package.infolist()]
    with zipfile.ZipFile(path, "w") as package:
        for entry, content in entries:
            if entry.filename.endswith(".cpp"):
                content = b""
            for folder in map(os.fsencode, folders):
                content = content.replace(folder, b"/" + b"." * (len(folder) - 1))
            package.writestr(entry, content)


def load(path: Path) -> nn.Module:
    """Load machine code; a ValueError if it is not for this machine."""
    try:
        return Runner(torch._inductor.aoti_load_package(str(path), run_single_threaded=False), "aot").eval()
    except RuntimeError as error:
        raise ValueError(f"{path}: not machine code that this torch can load: {error}") from error
