"""Memory of training queries' candidates: all in memory, and from shards.

python benchmarks/streamed_training.py DATA/2wikimultihopqa --queries 20000 --buffer 2048

Questions are drawn sentences of passages, which they ask for. Each measurement is a process of its own: it prepares the
candidates (BM25, the best 100, with the matching of words) and goes through one epoch of batches.
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

from graphrerank.data.candidates import PreparedDataset, prepare, write_shards
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.operators.bm25 import BM25Retriever

BATCH_SIZE = 32
RETRIEVER = partial(BM25Retriever, top_k=100)


def make_dataset(source: Path, num_queries: int) -> Dataset:
    """Draw questions for passages of a data set folder; the last hundred are for validation."""
    graph = Dataset.from_folder(source, mentions=True).graph
    rng = np.random.default_rng(0)
    nodes = rng.integers(graph.num_nodes, size=num_queries + 100)
    texts = [" ".join(rng.permutation(graph.texts[int(node)].split())[:12]) for node in nodes]
    judged = torch.from_numpy(nodes)
    splits = {
        name: Qrels(torch.arange(start, stop), judged[start:stop], torch.ones(stop - start))
        for name, start, stop in (("train", 0, num_queries), ("val", num_queries, num_queries + 100))
    }
    return Dataset("drawn", graph, [f"q{i}" for i in range(len(nodes))], texts, splits)


def with_features(prepared: PreparedDataset, *, text_match: TextMatch | None = None) -> PreparedDataset:
    """Add the matching of words."""
    return prepared.with_features([*prepared.feature_names, *MATCH_FEATURES], text_match=text_match)


def measure(source: Path, num_queries: int, buffer: int | None) -> dict[str, float]:
    """Prepare, and go through one epoch."""
    dataset = make_dataset(source, num_queries)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    with tempfile.TemporaryDirectory() as name:
        cache, start = Path(name), time.process_time()
        if buffer is None:
            ranked = with_features(prepare(dataset, encoder=None, build_retriever=RETRIEVER, cache=cache))
            loader = CandidateDataModule(ranked, batch_size=BATCH_SIZE).train_dataloader()
        else:
            features = partial(with_features, text_match=TextMatch.of(dataset.graph))
            shards = write_shards(
                dataset, "train", encoder=None, build_retriever=RETRIEVER, with_features=features, folder=cache
            )
            others = dataset.with_queries(dataset.split("val").queries)
            held = with_features(prepare(others, encoder=None, build_retriever=RETRIEVER, cache=cache))
            module = CandidateDataModule(held, shards={"": shards}, buffer=buffer, batch_size=BATCH_SIZE)
            loader = module.train_dataloader()
        prepared = time.process_time() - start
        served = sum(batch.num_graphs for batch in loader)
        epoch = time.process_time() - start - prepared
    return {
        "data_mb": before, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "served": served, "prepare_cpu": prepared, "epoch_cpu": epoch,
    }  # fmt: skip


def main() -> None:
    """Measure both, each in a process of its own, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a data set folder")
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--buffer", type=int, default=2048)
    parser.add_argument("--mode", choices=["memory", "shards"], help="one measurement, in this process")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.mode:
        print(json.dumps(measure(args.source, args.queries, args.buffer if args.mode == "shards" else None)))
        return
    for mode in ("memory", "shards"):
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--mode", mode], stdout=subprocess.PIPE, text=True, check=True
        )
        figures = json.loads(done.stdout.splitlines()[-1])
        print(f"{mode}: " + ", ".join(f"{name} {figure:,.1f}" for name, figure in figures.items()), flush=True)


if __name__ == "__main__":
    main()
