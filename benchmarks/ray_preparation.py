"""Two workers of a Ray cluster against one in writing the parts of a corpus, beside two independent processes.

python benchmarks/ray_preparation.py DATA/2wikimultihopqa --folder DIR --size 60000
python benchmarks/ray_preparation.py DATA/2wikimultihopqa --folder DIR --size 600 --encoder minilm

Passages are recombined as in `corpus_scale.py`, encoded, and written in 12 parts. Two independent processes, without
Ray, write half of the parts each: what this machine's processors allow. A time is that of the clock, from the start of
the first part to the end of the last; starting workers and loading the encoder take no part in it. Ratios are medians.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from corpus_scale import HashingEncoder, Numbered, Recombined, read_sentences
from hydra.utils import instantiate
from omegaconf import OmegaConf

from graphrerank.data.corpus_folder.preparation import PartWriter
from graphrerank.data.encoder import Encoder
from graphrerank.data.engines.local import LOCAL, Block, Engine
from graphrerank.data.engines.ray_data import RayEngine

NUM_PARTS = 12
TURNS = 3
MODEL = Path(__file__).resolve().parent.parent / "conf" / "encoder" / "shared" / "minilm_folder.yaml"


class Timed:
    """Writes a part, and adds when it started and ended, in seconds."""

    def __init__(self, work: PartWriter) -> None:
        self.work = work
        self.is_ready = False

    def __call__(self, block: Block) -> Block:
        """Write a part."""
        if not self.is_ready:
            torch.set_num_threads(1)
            if self.work.encoder is not None:
                self.work.encoder.encode(["loads the model"])
            self.is_ready = True
        start = time.time()
        done = self.work(block)
        return {**done, "start": np.array([start]), "end": np.array([time.time()])}


def make_encoder(name: str) -> Encoder:
    """Make the encoder of a name."""
    if name == "hashing":
        return HashingEncoder()
    from graphrerank.data.encoder import SentenceTransformerEncoder

    return SentenceTransformerEncoder(instantiate(OmegaConf.load(MODEL)), device="cpu")


def write(args: argparse.Namespace, engine: Engine, parts: range) -> tuple[float, float]:
    """Write some of the parts; return when the first started and the last ended."""
    texts = Recombined(read_sentences(args.source), args.size)
    step = -(-args.size // NUM_PARTS)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        writer = PartWriter(Path(folder).resolve(), encoder=make_encoder(args.encoder), dtype=torch.float16)

        def blocks() -> Iterator[Block]:
            for part in parts:
                held = slice(part * step, (part + 1) * step)
                yield {"path": [f"{part}.safetensors"], "ids": Numbered(args.size)[held], "texts": texts[held]}

        done = list(engine.map(Timed(writer), blocks()))
        assert len(list(Path(folder).glob("*.safetensors"))) == len(parts)
    return min(float(row["start"][0]) for row in done), max(float(row["end"][0]) for row in done)


def by_ray(args: argparse.Namespace, workers: int) -> float:
    """Measure workers of a Ray cluster, which is started and ended."""
    engine = RayEngine(workers=workers)
    start, end = write(args, engine, range(NUM_PARTS))
    engine.close()
    return end - start


def by_processes(args: argparse.Namespace, count: int) -> float:
    """Measure processes that know nothing of each other."""
    command = [sys.executable, __file__, str(args.source), "--folder", str(args.folder), "--size", str(args.size)]
    command += ["--encoder", args.encoder, "--step"]
    started = [
        subprocess.Popen([*command, str(first), str(count)], stdout=subprocess.PIPE, text=True)
        for first in range(count)
    ]
    spans = [process.communicate()[0].split() for process in started]
    assert not any(process.returncode for process in started)
    return max(float(end) for _, end in spans) - min(float(start) for start, _ in spans)


def main() -> None:
    """Measure all four in turns, and print speeds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a data set folder, whose sentences are recombined")
    parser.add_argument("--folder", type=Path, required=True, help="where parts are written")
    parser.add_argument("--size", type=int, default=60_000)
    parser.add_argument("--encoder", choices=["hashing", "minilm"], default="hashing")
    parser.add_argument("--step", type=int, nargs=2, help="the first part and the step to the next, in this process")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.step:
        print(*write(args, LOCAL, range(args.step[0], NUM_PARTS, args.step[1])))
        return
    times: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for name, measure in (("Ray workers", by_ray), ("processes", by_processes)):
            seconds = [measure(args, count) for count in (1, 2)]
            times.setdefault(name, []).append(seconds[0] / seconds[1])
            print(f"turn {turn}: 1 and 2 {name}: {seconds[0]:.1f} s and {seconds[1]:.1f} s", flush=True)
    for name, ratios in times.items():
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"two {name} write {median(ratios):.2f} times as fast as one ({each})")


if __name__ == "__main__":
    main()
