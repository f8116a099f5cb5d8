"""Time conceptual candidate graphs: our sparse products against a loop over Python sets.

``python benchmarks/conceptual_graphs.py`` builds the graphs of 64 queries with 200 candidates each in one call from the
sparse incidence matrix of entities. The reference loops over pairs of candidates. The script checks that edges and
weights are equal and prints milliseconds per query, on one thread. Counting the entities of the corpus is not timed on
either side. With ``--corpus``, spaCy finds the entities. Otherwise they are drawn at random with a skewed frequency.
"""

import argparse
import json
import random
from collections import Counter
from pathlib import Path

import torch
from interleaved import median_seconds

from graphrerank.corpus import conceptual_edges
from graphrerank.corpus.entity_incidence import MIN_COMMON, EntityIncidence, normalized_names
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.spacy_entities import SpacyEntityExtractor
from graphrerank.text import normalize_entity

NUM_QUERIES, NUM_CANDIDATES = 64, 200
Edges = dict[tuple[int, int], float]


def set_intersection_loop(entities: list[set[str]], rankings: list[list[int]]) -> Edges:
    """Compute ``A_ij = |E_i & E_j| / |E_j|`` for each pair of each query's candidates, in packed numbering."""
    edges, start = {}, 0
    for nodes in rankings:
        for a, i in enumerate(nodes):
            for b, j in enumerate(nodes):
                if a != b and (shared := entities[i] & entities[j]):
                    edges[start + b, start + a] = len(shared) / len(entities[j])
        start += len(nodes)
    return edges


def kept_names(entities: list[list[str]], max_share: float) -> list[set[str]]:
    """Return the normalised names of each passage as Python sets, without names that are too frequent."""
    rows = [{normalize_entity(name) for name in row} - {""} for row in entities]
    frequency = Counter(name for row in rows for name in row)
    limit = max(MIN_COMMON, max_share * len(rows))
    return [{name for name in row if frequency[name] <= limit} for row in rows]


def read_corpus(folder: Path, cache: Path) -> tuple[list[str], list[list[str]]]:
    """Return the texts of a data set folder and their entities found by spaCy, or cached ones."""
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [f"{passage['title']}. {passage['text']}" for passage in map(json.loads, lines)]
    return texts, [known.names for known in KnowledgeCache(SpacyEntityExtractor(), cache).extract(texts)]


def synthetic_entities(num_passages: int = 6000, *, num_names: int = 30000) -> list[list[str]]:
    """Draw nine entities per passage. The r-th most frequent one has a probability proportional to 1 / (r + 10)."""
    draw = random.Random(0)
    names = [str(rank) for rank in range(num_names)]
    weights = [1 / (rank + 10) for rank in range(num_names)]
    return [draw.choices(names, weights, k=9) for _ in range(num_passages)]


def main() -> None:
    """Check both implementations, time them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--corpus", type=Path, help="data set folder with corpus.jsonl; without it, entities are drawn at random"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("cache/entities"),
        help="folder of the cached entities (default: %(default)s)",
    )
    parser.add_argument("--repeats", type=int, default=10, help="number of timed repetitions (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.corpus is None:
        entities, source = synthetic_entities(), "synthetic"
        rankings = [random.Random(q).sample(range(len(entities)), NUM_CANDIDATES) for q in range(NUM_QUERIES)]
    else:
        from graphrerank.operators.bm25 import BM25

        texts, entities = read_corpus(arguments.corpus, arguments.cache)
        source = arguments.corpus.name
        scores = BM25(texts).score_all([text[:100] for text in texts[:NUM_QUERIES]])  # candidates with common words
        rankings = torch.topk(scores, NUM_CANDIDATES, dim=1).indices.tolist()
    print("| entities | ignored above | edges per query | loop, ms/query | ours, batched | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for max_share in (0.001, 0.02, 1.0):
        incidence = EntityIncidence.from_names(normalized_names(entities), max_share=max_share)
        sets = kept_names(entities, max_share)
        nodes = torch.tensor(rankings)

        expected = set_intersection_loop(sets, rankings)
        edge_index, edge_weight, _ = conceptual_edges(incidence, nodes)
        found = dict(zip(zip(*edge_index.tolist(), strict=True), edge_weight.tolist(), strict=True))
        assert found.keys() == expected.keys()
        assert all(abs(found[pair] - weight) < 1e-6 for pair, weight in expected.items())

        seconds = median_seconds(
            {
                "loop": lambda s=sets: set_intersection_loop(s, rankings),
                "ours": lambda i=incidence, n=nodes: conceptual_edges(i, n),
            },
            repeats=arguments.repeats,
        )
        loop, ours = (1000 * seconds[name] / NUM_QUERIES for name in ("loop", "ours"))
        per_query = len(expected) / NUM_QUERIES
        print(f"| {source} | {max_share:.1%} | {per_query:.0f} | {loop:.2f} | {ours:.3f} | {loop / ours:.0f}x |")


if __name__ == "__main__":
    main()
