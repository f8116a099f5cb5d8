"""What filters and permissions cost, and what time tells: p50 of a search, pair by pair, in folders of drawn passages.

Kinds of searches: all passages of a corpus that is `open`; the 1% that pass a filter, the `same` each time or an
`other` one; a caller of ten teams' corpus who may see `all` of it, or a `tenth`; a corpus of this tenth `alone`, and
`again`, whose ratio is the noise.

python benchmarks/permissions.py 100000 /tmp/corpus
python benchmarks/permissions.py 1000000 /tmp/larger open same other
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


def main(size, folder, only):
    """Time searches of one query by turns, of all kinds or of ``only`` some, which need fewer folders."""
    torch.set_num_threads(1)
    everything = frozenset(f"team{number}" for number in range(10))
    kinds = {  # folder, filter of a turn, principals
        "open": ("open", lambda _: {}, ()),
        "same": ("open", lambda _: {"bucket": 7}, ()),
        "other": ("open", lambda turn: {"day": {"gte": turn * 90, "lt": turn * 90 + size // 100}}, ()),
        "all": ("guarded", lambda _: {}, everything),
        "tenth": ("guarded", lambda _: {}, ["team0"]),
        "alone": ("team0", lambda _: {}, ()),
        "again": ("team0", lambda _: {}, ()),
    }
    kinds = {kind: kinds[kind] for kind in only or kinds}
    settings, engines = {"open": (False,), "guarded": (True,), "team0": (False, 0)}, {}
    for name in {name for name, *_ in kinds.values()}:
        if not (folder / name / "corpus.json").is_file():
            prepare(size, folder / name, *settings[name])
        engines[name] = SearchEngine(load, folder / name)
        engines[name].warm_up()
    rng, seconds = random.Random(1), {kind: [] for kind in kinds}
    for turn in range(-1, ROUNDS):  # the first one makes views and is not counted
        query = words(rng, 8)
        for kind in rng.sample(list(kinds), len(kinds)):
            name, conditions, principals = kinds[kind]
            request = SearchRequest(query=query, filter=conditions(max(turn, 0)))
            request.sent_by(Caller(frozenset(principals)))
            begin = time.perf_counter()
            (answer,) = engines[name].answer({"a": request}).values()
            if turn >= 0:
                seconds[kind].append(time.perf_counter() - begin)
            assert answer.results, kind
    for kind, times in seconds.items():
        print(f"{kind}: p50 {1000 * statistics.median(times):.1f} ms, slowest {1000 * max(times):.0f} ms")
    for one, other in (("same", "open"), ("other", "open"), ("all", "open"), ("tenth", "alone"), ("again", "alone")):
        if {one, other} <= seconds.keys():
            ratios = [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]
            drawn = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
            p50s = statistics.median(seconds[one]) / statistics.median(seconds[other])
            low, middle, high = drawn[50], statistics.median(ratios), drawn[1949]
            print(f"{one} / {other}: median of pairs {middle:.3f} ({low:.3f} to {high:.3f}), of medians {p50s:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
