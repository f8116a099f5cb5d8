"""Ray Data as an engine: workers read blocks from a folder that all machines see, and write their results there.

Through Ray go the numbers of blocks alone, so that a corpus of any size needs no object store.
"""

import logging
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from graphrerank.checks import check_counts
from graphrerank.data.engines.local import Block, Work
from graphrerank.extras import require_extra
from graphrerank.files import save_tensors, write_bytes
from graphrerank.graphs import PackedStrings

TRIES = 4  # of a block whose workers die
INPUT, RESULT, TRIED = "block", "result", "tried"  # a block's files
OFFSETS, CONTENT = ".offsets", ".content"  # of a list of strings


class RayEngine:
    """Works on blocks by actors of a Ray cluster; a block whose worker dies goes to another worker, and no other one.

    Args:
        folder: Folder for blocks and results on their way, which all machines must see; the command's own folder too.
        workers: Number of actors.
        address: Of a running cluster, ``auto`` for this machine's; None starts one here, which :meth:`close` ends.
        remote: Options of each actor, such as ``{num_cpus: 4, num_gpus: 1}``; one processor when None.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        workers: int = 2,
        address: str | None = None,
        remote: Mapping[str, Any] | None = None,
    ) -> None:
        check_counts(workers=workers)
        self.folder = Path(folder)
        self.workers = workers
        self.address = address
        self.remote = {"num_cpus": 1} if remote is None else {str(key): option for key, option in remote.items()}
        self._started = False

    def map(self, work: Work, blocks: Iterable[Block]) -> Iterator[Block]:
        """Apply work to each block and yield the results in the blocks' order.

        A ValueError says that Ray Data is not installed, no cluster is reached, the work raised it, or workers died.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="blocks-", dir=self.folder) as name:
            spool, count = Path(name).resolve(), 0
            for count, block in enumerate(blocks, start=1):
                write_block(_path(spool, count, INPUT), block)
            for number, error in self._errors(work, spool, count):
                if error:
                    raise ValueError(error)
                yield read_block(_path(spool, number, RESULT))
                for kind in (INPUT, RESULT, TRIED):
                    _path(spool, number, kind).unlink()

    def close(self) -> None:
        """End the cluster, if this engine started it."""
        if self._started:
            import ray

            ray.shutdown()
            self._started = False

    def _errors(self, work: Work, spool: Path, count: int) -> Iterator[tuple[int, str]]:
        """Work on the blocks 1 to ``count``; yield the number of each, in order, and what :func:`work_on` returns."""
        if count <= 1:  # no worker is started for one block
            yield from ((number, work_on(work, spool, number)) for number in range(1, count + 1))
            return
        ray = self._connect()
        place = (str(Path.cwd()), sys.path)
        numbers = ray.data.from_items([{"number": number} for number in range(1, count + 1)], override_num_blocks=count)
        done = numbers.map_batches(
            _Worker,
            fn_constructor_args=([ray.put(work)], str(spool), place),  # in a list: a reference stays one
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(self.workers, count)),
            **self.remote,
        )
        done.context.execution_options.preserve_order = True
        for row in done.iter_rows():
            yield int(row["number"]), str(row["error"])

    def _connect(self) -> Any:
        """Start a cluster or connect to one, unless this process did before; return the module."""
        require_extra("ray", "engine=ray")
        import ray
        import ray.data

        if not ray.is_initialized():
            processors = math.ceil(self.workers * self.remote.get("num_cpus", 1))
            own = {} if self.address else {"num_cpus": max(1, processors), "include_dashboard": False}
            try:
                ray.init(address=self.address or "local", log_to_driver=False, logging_level="WARNING", **own)
            except Exception as error:  # Ray raises it bare where a node does not start in time
                raise ValueError(
                    f"engine=ray: no cluster of {self.address or 'this machine'} could be reached ({error}); on a busy "
                    "machine start one with `ray start --head`, and take engine.address=auto"
                ) from error
            self._started = True
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        return ray


class _Worker:
    """The actor: it holds the work, and does a block at each call."""

    def __init__(self, broadcast: list[Any], spool: str, place: tuple[str, list[str]]) -> None:
        import ray

        folder, sys.path[:] = place
        os.chdir(folder)
        self.work: Work = ray.get(broadcast[0])
        self.spool = Path(spool)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        number = int(batch["number"][0])
        return {"number": np.array([number]), "error": np.array([work_on(self.work, self.spool, number)])}


def work_on(work: Work, spool: Path, number: int) -> str:
    """Read a block from its file and write the result; return the words of a ValueError, or nothing."""
    try:
        count_try(_path(spool, number, TRIED))
        write_block(_path(spool, number, RESULT), work(read_block(_path(spool, number, INPUT))))
    except ValueError as error:
        return str(error)
    return ""


def count_try(path: Path) -> None:
    """Refuse a block at which workers died again and again; Ray itself would never stop."""
    tries = path.stat().st_size + 1 if path.is_file() else 1
    write_bytes(path, b"." * tries)
    if tries > TRIES:
        raise ValueError(f"engine=ray: {TRIES} workers died at block {path.stem}, for want of memory perhaps")


def write_block(path: Path, block: Block) -> None:
    """Write a block to a file, atomically."""
    arrays = {}
    for name, column in block.items():
        if isinstance(column, np.ndarray):
            arrays[name] = np.ascontiguousarray(column)
        else:
            packed = PackedStrings.of(column)
            arrays |= {f"{name}{OFFSETS}": packed.offsets, f"{name}{CONTENT}": packed.content}
    save_tensors(path, {name: torch.from_numpy(array) for name, array in arrays.items()})


def read_block(path: Path) -> Block:
    """Read a block that :func:`write_block` wrote."""
    arrays = load_file(path)
    block: dict[str, Any] = {}
    for name, array in arrays.items():
        if name.endswith(OFFSETS):
            stem = name.removesuffix(OFFSETS)
            block[stem] = PackedStrings(array, arrays[f"{stem}{CONTENT}"])[:]
        elif not name.endswith(CONTENT):
            block[name] = array
    return block


def _path(spool: Path, number: int, kind: str) -> Path:
    return spool / f"{number:06d}.{kind}"
