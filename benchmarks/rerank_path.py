"""Time a request to GraphReranker against another checkout of this repository.

``python benchmarks/rerank_path.py --old DIR/src`` runs the code of both checkouts in processes of one thread each, in
turn. It first checks that both give the same scores to the last bit, and then prints CPU milliseconds per question and
their ratio, each as the median over the turns. A question has 100 candidates and 300 edges. Texts have 30 words of a
vocabulary of 5,000, drawn by Zipf's law.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from graphrerank.models.checkpoint import load_checkpoint
from graphrerank.rerank.explanation import Explainer
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput

CANDIDATES, EDGES, WORDS, QUESTIONS, TURNS = 100, 300, 30, 32, 7
CHECKPOINT = (
    Path(__file__).parents[1] / "src" / "graphrerank" / "pretrained" / "base-1"
)  # a checkpoint that 0.2 can load
RNG = random.Random(0)
VOCABULARY = ["".join(RNG.choices("abcdefghijklmnopqrstuvwxyz", k=RNG.randint(3, 10))) for _ in range(5000)]
ZIPF = [1 / (rank + 5) for rank in range(5000)]


def sentence(rng: random.Random, count: int) -> str:
    """Draw the words of a text."""
    return " ".join(rng.choices(VOCABULARY, ZIPF, k=count))


def random_edges(rng: random.Random, count: int, num_nodes: int) -> list[list[int]]:
    """Draw distinct pairs of different nodes."""
    pairs = {tuple(sorted(rng.sample(range(num_nodes), 2))) for _ in range(2 * count)}
    return [list(pair) for pair in sorted(pairs)[:count]]


def with_texts(seed: int) -> RerankInput:
    """A question with texts."""
    rng = random.Random(seed)
    texts = [f"{sentence(rng, 6).capitalize()}. {sentence(rng, WORDS - 6)}" for _ in range(CANDIDATES)]
    return RerankInput(sentence(rng, 10), texts, edges=random_edges(rng, EDGES, CANDIDATES))


def with_texts_again(seed: int) -> RerankInput:
    """A question that the previous turn asked too."""
    return with_texts(seed % QUESTIONS)


def with_scores(seed: int) -> RerankInput:
    """A question with scores instead of texts."""
    rng = random.Random(seed)
    scores = [rng.random() for _ in range(CANDIDATES)]
    return RerankInput("q", scores=scores, edges=random_edges(rng, EDGES, CANDIDATES))


def long_text(seed: int) -> RerankInput:
    """1,000 texts with 7.6 MB of distinct words."""
    words = [f"w{seed}x{number:06d}" for number in range(760_000)]
    return RerankInput(" ".join(words[:20]), [" ".join(words[start::1000]) for start in range(1000)])


def many_words(seed: int) -> RerankInput:
    """A query of 25,000 words with 100,000 edges among 1,000 texts."""
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(25_000)]
    texts = [" ".join(rng.sample(words, 20)) for _ in range(1000)]
    return RerankInput(" ".join(words), texts, edges=random_edges(rng, 100_000, 1000))


def explained(seed: int) -> RerankInput:
    """A query of 4,000 words, 1,000 documents, 1,000 edges."""
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(4000)]
    texts = [" ".join(rng.sample(words, 30)) for _ in range(1000)]
    return RerankInput(" ".join(words), texts, edges=random_edges(rng, 1000, 1000))


class Worker:
    """Loop of a worker process that runs the requested cases."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        checkpoint = load_checkpoint(CHECKPOINT)
        self._reranker, self._explainer = GraphReranker(checkpoint), Explainer(checkpoint)

    def batch(self, inputs: Sequence[RerankInput]) -> list[torch.Tensor]:
        """Rerank all questions in one batch."""
        return [ranking.scores for ranking in self._reranker.rerank_batch(inputs)]

    def alone(self, inputs: Sequence[RerankInput]) -> list[torch.Tensor]:
        """Rerank one question after the other."""
        return [self._reranker.rerank_batch([given])[0].scores for given in inputs]

    def explain(self, inputs: Sequence[RerankInput]) -> list[torch.Tensor]:
        """Explain one question after the other."""
        found = [self._explainer.explain(given) for given in inputs]
        return [torch.tensor([row.gcs_part + row.learned_part for row in rows]) for rows in found]

    def serve(self) -> None:
        """Read names of cases and seeds, and answer with CPU seconds and a hash of the scores."""
        for line in sys.stdin:
            name, seed = json.loads(line)
            make, run, count = CASES[name]
            inputs = [make(seed * QUESTIONS + number) for number in range(count)]
            start = time.process_time()
            scores = getattr(self, run)(inputs)
            seconds = time.process_time() - start
            digest = sha256(b"".join(row.numpy().tobytes() for row in scores)).hexdigest()
            print(json.dumps([seconds / count, digest]), flush=True)


Case = tuple[Callable[[int], RerankInput], str, int]
CASES: dict[str, Case] = {
    "scores and edges, 32 at once": (with_scores, "batch", QUESTIONS),
    "scores and edges, alone": (with_scores, "alone", QUESTIONS),
    "texts and edges, 32 at once": (with_texts, "batch", QUESTIONS),
    "texts and edges, alone": (with_texts, "alone", QUESTIONS),
    "texts seen before, 32 at once": (with_texts_again, "batch", QUESTIONS),
    "texts seen before, alone": (with_texts_again, "alone", QUESTIONS),
    "texts and edges, explained": (with_texts, "explain", 1),
    "7.6 MB of text, 760,000 different words": (long_text, "alone", 1),
    "4,000 words, 1,000 documents, 1,000 edges, explained": (explained, "explain", 1),
    "25,000 words, 1,000 documents, 100,000 edges": (many_words, "alone", 1),
}
LARGE, NEW_ONLY = list(CASES)[7:], list(CASES)[9:]  # The last case would need 20 GB in 0.2.


class Process:
    """A worker that imports the package from a folder."""

    def __init__(self, source: str) -> None:
        self._run = subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self, name: str, seed: int) -> tuple[float, str]:
        """Run a case, and return the CPU seconds per question and a hash of the scores."""
        assert self._run.stdin is not None
        assert self._run.stdout is not None
        print(json.dumps([name, seed]), file=self._run.stdin, flush=True)
        seconds, digest = json.loads(self._run.stdout.readline())
        return seconds, digest

    def stop(self) -> None:
        """End the process."""
        assert self._run.stdin is not None
        self._run.stdin.close()
        self._run.wait()


def compare(name: str, new: Process, old: Process | None, turns: int) -> str:
    """Time both checkouts in turn. The first turn is a warm-up."""
    seconds: dict[str, list[float]] = {"new": [], "old": []}
    for turn in range(turns + 1):
        digests: set[Any] = set()
        for key, process in (("new", new), ("old", old)):
            if process is not None:
                spent, digest = process.turn(name, turn)
                digests.add(digest)
                seconds[key] += [spent] * (turn > 0 or turns == 0)
        if len(digests) > 1:
            raise SystemExit(f"{name}: both checkouts must give equal scores, got different ones")
    now = statistics.median(seconds["new"]) * 1e3
    if old is None:
        return f"| {name} | | {now:.2f} | |"
    before = statistics.median(seconds["old"]) * 1e3
    return f"| {name} | {before:.2f} | {now:.2f} | {before / now:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", help="folder `src` of the other checkout")
    parser.add_argument("--new", default="src", help="folder `src` of this checkout (default: %(default)s)")
    parser.add_argument("--large", action="store_true", help="also time the largest requests, which may take minutes")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        Worker().serve()
        return
    new, old = Process(arguments.new), Process(arguments.old) if arguments.old else None
    print("| a question | other checkout, CPU ms | this one | ratio |\n| --- | --- | --- | --- |")
    for name in CASES:
        if name not in LARGE or arguments.large:
            both = None if name in NEW_ONLY else old
            print(compare(name, new, both, 0 if name in LARGE else TURNS), flush=True)
    for process in filter(None, (new, old)):
        process.stop()


if __name__ == "__main__":
    main()
