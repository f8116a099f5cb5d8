"""Compare 1, 2 and 4 workers of a Ray cluster in writing the shards of a corpus folder, next to plain processes.

python benchmarks/ray_preparation.py DATA/2wikimultihopqa --folder DIR --size 60000
python benchmarks/ray_preparation.py DATA/2wikimultihopqa --folder DIR --size 600 --encoder minilm

Passages are recombined as in ``corpus_scale.py``, encoded, and written in 12 shards. Independent processes without Ray
write the same shards, to show what the processors of the machine allow. A time is wall-clock time from the start of the
first shard to the end of the last one, without starting the workers and loading the encoder. The shards of all runs
must be equal, byte for byte. Ratios are medians over several turns. Wall-clock times need a quiet machine. The ratio of
CPU times shows on any machine how much work the workers do in addition.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from corpus_scale import HashingEncoder, Numbered, Recombined, read_sentences
from hydra.utils import instantiate
from omegaconf import OmegaConf

from graphrerank.core import Encoder
from graphrerank.core.adapters import as_encoder
from graphrerank.corpus_store.preparation import PartTask, PartWriter
from graphrerank.data.encoder import SentenceTransformerEncoder
from graphrerank.task_engines.base import LOCAL, TaskEngine
from graphrerank.task_engines.ray_engine import RayEngine

NUM_PARTS = 12
WORKERS = (1, 2, 4)
MODEL = Path(__file__).resolve().parent.parent / "conf" / "encoder" / "shared" / "minilm_folder.yaml"


class Timing(NamedTuple):
    """Time of writing one or several shards.

    Attributes:
        start: Time of the start, in seconds.
        end: Time of the end, in seconds.
        cpu: CPU time of the process, in seconds.
    """

    start: float
    end: float
    cpu: float


class TimedWriter:
    """Function that writes a shard and returns its timing.

    Args:
        writer: Function that writes a shard.
    """

    def __init__(self, writer: PartWriter) -> None:
        self.writer = writer
        self.is_ready = False

    def __call__(self, task: PartTask) -> Timing:
        """Write a shard."""
        if not self.is_ready:
            torch.set_num_threads(1)
            if self.writer.encoder is not None:
                self.writer.encoder.encode(["loads the model"])
            self.is_ready = True
        start, cpu = time.time(), time.process_time()
        self.writer(task)
        return Timing(start, time.time(), time.process_time() - cpu)


def joined(timings: Sequence[Timing]) -> Timing:
    """Return the timing of all shards together: from the first start to the last end, and the sum of CPU times."""
    starts, ends, cpu = zip(*timings, strict=True)
    return Timing(min(starts), max(ends), sum(cpu))


def make_encoder(name: str) -> Encoder:
    """Make the encoder of a name."""
    if name == "hashing":
        return as_encoder(HashingEncoder())
    return SentenceTransformerEncoder(instantiate(OmegaConf.load(MODEL)), device="cpu")


def digest(folder: Path) -> str:
    """Return the hash of all shards of a folder."""
    content = [path.name.encode() + path.read_bytes() for path in sorted(folder.glob("*.safetensors"))]
    return hashlib.sha256(b"".join(content)).hexdigest()


def write(args: argparse.Namespace, engine: TaskEngine, folder: Path, parts: Sequence[int]) -> Timing:
    """Write some of the shards, and return their timing."""
    texts, ids = Recombined(read_sentences(args.source), args.size), Numbered(args.size)
    step = -(-args.size // NUM_PARTS)
    writer = PartWriter(make_encoder(args.encoder), torch.float16)
    tasks = (
        PartTask(folder / f"{part:06d}.safetensors", ids[rows], texts[rows])
        for part in parts
        for rows in [slice(part * step, (part + 1) * step)]
    )
    return joined(list(engine.map(TimedWriter(writer), tasks)))


def time_ray(args: argparse.Namespace, folder: Path, workers: int) -> Timing:
    """Return the timing of the workers of a new Ray cluster."""
    with RayEngine(workers=workers) as engine:
        return write(args, engine, folder, range(NUM_PARTS))


def time_processes(args: argparse.Namespace, folder: Path, workers: int) -> Timing:
    """Return the timing of independent processes, each of which writes the same number of shards."""
    command = [sys.executable, __file__, str(args.source), "--folder", str(folder), "--size", str(args.size)]
    command += ["--encoder", args.encoder, "--step"]
    started = [
        subprocess.Popen([*command, str(first), str(workers)], stdout=subprocess.PIPE, text=True)
        for first in range(workers)
    ]
    timings = [Timing(*map(float, process.communicate()[0].split())) for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("a process failed")
    return joined(timings)


def main() -> None:
    """Measure all numbers of workers in turns, and print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="data set folder whose sentences are recombined")
    parser.add_argument("--folder", type=Path, required=True, help="folder in which the shards are written")
    parser.add_argument("--size", type=int, default=60_000, help="number of passages")
    parser.add_argument("--encoder", choices=["hashing", "minilm"], default="hashing", help="encoder of the passages")
    parser.add_argument("--turns", type=int, default=3, help="number of measurements of each number of workers")
    parser.add_argument("--step", type=int, nargs=2, help="first shard and step to the next one, in this process")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.step:
        print(*write(args, LOCAL, args.folder.absolute(), range(args.step[0], NUM_PARTS, args.step[1])))
        return
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    speed: dict[tuple[str, int], list[float]] = {}
    work: dict[tuple[str, int], list[float]] = {}
    digests = set()
    for turn in range(args.turns):
        for name, measure in (("Ray workers", time_ray), ("processes", time_processes)):
            timings = {}
            for workers in WORKERS:
                with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                    timings[workers] = timing = measure(args, Path(folder).absolute(), workers)
                    digests.add(digest(Path(folder)))
                seconds = timing.end - timing.start
                speed.setdefault((name, workers), []).append((timings[1].end - timings[1].start) / seconds)
                work.setdefault((name, workers), []).append(timing.cpu / timings[1].cpu)
                print(f"turn {turn}, {workers} {name}: {seconds:.1f} s, {timing.cpu:.1f} s of CPU", flush=True)
    if len(digests) != 1:
        raise SystemExit("the shards differ")
    for (name, workers), ratios in speed.items():
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        cpu = median(work[name, workers])
        print(f"{workers} {name}: {median(ratios):.2f} times as fast as one ({each}), {cpu:.2f} times the CPU time")
    print("all shards are equal, byte for byte")


if __name__ == "__main__":
    main()
