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
from graphrerank.serving.callers import Caller
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


def prepare(size, folder, principals, team=None):
    """Draw passages of ten teams, or keep those of one, and prepare them as a corpus folder."""
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    texts = [words(rng, 60) for _ in range(size)]
    pairs = torch.randint(0, size, (5 * size, 2), generator=generator)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    types = torch.randint(0, 5, (len(pairs),), generator=generator)
    graph = CorpusGraph.from_edges([f"d{i}" for i in range(size)], texts, pairs, edge_type=types)
    records = [
        {"bucket": i % 100, "day": i} | ({"principals": [f"team{i % 10}"]} if principals else {}) for i in range(size)
    ]
    graph = graph.with_passages(metadata=Metadata(records))
    vectors = torch.nn.functional.normalize(torch.randn(size, DIM, generator=generator), dim=1)
    if team is not None:
        nodes = torch.arange(team, size, 10)
        graph, vectors = graph.select(nodes), vectors[nodes]
    stored = StoredVectors("drawn", "drawn", vectors, torch.arange(len(vectors)))
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
    engines = {}
    for name, settings in {"open": (False,), "guarded": (True,), "team0": (False, 0)}.items():
        if not (folder / name / "corpus.json").is_file():
            prepare(size, folder / name, *settings)
        engines[name] = SearchEngine(load, folder / name)
        engines[name].warm_up()
    everything = frozenset(f"team{number}" for number in range(10))
    kinds = {
        "no filter": lambda _: ("open", {}, ()),
        "a filter that keeps 1%, the same each time": lambda _: ("open", {"bucket": 7}, ()),
        "a filter that keeps 1%, another each time": lambda turn: (
            "open",
            {"day": {"gte": turn * 90, "lt": turn * 90 + size // 100}},
            (),
        ),
        "principals, a caller who sees everything": lambda _: ("guarded", {}, everything),
        "principals, a caller who sees a tenth": lambda _: ("guarded", {}, ["team0"]),
        "a corpus of this tenth": lambda _: ("team0", {}, ()),
    }
    rng, seconds = random.Random(1), {kind: [] for kind in kinds}
    for turn in range(ROUNDS):
        query = words(rng, 8)
        for kind in rng.sample(list(kinds), len(kinds)):
            name, conditions, principals = kinds[kind](turn)
            request = SearchRequest(query=query, filter=conditions)
            request.sent_by(Caller(frozenset(principals)))
            begin = time.perf_counter()
            (answer,) = engines[name].answer({"a": request}).values()
            seconds[kind].append(time.perf_counter() - begin)
            assert answer.results, kind
    for kind, times in seconds.items():
        pairs = [one / other for one, other in zip(times, seconds["no filter"], strict=True)]
        p50, share = 1000 * statistics.median(times), statistics.median(pairs)
        print(f"{kind}: p50 {p50:.1f} ms, {share:.2f} of no filter, slowest {1000 * max(times):.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
