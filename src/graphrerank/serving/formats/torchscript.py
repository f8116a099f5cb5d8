"""TorchScript, the contracted format; it scripts Python's branches, so it runs the eager kernels."""

import copy
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from graphrerank.serving.formats.exportable import Exportable


def write(exportable: Exportable, path: Path) -> None:
    """Script a model; a calibration becomes its submodule ``calibration``."""
    model = copy.deepcopy(exportable.model)
    if exportable.calibration is not None:
        model.add_module("calibration", exportable.calibration)
    with tempfile.TemporaryDirectory() as work:
        script = Path(work) / path.name
        with _without_deprecation():
            torch.jit.save(torch.jit.script(model), str(script))
        _copy_without_debug_records(script, path)


def load(path: Path) -> nn.Module:
    """Load a scripted model; a ValueError if this torch cannot."""
    try:
        with _without_deprecation():
            module: nn.Module = torch.jit.load(str(path), "cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(f"{path}: not TorchScript that this torch can load: {error}") from error
    return module


def _copy_without_debug_records(source: Path, target: Path) -> None:
    """Copy a TorchScript archive without its debug records, which name source files of the exporting machine."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:  # stored, as torch's reader needs
        for record in old.infolist():
            if not record.filename.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(record.filename), old.read(record))


@contextmanager
def _without_deprecation() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")  # TorchScript is our contract
        yield
