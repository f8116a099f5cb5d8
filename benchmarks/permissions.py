"""Measure what filters and permissions cost, and what the time of a search reveals.

python benchmarks/permissions.py 1000000 /tmp/corpus 20
python benchmarks/permissions.py 1000000 /tmp/corpus 20 open same other

The arguments are the number of passages, the folder of the corpora, the number of rounds, and the kinds of searches.
The script measures the CPU time of a search on one thread over randomly drawn passages. The kinds of searches are:
`open`: all passages of a corpus without principals; `same` and `other`: the 1% of passages that match a filter, with
the same filter each time or another one; `all` and `tenth`: a caller who may see everything, or a tenth, of the same
corpus with the principals of ten teams; `alone`: a corpus of this tenth only; `again`: a repetition of `alone`, whose
ratio shows the noise. The first search of each kind, which builds the views, is not counted.
"""

import random
import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.metadata_index import Entries
from graphrerank.corpus.packed_strings import PackedStrings
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import StoredVectors, prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.auth import Caller
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.schemas.search import SearchRequest

DIM, WORDS, TEAMS = 384, 20_000, 10


class Drawn:
    """Encoder that draws a random vector per text."""

    name = fingerprint = "drawn"

    def encode(self, texts):
        """Draw a vector for each text."""
        generator = torch.Generator().manual_seed(len("".join(texts)))
        return torch.nn.functional.normalize(torch.randn(len(texts), DIM, generator=generator), dim=1)


def words(rng, count):
    """Draw words with a skewed frequency."""
    return " ".join(f"word{int(WORDS ** rng.random())}" for _ in range(count))


def prepare(size, folder):
    """Draw passages and prepare a corpus folder of them."""
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    texts = [words(rng, 60) for _ in range(size)]
    pairs = torch.randint(0, size, (5 * size, 2), generator=generator)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    types = torch.randint(0, 5, (len(pairs),), generator=generator)
    graph = CorpusGraph.from_edges([f"d{i}" for i in range(size)], texts, pairs, edge_type=types)
    graph = graph.with_passages(metadata=Metadata([{"bucket": i % 100, "day": i} for i in range(size)]))
    vectors = torch.nn.functional.normalize(torch.randn(size, DIM, generator=generator), dim=1)
    stored = StoredVectors("drawn", "drawn", vectors, torch.arange(size))
    prepare_corpus(Dataset("drawn", graph, [], [], {}), folder, encoder=stored)


def guarded(corpus):
    """Give each passage the principal of one of the teams."""
    size, metadata = corpus.graph.num_nodes, corpus.graph.passages.metadata
    teams = [np.arange(team, size, TEAMS, dtype=np.int32) for team in range(TEAMS)]
    terms = PackedStrings.of_encoded([b"principals\0", *(f"principals\0steam{team}".encode() for team in range(TEAMS))])
    ptr = np.cumsum([0, size, *map(len, teams)], dtype=np.int64)
    entries = Entries(terms, ptr, np.concatenate([np.arange(size, dtype=np.int32), *teams]))
    metadata = replace(metadata, parts=(*metadata._entries, entries))
    return replace(corpus, graph=corpus.graph.with_passages(metadata=metadata))


def alone(corpus):
    """Return the corpus of the first team's passages only."""
    part = corpus.graph.select(torch.arange(0, corpus.graph.num_nodes, TEAMS))
    return corpus._over(replace(part, passages=part.passages.compacted()))


def load(folder):
    """Open the folder with the pipeline of the service."""
    graph = open_corpus(folder).graph
    steps = [
        partial(VectorSearch, retriever=partial(HybridExpandRetriever)),
        partial(GraphRerank, scorer=partial(CheckpointScorer, checkpoint="base", device="cpu")),
    ]
    return SearchableCorpus(graph, Pipeline(graph, steps=steps), MemoryVectorCache(Drawn()))


def main(size, folder, rounds, only):
    """Time searches of all kinds, or of the kinds in ``only``, in random order per round."""
    torch.set_num_threads(1)
    kinds = {  # corpus, filter of a turn, principals
        "open": ("open", lambda _: {}, ()),
        "same": ("open", lambda _: {"bucket": 7}, ()),
        "other": (
            "open",
            lambda turn: {"day": {"gte": 9 * turn * size // 1000, "lt": (9 * turn + 10) * size // 1000}},
            (),
        ),
        "all": ("guarded", lambda _: {}, [f"team{team}" for team in range(TEAMS)]),
        "tenth": ("guarded", lambda _: {}, ["team0"]),
        "alone": ("alone", lambda _: {}, ()),
        "again": ("alone", lambda _: {}, ()),
    }
    kinds = {kind: kinds[kind] for kind in only or kinds}
    if not (folder / "corpus.json").is_file():
        prepare(size, folder)
    changes = {"open": lambda corpus: corpus, "guarded": guarded, "alone": alone}
    names = {name for name, *_ in kinds.values()}
    engines = {name: SearchEngine(lambda path, change=changes[name]: change(load(path)), folder) for name in names}
    rng, seconds = random.Random(1), {kind: [] for kind in kinds}
    for turn in range(-1, rounds):
        query = words(rng, 8)
        for kind in rng.sample(list(kinds), len(kinds)):
            name, conditions, principals = kinds[kind]
            request = SearchRequest(query=query, filter=conditions(turn + 1))
            request.sent_by(Caller(frozenset(principals)))
            begin = time.process_time()
            (answer,) = engines[name].answer({"a": request}).values()
            if turn >= 0:
                seconds[kind].append(time.process_time() - begin)
            assert answer.results, kind
    for kind, times in seconds.items():
        print(f"{kind}: p50 {1000 * statistics.median(times):.1f} ms, slowest {1000 * max(times):.0f} ms")
    for one, other in (("same", "open"), ("other", "open"), ("all", "open"), ("tenth", "alone"), ("again", "alone")):
        if {one, other} <= seconds.keys():
            ratios = [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]
            drawn = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
            print(f"{one} / {other}: {statistics.median(ratios):.3f} ({drawn[50]:.3f} to {drawn[1949]:.3f}), by pairs")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
