"""What filters and permissions cost: p50 of a search, pair by pair, in a corpus folder of drawn passages.

python benchmarks/permissions.py 100000 /tmp/corpus
"""

import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import torch

from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import StoredVectors, prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.metadata import Metadata
from graphrerank.inference.checkpoint_scorer import CheckpointScorer
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.serving.search_engine import SearchableCorpus, SearchEngine, SearchRequest

DIM, WORDS, ROUNDS = 384, 20_000, 60


class Drawn:
    """An encoder of queries by drawn vectors."""

    name = fingerprint = "drawn"

    def encode(self, texts):
        """Draw a vector for each text."""
        generator = torch.Generator().manual_seed(len("".join(texts)))
        return torch.nn.functional.normalize(torch.randn(len(texts), DIM, generator=generator), dim=1)


def words(rng, count):
    """Draw words, of which few are frequent."""
    return " ".join(f"word{int(WORDS ** rng.random())}" for _ in range(count))


def prepare(size, folder):
    """Draw passages, and prepare them as a corpus folder."""
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    texts = [words(rng, 60) for _ in range(size)]
    pairs = torch.randint(0, size, (5 * size, 2), generator=generator)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    types = torch.randint(0, 5, (len(pairs),), generator=generator)
    graph = CorpusGraph.from_edges([f"d{i}" for i in range(size)], texts, pairs, edge_type=types)
    records = [{"bucket": i % 100, "day": i, "principals": [f"team{i % 10}"]} for i in range(size)]
    graph = graph.with_passages(metadata=Metadata(records))
    vectors = torch.nn.functional.normalize(torch.randn(size, DIM, generator=generator), dim=1)
    stored = StoredVectors("drawn", "drawn", vectors, torch.arange(size))
    prepare_corpus(Dataset("drawn", graph, [], [], {}), folder, encoder=stored)


def load(folder):
    """Open the folder for a pipeline as the service's."""
    graph = open_corpus(folder).graph
    steps = [
        partial(VectorSearch, retriever=partial(HybridExpandRetriever)),
        partial(GraphRerank, scorer=partial(CheckpointScorer, checkpoint="base", device="cpu")),
    ]
    return SearchableCorpus(graph, Pipeline(graph, steps=steps), MemoryVectorCache(Drawn()))


def main(size, folder):
    """Time searches of one query by turns."""
    torch.set_num_threads(1)
    if not (folder / "corpus.json").is_file():
        prepare(size, folder)
    engine, rng = SearchEngine(load, folder), random.Random(1)
    engine.warm_up()
    kinds = {
        "no filter": lambda _: {},
        "1%, the same each time": lambda _: {"bucket": 7},
        "1%, another each time": lambda turn: {"day": {"gte": turn * 90, "lt": turn * 90 + size // 100}},
    }
    seconds = {kind: [] for kind in kinds}
    for turn in range(ROUNDS):
        query = words(rng, 8)
        for kind, conditions in kinds.items():
            begin = time.perf_counter()
            (answer,) = engine.answer({"a": SearchRequest(query=query, filter=conditions(turn))}).values()
            seconds[kind].append(time.perf_counter() - begin)
            assert answer.results, kind
    p50 = {kind: statistics.median(times) for kind, times in seconds.items()}
    for kind, median in p50.items():
        print(f"{kind}: {1000 * median:.1f} ms, {median / p50['no filter']:.2f} of no filter")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
