"""Compare the memory of training candidates that are loaded with those in files (``batches.buffer``).

``python benchmarks/buffered_training.py DATA/2wikimultihopqa --queries 10000 20000 --buffer 2048`` draws questions from
the sentences of a corpus. Each measurement runs in a separate process, which prepares the candidates (the best 100 by
BM25, with the text-match features) and builds all batches of one epoch. The table shows the additional memory after the
data set was loaded, relative to the default with the first number of queries, and the CPU time relative to the default.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from graphrerank.data.candidate_table import prepare_on_disk
from graphrerank.data.candidates import PreparedDataset, prepare
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.training.training_data import TextMatchFeatures

RETRIEVER = partial(BM25Retriever, top_k=100)
FEATURES = {"text_match": True, "num_words": 24}
NUM_VALIDATION = 100
NUM_WORDS = 12  # number of words of a drawn question


def draw_questions(source: Path, num_queries: int) -> Dataset:
    """Draw questions for passages of a data set folder. The last hundred are for validation."""
    graph = Dataset.from_folder(source, mentions=True).graph
    generator = np.random.default_rng(0)
    nodes = generator.integers(graph.num_nodes, size=num_queries + NUM_VALIDATION)
    texts = [" ".join(generator.permutation(graph.texts[int(node)].split())[:NUM_WORDS]) for node in nodes]
    judged = torch.from_numpy(nodes)
    splits = {
        name: Qrels(torch.arange(start, stop), judged[start:stop], torch.ones(stop - start))
        for name, start, stop in (("train", 0, num_queries), ("val", num_queries, len(nodes)))
    }
    return Dataset("drawn", graph, [f"q{number}" for number in range(len(nodes))], texts, splits)


def prepare_data(dataset: Dataset, cache: Path, buffer: int | None) -> PreparedDataset:
    """Prepare the candidates in memory, or in files if there is a buffer."""
    add_features = TextMatchFeatures(FEATURES)
    if buffer is None:
        return add_features(prepare(dataset, encoder=None, build_retriever=RETRIEVER, cache=cache))
    return prepare_on_disk(dataset, encoder=None, build_retriever=RETRIEVER, cache=cache, add_features=add_features)


def measure(source: Path, num_queries: int, buffer: int | None) -> dict[str, float]:
    """Prepare the candidates, and build the batches of one epoch."""
    dataset = draw_questions(source, num_queries)
    before = peak_mib()
    with tempfile.TemporaryDirectory() as cache:
        start = time.process_time()
        prepared = prepare_data(dataset, Path(cache), buffer)
        after_preparation = time.process_time()
        batches = CandidateDataModule(prepared, buffer=buffer).train_dataloader()
        num_served = sum(graphs.num_graphs for graphs in batches)
        end = time.process_time()
        size = sum(path.stat().st_size for path in Path(cache).rglob("*") if path.is_file()) / 2**20
    return {
        "before": before,
        "added": peak_mib() - before,
        "files": size,
        "served": num_served,
        "prepare": after_preparation - start,
        "epoch": end - after_preparation,
    }


def peak_mib() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure each setting in a separate process, and print a table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path, help="data set folder")
    parser.add_argument("--queries", type=int, nargs="+", default=[10_000, 20_000])
    parser.add_argument("--buffer", type=int, default=2048)
    parser.add_argument("--measure", choices=["default", "buffer"], help="take one measurement in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.measure:
        buffer = arguments.buffer if arguments.measure == "buffer" else None
        print(json.dumps(measure(arguments.source, arguments.queries[0], buffer)))
        return
    print("| queries | setting | added memory | added MiB | before MiB | files MiB | preparation | epoch |")
    print("| --: | --- | --: | --: | --: | --: | --: | --: |")
    reference: float | None = None
    for num_queries in arguments.queries:
        default: dict[str, float] = {}
        for setting in ("default", "buffer"):
            command = [sys.executable, __file__, str(arguments.source), "--measure", setting]
            command += ["--queries", str(num_queries), "--buffer", str(arguments.buffer)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            result = json.loads(done.stdout.splitlines()[-1])
            default = default or result
            reference = reference or result["added"]
            assert result["served"] == default["served"]
            name = "default" if setting == "default" else f"buffer={arguments.buffer}"
            print(
                f"| {num_queries:,} | {name} | {result['added'] / reference:.2f} | {result['added']:,.0f} | "
                f"{result['before']:,.0f} | {result['files']:,.0f} | {result['prepare'] / default['prepare']:.2f} | "
                f"{result['epoch'] / default['epoch']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
