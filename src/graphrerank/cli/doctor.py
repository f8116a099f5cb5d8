"""``graphrerank doctor``: show the installation, the device and the cache, or diagnose a data set."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING

from graphrerank.installation.extras import EXTRAS, missing_modules
from graphrerank.utils.caching import cache_folder

if TYPE_CHECKING:
    from omegaconf import DictConfig

CORE = ("torch", "numpy", "safetensors", "bm25s", "PyStemmer", "pyahocorasick")
WIDTH = 80  # maximum length of a printed line, in characters


def main(arguments: Sequence[str]) -> int:
    """Print the installed versions and extras, the device and the cache.

    Args:
        arguments: Command-line arguments. Ignored.

    Returns:
        Exit status 0.
    """
    print(examination(os.environ))
    return 0


def run(cfg: "DictConfig") -> Path | None:
    """Measure whether the graph of a data set improves reranking (:func:`~graphrerank.cli.diagnose.diagnose`).

    The settings are those of ``conf/doctor.yaml``.

    Args:
        cfg: Settings of ``conf/doctor.yaml``.

    Returns:
        Run folder, or None in a process that is not the first.
    """
    from graphrerank.cli.diagnose import diagnose
    from graphrerank.cli.jobs import run_job

    return run_job(cfg, diagnose)


def examination(environment: Mapping[str, str]) -> str:
    """Return a description of the installation, the device and the cache.

    Args:
        environment: Environment variables.

    Returns:
        Lines of text.
    """
    import torch

    device = "device: cpu"
    if torch.cuda.is_available():
        device = f"device: cuda, {torch.cuda.get_device_name()} ({torch.cuda.device_count()} in all)"
    machine = f"{platform.system()} {platform.machine()}"
    versions = [
        f"graphrerank {version('graphrerank')}, Python {platform.python_version()}, {machine}",
        ", ".join(f"{name} {version(name)}" for name in CORE),
        f"{device}, {torch.get_num_threads()} threads",
    ]
    return "\n".join([*versions, "", *_extras(), "", *_cache(cache_folder(environment))])


def _extras() -> list[str]:
    lines, width = ["extras (pip install 'graphrerank[NAME]', or [all]):"], max(map(len, EXTRAS))
    margin = " " * (width + 13)
    for name, extra in EXTRAS.items():
        missing = missing_modules(name)
        state = "missing" if len(missing) == len(extra.modules) else "partly"
        lines.append(f"  {name:{width}}  {state if missing else 'yes':7}  {extra.purpose}")
        if missing and state == "partly":
            without = f"without {', '.join(missing)}"
            lines += wrap(without, WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
    return lines


def _cache(folder: Path) -> list[str]:
    if not folder.is_dir():
        return [f"cache: {folder}, empty (set GRAPHRERANK_CACHE=DIR to move it)"]
    parts = {
        path.name: sum(
            file.lstat().st_size for file in (path, *path.rglob("*")) if not file.is_dir() or file.is_symlink()
        )
        for path in sorted(folder.iterdir())
    }
    lines = [f"cache: {folder}, {sum(parts.values()) / 1e6:,.1f} MB (set GRAPHRERANK_CACHE=DIR to move it)"]
    lines += [f"  {name}: {size / 1e6:,.1f} MB" for name, size in parts.items()]
    return [*lines, f"  to clear it: rm -r {quote(str(folder))} (its content is recomputed when needed)"]
