"""``python evaluate.py experiment=ket_solutions``: KET-RAG's solutions, sweeps, rerankers behind it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graphrerank.cli.job_session import JobSession
from graphrerank.data.encoder import Encoder
from graphrerank.data.pair_cache import PairCache
from graphrerank.data.readers.documents import read_documents, read_queries
from graphrerank.data.vector_cache import VectorCache
from graphrerank.files import write_json, write_text
from graphrerank.graphs import PairEncoder, Queries
from graphrerank.graphs.queries import query_encoder
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank_papers.ket.builder import KETIndexBuilder
from graphrerank_papers.ket.contexts import ContextResult, Questions, judge_contexts
from graphrerank_papers.ket.degrees import Degrees, count_degrees, draw_degrees
from graphrerank_papers.ket.index import KETIndex, KETSettings
from graphrerank_papers.ket.page import Sweep, draw_sweep, render_ket
from graphrerank_papers.ket.rerank import chunk_corpus, pack_chunks
from graphrerank_papers.ket.rerankers import Order, by_granker, by_graph_reranker
from graphrerank_papers.ket.retrieval import Contexts, KETRetrieval, find_solution
from graphrerank_papers.ket.search import KETSearch

INDEXED = ("num_neighbours", "core_share", "seed", "description_tokens")  # settings of the step that make the index
RETRIEVED = ("context_tokens", "graph_share", "num_seeds")  # and that retrieve
GRAPH_ALONE = "knng_rag"  # whose index is the graph of nearest chunks and no more
SOLUTION = "ket_p"  # behind which rerankers are put


@dataclass(frozen=True, kw_only=True)
class Rerankers:
    """Rerankers behind the last version of :data:`SOLUTION`; ``conf/experiment/ket_solutions.yaml`` describes them."""

    checkpoint: str | None = None
    smoothing: float
    limits: Sequence[int]
    num_queries: int | None = None


@dataclass(frozen=True, kw_only=True)
class KETSolutions:
    """The job; ``conf/experiment/ket_solutions.yaml`` describes its settings."""

    data: str
    titles: bool
    join: bool
    solutions: Sequence[str]
    versions: Sequence[Mapping[str, int]]
    sweeps: Mapping[str, Mapping[str, Any]] | None = None
    rerank: Rerankers | None = None
    answers: Any = None  # an `AnswerStage`, or None
    degrees: bool = False
    search: "partial[KETSearch]"
    encoder: Encoder
    pair_encoder: PairEncoder | None = None

    def __post_init__(self) -> None:
        known = {*INDEXED, *RETRIEVED, "chunk_tokens", "num_splits"}
        for name, sweep in (self.sweeps or {}).items():
            if unknown := sorted({name, *sweep} - {*known, "values", "solutions"}):
                raise ValueError(f"`job.sweeps` must name settings of KET-RAG, {sorted(known)}, got {unknown[0]!r}")

    def __call__(self, session: JobSession) -> Path:
        """Measure, and write the page and ``metrics.json`` after every row."""
        run_dir, bench = session.run_dir, _Bench(self, session)
        solutions: list[ContextResult] = []
        sweeps: dict[str, dict[str, dict[float, ContextResult]]] = {}
        rerankers: list[ContextResult] = []
        degrees = [bench.degrees(**version) for version in self.versions] if self.degrees else []
        if degrees:
            draw_degrees(run_dir / "degrees.png", degrees)

        def write() -> None:
            content = {
                "degrees": [asdict(entry) for entry in degrees],
                "solutions": [result.to_json() for result in solutions],
                "sweeps": {name: _sweep_json(points) for name, points in sweeps.items()},
                "rerankers": [result.to_json() for result in rerankers],
            }
            write_json(run_dir / "metrics.json", content)
            write_text(run_dir / "report.md", render_ket(degrees, solutions, sweeps, rerankers))

        write()
        for solution, settings in self._table():
            solutions.append(bench.judge(solution, **settings))
            print(_line(solutions[-1]), flush=True)
            write()
        for name, sweep in (self.sweeps or {}).items():
            points: dict[str, dict[float, ContextResult]] = {key: {} for key in sweep["solutions"]}
            for value, settings in self._points(name, sweep):
                for solution in points:
                    points[solution][value] = bench.judge(solution, **settings)
                    print(name, _line(points[solution][value]), flush=True)
            sweeps[name] = points
            draw_sweep(run_dir / f"{name}.png", name, points)
            write()
        if self.rerank is not None:
            for result in bench.rerankers(self.rerank, **self.versions[-1]):
                rerankers.append(result)
                print(_line(result), flush=True)
                write()
        return run_dir

    def _table(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """List the table's rows: halved chunks also whole, to compare their keywords with equal chunks."""
        for version in self.versions:
            for solution in self.solutions:
                splits = version["num_splits"] if find_solution(solution).splits_chunks else 0
                for num_splits in dict.fromkeys((splits, 0)):
                    yield solution, {**version, "num_splits": num_splits}

    def _points(self, name: str, sweep: Mapping[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        """List a sweep's values and settings; another setting may be one value, or a list that goes along."""
        others = {key: value for key, value in sweep.items() if key not in ("values", "solutions")}
        for step, value in enumerate(sweep["values"]):
            along = {key: given[step] if isinstance(given, list) else given for key, given in others.items()}
            yield value, {**self.versions[-1], **along, name: value}


class _Bench:
    """Corpus, questions, builders and judges."""

    def __init__(self, plan: KETSolutions, session: JobSession) -> None:
        self._plan, self._session, self._step = plan, session, plan.search.keywords
        folder, cache = Path(plan.data), session.cache
        self._documents = [document.passage if plan.titles else document.text for document in read_documents(folder)]
        torch.set_num_threads(session.num_threads)
        encoder = VectorCache(plan.encoder, cache / "vectors")
        self._questions = _questions(folder, encoder)
        self._builder = KETIndexBuilder(
            self._step["folder"],
            tokenizer=self._step["tokenizer"],
            encoder=encoder,
            extractor=self._step["extractor"],
        )
        self._indexes: dict[KETSettings, KETIndex] = {}

    def judge(self, solution: str, **settings: Any) -> ContextResult:
        """Judge a solution; ``settings`` are those of index and retrieval that are not the step's."""
        index, seconds = self._index(solution, settings)
        retrieval = self._retrieval(index, solution, settings)
        return judge_contexts(
            lambda queries: retrieval(queries.encoded),
            self._questions,
            answers=self._plan.answers,
            settings={"solution": solution, **settings, "num_splits": index.settings.num_splits},
            index_seconds=seconds,
            report=index.report,
        )

    def degrees(self, **settings: Any) -> Degrees:
        """Count the neighbours of the chunks of a version."""
        index, _ = self._index(GRAPH_ALONE, {**settings, "num_splits": 0})
        return count_degrees(index.chunk_graph.edges, len(index.chunks), chunk_tokens=index.settings.chunk_tokens)

    def rerankers(self, plan: Rerankers, **settings: Any) -> Iterator[ContextResult]:
        """Judge contexts of fewer tokens: retrieved so, and of the whole context's chunks in a reranker's order."""
        index, _ = self._index(SOLUTION, settings)
        questions = self._questions.first(plan.num_queries)
        for limit in plan.limits:
            small = self._retrieval(index, SOLUTION, {**settings, "context_tokens": limit})
            yield judge_contexts(
                lambda queries, small=small: small(queries.encoded),  # type: ignore[misc]
                questions,
                settings={"order": f"{SOLUTION} of that size", "limit": limit},
            )
        whole = self._retrieval(index, SOLUTION, settings)
        for name, order in self._orders(index, plan).items():
            for limit in plan.limits:

                def rerank(queries: Queries, order: Order = order, limit: int = limit) -> Contexts:
                    return pack_chunks(index, order(queries, whole(queries.encoded).ranking), limit)

                yield judge_contexts(rerank, questions, settings={"order": name, "limit": limit})

    def _orders(self, index: KETIndex, plan: Rerankers) -> dict[str, Order]:
        graph = chunk_corpus(index)
        orders: dict[str, Order] = {"cosine": lambda queries, ranking: ranking}
        if plan.checkpoint is not None:
            reranker = GraphReranker.from_pretrained(plan.checkpoint, device=self._session.device)
            orders[f"GATv2 `{plan.checkpoint}`"] = by_graph_reranker(graph, reranker)
        if self._plan.pair_encoder is not None:
            encoder = PairCache(self._plan.pair_encoder, self._session.cache / "pairs")
            orders["cross-encoder"] = by_granker(graph, encoder, smoothing=0.0)
            orders["GRanker"] = by_granker(graph, encoder, smoothing=plan.smoothing)
        return orders

    def _index(self, solution: str, settings: Mapping[str, Any]) -> tuple[KETIndex, float]:
        made = {**{name: self._step[name] for name in INDEXED}, **settings}
        made = {name: value for name, value in made.items() if name not in RETRIEVED}
        needed = find_solution(solution).settings(KETSettings(join=self._plan.join, **made))
        begin = time.perf_counter()
        if needed not in self._indexes:
            self._indexes = {needed: self._builder.build(self._documents, needed)}  # one at a time in memory
        return self._indexes[needed], time.perf_counter() - begin

    def _retrieval(self, index: KETIndex, solution: str, settings: Mapping[str, Any]) -> KETRetrieval:
        arguments = {name: settings.get(name, self._step[name]) for name in RETRIEVED}
        return KETRetrieval(index, solution=solution, **arguments).to(self._session.device)


def _questions(folder: Path, encoder: VectorCache) -> Questions:
    queries = list(read_queries(folder))
    answers = [query.answers or [] for query in queries]
    if missing := next((query.query_id for query, right in zip(queries, answers, strict=True) if not right), None):
        raise ValueError(f"{folder}: every question needs an `answer` in its metadata, found none in {missing!r}")
    texts = [query.text for query in queries]
    return Questions(
        Queries([query.query_id for query in queries], texts, query_encoder(encoder).encode(texts)), answers
    )


def _sweep_json(points: Sweep) -> dict[str, Any]:
    return {
        solution: {f"{value:g}": result.to_json() for value, result in by_value.items()}
        for solution, by_value in points.items()
    }


def _line(result: ContextResult) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    measures = ", ".join(f"{name} {result.mean(name):.1f}" for name in result.values)
    return f"{settings}: {measures}, {result.milliseconds:.1f} ms, index {result.index_seconds:.1f} s"
