"""Measure time and memory of preparing, opening and searching corpora of 10^5 to 10^7 passages on disk.

python benchmarks/corpus_scale.py DATA/2wikimultihopqa --folder DIR --sizes 100000 1000000

Each passage consists of three sentences drawn from a data set folder and has five edges to random passages. A hashing
encoder computes the vectors. Each measurement runs in a separate process, which has its own peak of memory.
"""

import argparse
import http.client
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from running_service import running_service, serve_command

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.passages import Passages
from graphrerank.corpus_store.growth import NewEdge, compact_corpus, grow_corpus
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.readers.documents import read_documents
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer

NUM_QUERIES = 200
NUM_SENTENCES = 3  # number per passage
NUM_EDGES = 5  # number drawn per passage
BLOCK_EDGES = 1 << 22  # number drawn at a time
BLOCK_TEXTS = 1 << 15  # number encoded at a time
COMPARED = 100_000  # largest corpus that is compared with the same one in memory
EXACT = ("bm25", "dense", "hybrid", "hybrid_expand", "hybrid_expand+base")
ROOT = Path(__file__).resolve().parent.parent
NUM_ADDED, NUM_SERVED = 1000, 20  # numbers of passages that the steps `grow` and `serve_grow` add


class ComputedTexts(Sequence[str], ABC):
    """Sequence of texts that are computed when they are read."""

    @abstractmethod
    def text(self, index: int) -> str:
        """Return one text."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.text(number) for number in range(*index.indices(len(self)))]
        return self.text(index)


class Recombined(ComputedTexts):
    """Sequence of ``num_texts`` texts of randomly drawn sentences."""

    def __init__(self, sentences: Sequence[str], num_texts: int, *, seed: int = 0) -> None:
        self._sentences = sentences
        rng = np.random.default_rng(seed)
        self._drawn = rng.integers(len(sentences), size=(num_texts, NUM_SENTENCES), dtype=np.int32)

    def __len__(self) -> int:
        return len(self._drawn)

    def text(self, index: int) -> str:
        """Return one text."""
        return " ".join(self._sentences[place] for place in self._drawn[index].tolist())


class Numbered(ComputedTexts):
    """Sequence of the ids ``p0``, ``p1``, ..."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def text(self, index: int) -> str:
        """Return one id."""
        return f"p{range(self._count)[index]}"


class HashingEncoder:
    """Encoder that adds 1 or -1 at the position of each word's hash and normalises the vector."""

    name, fingerprint = "hashing", "hashing-384"

    def __init__(self, dim: int = 384) -> None:
        self.dim = dim
        self._hash: dict[str, int] = {}

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """Return unit vectors ``[n, dim]``."""
        words = [text.lower().split() for text in texts]
        flat = [word for row in words for word in row]
        for word in set(flat) - self._hash.keys():
            self._hash[word] = zlib.crc32(word.encode())
        hashes = np.fromiter(map(self._hash.__getitem__, flat), np.int64, len(flat))
        row = np.repeat(np.arange(len(texts)), list(map(len, words)))
        cells = row * self.dim + (hashes >> 1) % self.dim
        sums = np.bincount(cells, weights=1.0 - 2.0 * (hashes & 1), minlength=len(texts) * self.dim)
        vectors = torch.from_numpy(sums.reshape(len(texts), self.dim)).float()
        return torch.nn.functional.normalize(vectors, dim=1)


def draw_edges(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw edges in the form of a ``CorpusGraph``. ``from_edges`` would need several copies of them in memory."""
    rng = np.random.default_rng(0)
    keys = np.empty((2, size * NUM_EDGES), dtype=np.int64)
    for start in range(0, keys.shape[1], BLOCK_EDGES):
        block = keys[:, start : start + BLOCK_EDGES]
        pair = rng.integers(size, size=block.shape)
        pair[1] += (pair[0] == pair[1]) * (
            1 - size * (pair[1] == size - 1)
        )  # A self-loop is replaced by an edge to the next passage.
        block[:] = pair * size + pair[::-1]
    keys = keys.reshape(-1)
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    indptr = np.searchsorted(keys, np.arange(size + 1) * size)
    np.remainder(keys, size, out=keys)
    return torch.from_numpy(indptr), torch.from_numpy(keys), torch.ones(1).expand(len(keys))


def read_sentences(source: Path) -> list[str]:
    """Return the distinct sentences of a data set folder."""
    return list(
        dict.fromkeys(
            sentence
            for document in read_documents(source, drop_empty=True)
            for sentence in re.split(r"(?<=[.!?])\s+", document.text)
            if 20 <= len(sentence) <= 300
        )
    )


def make_dataset(source: Path, size: int) -> Dataset:
    """Draw a corpus, and questions that consist of words of one passage each."""
    sentences = read_sentences(source)
    texts = Recombined(sentences, size)
    graph = CorpusGraph(Passages(Numbered(size), texts), *draw_edges(size))
    rng = np.random.default_rng(1)
    nodes = rng.integers(size, size=NUM_QUERIES)
    questions = [" ".join(rng.permutation(texts[int(node)].split())[:12]) for node in nodes]
    qrels = Qrels(torch.arange(NUM_QUERIES), torch.from_numpy(nodes), torch.ones(NUM_QUERIES))
    return Dataset(
        f"scale{size}", graph, [f"q{i}" for i in range(NUM_QUERIES)], questions, {"test": qrels},
        known_fingerprint=f"{source.name}-{size}-{NUM_SENTENCES}-{NUM_EDGES}-{len(sentences)}",
    )  # fmt: skip


def memory() -> dict[str, float]:
    """Return the peak memory in MB, and the current memory without shared pages of files."""
    status = Path("/proc/self/status").read_text()
    own = int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1e3  # type: ignore[index]
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "own_mb": own}


def prepare(source: Path, folder: Path, size: int, index: str | None) -> dict[str, float]:
    """Write a corpus folder."""
    dataset = make_dataset(source, size)
    before = memory()["peak_mb"]
    start, cpu = time.perf_counter(), time.process_time()
    prepare_corpus(dataset, folder, encoder=HashingEncoder(), index=index)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    stored = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {"seconds": seconds, "cpu_seconds": cpu, "generator_mb": before, "disk_mb": stored / 1e6, **memory()}


def grow(source: Path, folder: Path, size: int) -> dict[str, float]:
    """Add passages to a corpus folder, open it, remove them again, and compact it."""
    texts = Recombined(read_sentences(source), NUM_ADDED, seed=2)[:]
    ids = [f"added{number}" for number in range(NUM_ADDED)]
    neighbours = np.random.default_rng(3).integers(size, size=(NUM_ADDED, NUM_EDGES)).tolist()
    edges = [NewEdge(node, f"p{other}") for node, row in zip(ids, neighbours, strict=True) for other in row]
    times = {}
    for step, change in (
        ("add", partial(grow_corpus, folder, ids, texts, edges=edges, encoder=HashingEncoder())),
        ("open", partial(open_corpus, folder)),
        ("add_one", partial(grow_corpus, folder, ["one"], texts[:1], encoder=HashingEncoder())),
        ("remove", partial(grow_corpus, folder, remove=[*ids, "one"], compact=False)),
        ("compact", partial(compact_corpus, folder)),
    ):
        start, cpu = time.perf_counter(), time.process_time()
        change()
        times |= {f"{step}_seconds": time.perf_counter() - start, f"{step}_cpu": time.process_time() - cpu}
    return {**times, **memory()}


def grow_ivf(source: Path, folder: Path, size: int) -> dict[str, float]:
    """Compare an index that grew in ten changes with one that was built over all passages."""
    made, grown = make_dataset(source, size), folder.with_name(f"{folder.name}-grown")
    graph, first = made.graph, size - size // 10
    edgeless = torch.zeros(0, dtype=torch.int64)
    some = Passages(graph.node_ids[:first], graph.texts[:first])
    base = CorpusGraph(some, torch.zeros(first + 1).long(), edgeless, torch.ones(0))
    dataset = Dataset(made.name, base, ["q"], ["?"], {"test": Qrels(*torch.zeros(2, 1).long(), torch.ones(1))})
    prepare_corpus(dataset, grown, encoder=HashingEncoder(), index="ivf")
    start, cpu, step = time.perf_counter(), time.process_time(), -(-(size - first) // 10)
    for low in range(first, size, step):
        grow_corpus(grown, graph.node_ids[low : low + step], graph.texts[low : low + step], encoder=HashingEncoder())
    times = {"grow_seconds": time.perf_counter() - start, "grow_cpu": time.process_time() - cpu}
    queries = Queries(made.query_ids, made.query_texts, HashingEncoder().encode(made.query_texts))
    exact = DenseRetriever(open_corpus(grown).graph, top_k=10).retrieve(queries).nodes
    for name, corpus in (("grown", grown), ("rebuilt", folder)):
        retriever = DenseRetriever(open_corpus(corpus).graph, top_k=10, index="ivf")
        start, cpu = time.perf_counter(), time.process_time()
        found = retriever.retrieve(queries).nodes
        times[f"{name}_ms"] = 1000 * (time.process_time() - cpu) / len(found)
        same = [torch.isin(*pair) for pair in zip(exact, found, strict=True)]
        times[f"{name}_recall"] = float(torch.stack(same).float().mean())
    return times


def make_pipeline(graph: CorpusGraph, system: str) -> Pipeline:
    """Build a retriever by its name. A name after ``+`` is the checkpoint that reranks."""
    retrievers: dict[str, Any] = {
        "bm25": partial(BM25Retriever),
        "dense": partial(DenseRetriever),
        "hybrid": partial(HybridRetriever),
        "hybrid_expand": partial(HybridExpandRetriever),
        "dense_ivf": partial(DenseRetriever, index="ivf"),
        "hybrid_ivf": partial(HybridRetriever, proposals=500, index="ivf"),
        "hybrid_expand_ivf": partial(HybridExpandRetriever, proposals=500, index="ivf"),
    }
    name, _, checkpoint = system.partition("+")
    steps: list[Any] = [partial(VectorSearch, retriever=retrievers[name])]
    if checkpoint:
        steps.append(partial(GraphRerank, scorer=partial(CheckpointScorer, checkpoint=checkpoint)))
    return Pipeline(graph, steps=steps, budget=100, retriever=retrievers[name], text_encoder=HashingEncoder())


def search(folder: Path, system: str) -> dict[str, float]:
    """Open a corpus folder and answer one question at a time."""
    before = memory()["peak_mb"]
    start = time.perf_counter()
    dataset = open_corpus(folder)
    opened = time.perf_counter() - start
    encoder, pipeline = HashingEncoder(), make_pipeline(dataset.graph, system)
    found, times, cpu = 0, [], []
    for place, text in enumerate(dataset.query_texts):
        start, worked = time.perf_counter(), time.process_time()
        queries = Queries([str(place)], [text], encoder.encode([text]))
        ranking = pipeline.retrieve(queries).ranking
        times.append(1000 * (time.perf_counter() - start))
        cpu.append(1000 * (time.process_time() - worked))
        found += int(dataset.split("test").node[place]) in ranking.nodes[0, :10].tolist()
    rest = np.array(times[1:])
    return {
        "open_ms": 1000 * opened, "first_ms": times[0], "p50_ms": float(np.median(rest)),
        "p95_ms": float(np.quantile(rest, 0.95)), "cpu_p50_ms": float(np.median(cpu[1:])),
        "cpu_p95_ms": float(np.quantile(cpu[1:], 0.95)),
        "recall@10": found / len(times), "imports_mb": before, **memory(),
    }  # fmt: skip


def compare(source: Path, folder: Path, size: int) -> dict[str, float]:
    """Assert that a corpus folder and the same corpus in memory give equal rankings, to the last bit."""
    mapped = open_corpus(folder)
    made, encoder = make_dataset(source, size).graph, HashingEncoder()
    graph = CorpusGraph(Passages(made.node_ids[:], made.texts[:]), made.indptr, made.indices, made.weight)
    blocks = [encoder.encode(graph.texts[start : start + BLOCK_TEXTS]) for start in range(0, size, BLOCK_TEXTS)]
    in_memory = graph.with_embedding(torch.cat([block.half() for block in blocks]))
    queries = Queries(mapped.query_ids, mapped.query_texts, encoder.encode(mapped.query_texts))
    for system in EXACT:
        expected, found = (
            make_pipeline(corpus, system).retrieve(queries).ranking for corpus in (in_memory, mapped.graph)
        )
        assert torch.equal(found.nodes, expected.nodes), system
        assert torch.equal(found.scores, expected.scores), system
    return {"equal_systems": len(EXACT), "questions": len(queries), **memory()}


def evaluate(folder: Path) -> dict[str, float]:
    """Time ``evaluate.py`` on all questions without a cache."""
    with tempfile.TemporaryDirectory() as work:
        settings = ["checkpoint=base", f"datasets=[{folder.absolute()}/]", "edge_ablations=[]", "encoder=none"]
        settings += ["retriever=bm25", f"paths.cache={work}/cache", f"paths.runs={work}/runs"]
        start = time.perf_counter()
        subprocess.run([sys.executable, str(ROOT / "evaluate.py"), *settings], check=True, stdout=subprocess.DEVNULL)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1e3}


def serve(folder: Path) -> dict[str, float]:
    """Time the start of ``serve.py`` and ``POST /search``, one question after the other."""
    dataset = open_corpus(folder)
    settings = ["artifact=base", "encoder=none", f"index={folder.absolute()}", "pipeline=vector_search"]
    settings += ["retriever=bm25", "workers=2", "browser=false"]
    start = time.perf_counter()
    with running_service(serve_command(*settings)) as (port, service):
        ready = time.perf_counter() - start
        processes = [service, *service.children(recursive=True)]
        half = len(dataset.query_texts) // 2
        _search_by_http(port, dataset.query_texts[:half])
        before = sum(sum(process.cpu_times()[:2]) for process in processes)
        times, stages = _search_by_http(port, dataset.query_texts[half:])
        cpu = sum(sum(process.cpu_times()[:2]) for process in processes) - before
        memory = [process.memory_full_info() for process in processes]
    return {
        "ready_seconds": ready, "p50_ms": float(np.median(times)), "p95_ms": float(np.quantile(times, 0.95)),
        "cpu_mean_ms": 1000 * cpu / len(times),
        **{f"{name}_p50_ms": float(np.median(of)) for name, of in stages.items()},
        "largest_mb": max(of.rss for of in memory) / 1e6, "largest_own_mb": max(of.uss for of in memory) / 1e6,
    }  # fmt: skip


def serve_grow(source: Path, folder: Path, size: int) -> dict[str, float]:
    """Time ``POST /documents`` of one passage, until searches over new connections have found it ten times."""
    words = folder.with_name(f"{folder.name}-words")  # Vectors would require the encoder of the service.
    prepare_corpus(make_dataset(source, size), words)
    settings = ["artifact=base", "encoder=none", f"index={words.absolute()}", "pipeline=vector_search"]
    added, found = [], []
    with running_service(serve_command(*settings, "retriever=bm25", "workers=2", "browser=false")) as (port, _):
        for number in range(NUM_SERVED):
            name, start = f"served{number}", time.perf_counter()
            passage = {"id": name, "text": f"{name} is a passage that was added"}
            _post(port, "/documents", {"documents": [passage], "edges": [[name, "p0"]]})
            added.append(time.perf_counter() - start)
            for _ in range(10):
                while _post(port, "/search", {"query": name})["results"][0]["doc_id"] != name:
                    assert time.perf_counter() < start + 60, f"{name} is not found"
            found.append(time.perf_counter() - start)
    return {"added_p50_s": float(np.median(added)), "found_p50_s": float(np.median(found)), "found_max_s": max(found)}


def _post(port: int, path: str, body: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"POST {path} answered {answer.status}: {content[:200]!r}")
    return json.loads(content)


def _search_by_http(port: int, questions: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
    """Send one question after the other, and return the milliseconds of each answer and of its stages."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, stages = [], defaultdict(list)
    for text in questions:
        start = time.perf_counter()
        body = json.dumps({"query": text})
        connection.request("POST", "/search", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        times.append(1000 * (time.perf_counter() - start))
        if answer.status != 200:
            raise RuntimeError(f"POST /search answered {answer.status}: {content[:200]!r}")
        for name, milliseconds in re.findall(r"([\w/]+);dur=([\d.]+)", answer.headers["server-timing"]):
            stages[name].append(float(milliseconds))
    connection.close()
    return times, stages


def main() -> None:
    """Measure each step for each size in a separate process, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="data set folder that provides the sentences")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the corpus folders")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100_000, 1_000_000], help="numbers of passages (default: %(default)s)"
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        default=["bm25", "dense", "dense_ivf", "hybrid", "hybrid_ivf", "hybrid_expand_ivf+base"],
        help="retrievers to search with; +NAME reranks with a checkpoint (default: %(default)s)",
    )
    parser.add_argument("--step", help="run one measurement in this process")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.step:
        folder = args.folder / str(args.sizes[0])
        if args.step.startswith("prepare"):
            index = args.step.partition("_")[2] or None
            found = prepare(args.source, folder, args.sizes[0], index)
        elif args.step == "compare":
            found = compare(args.source, folder, args.sizes[0])
        elif args.step == "evaluate":
            found = evaluate(folder)
        elif args.step == "serve":
            found = serve(folder)
        elif args.step == "serve_grow":
            found = serve_grow(args.source, folder, args.sizes[0])
        elif args.step == "grow_ivf":
            found = grow_ivf(args.source, folder, args.sizes[0])
        elif args.step == "grow":
            found = grow(args.source, folder, args.sizes[0])
        else:
            found = search(folder, args.step)
        print(json.dumps(found))
        return
    for size in args.sizes:
        steps = ["prepare", "prepare_ivf", *args.systems, "evaluate", "serve"]
        if size <= COMPARED:
            steps += ["compare", "grow_ivf"]
        steps += ["serve_grow", "grow"]
        for step in steps:
            command = [sys.executable, __file__, str(args.source), "--folder", str(args.folder), "--sizes", str(size)]
            done = subprocess.run([*command, "--step", step], stdout=subprocess.PIPE, text=True, check=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{size:,} {step}: " + ", ".join(f"{name} {figure:,.2f}" for name, figure in figures.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
