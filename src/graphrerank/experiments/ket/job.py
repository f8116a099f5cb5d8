"""``python evaluate.py experiment=ket_solutions``: KET-RAG's solutions, sweeps, rerankers behind it."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.session import Session
from graphrerank.data import PairCache, VectorCache
from graphrerank.data.readers.folder import read_documents, read_queries, right_answers
from graphrerank.experiments.ket.contexts import ContextResult, Questions, judge_contexts
from graphrerank.experiments.ket.page import Sweep, draw_sweep, render_ket
from graphrerank.files import write_json, write_text
from graphrerank.graphs import CorpusGraph, PairEncoder, Queries, Ranking
from graphrerank.indexes import KETIndex, KETIndexBuilder, KETSettings
from graphrerank.inference import GraphReranker, RerankInput
from graphrerank.language_models import AnswerCache, ChatModel
from graphrerank.pipelines import (
    Contexts,
    GRanker,
    KETRetrieval,
    Resources,
    RetrievalState,
    chunk_corpus,
    find_solution,
    pack_chunks,
)

INDEXED = ("num_neighbours", "core_share", "seed", "description_tokens")  # settings of the step that make the index
RETRIEVED = ("context_tokens", "graph_share", "num_seeds")  # and that retrieve
SOLUTION = "ket_p"  # behind which rerankers are put

Order = Callable[[Queries, Ranking], Ranking]


def judge_ket(cfg: DictConfig) -> Path:
    """Measure what ``cfg.ket`` asks for, and write the page and ``metrics.json`` after every row.

    Returns:
        The run folder, which is also the last line printed.

    Raises:
        ValueError: If the plan names an unknown setting, or a question has no answer.
    """
    run_dir = Path(cfg.paths.run_dir)
    plans = {str(name): list(_points(cfg.ket, name, plan)) for name, plan in (cfg.ket.sweeps or {}).items()}
    bench = _Bench(cfg)
    solutions: list[ContextResult] = []
    sweeps: dict[str, dict[str, dict[float, ContextResult]]] = {}
    rerankers: list[ContextResult] = []

    def write() -> None:
        content = {
            "solutions": [result.to_json() for result in solutions],
            "sweeps": {name: _sweep_json(points) for name, points in sweeps.items()},
            "rerankers": [result.to_json() for result in rerankers],
        }
        write_json(run_dir / "metrics.json", content)
        write_text(run_dir / "report.md", render_ket(solutions, sweeps, rerankers))

    for solution, settings in _table(cfg.ket):
        solutions.append(bench.judge(solution, **settings))
        print(_line(solutions[-1]), flush=True)
        write()
    for name, settings_of in plans.items():
        points: dict[str, dict[float, ContextResult]] = {key: {} for key in cfg.ket.sweeps[name].solutions}
        for value, settings in settings_of:
            for solution in points:
                points[solution][value] = bench.judge(solution, **settings)
                print(name, _line(points[solution][value]), flush=True)
        sweeps[name] = points
        draw_sweep(run_dir / f"{name}.png", name, points)
        write()
    if cfg.ket.rerank is not None:
        for result in bench.rerankers(cfg.ket.rerank, **_version(cfg.ket)):
            rerankers.append(result)
            print(_line(result), flush=True)
            write()
    print(run_dir, flush=True)
    return run_dir


class _Bench:
    """Corpus, questions, and what builds and judges."""

    def __init__(self, cfg: DictConfig) -> None:
        self._cfg, self._step = cfg, cfg.pipeline.steps[0]
        folder, cache = Path(cfg.ket.data), Path(cfg.paths.cache)
        self._documents = [one.passage if cfg.ket.titles else one.text for one in read_documents(folder)]
        torch.set_num_threads(cfg.num_threads)
        encoder = VectorCache(instantiate(cfg.encoder), cache / "vectors")
        self._questions = _questions(folder, encoder)
        self._builder = KETIndexBuilder(
            self._step.folder,
            tokenizer=instantiate(self._step.tokenizer),
            encoder=encoder,
            extractor=instantiate(self._step.extractor),
        )
        self._indexes: dict[KETSettings, KETIndex] = {}
        self._language_model: ChatModel | None = None
        if cfg.ket.language_model is not None:
            self._language_model = AnswerCache(instantiate(cfg.ket.language_model), cache / "answers")

    def judge(self, solution: str, **settings: Any) -> ContextResult:
        """Judge a solution; ``settings`` are those of index and retrieval that are not the step's."""
        index, seconds = self._index(solution, settings)
        retrieval = self._retrieval(index, solution, settings)
        told = {"solution": solution, **settings, "num_splits": index.settings.num_splits}
        return judge_contexts(
            lambda queries: retrieval(queries.encoded),
            self._questions,
            language_model=self._language_model,
            settings=told,
            index_seconds=seconds,
            report=index.report,
        )

    def rerankers(self, plan: DictConfig, **settings: Any) -> Iterator[ContextResult]:
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

    def _orders(self, index: KETIndex, plan: DictConfig) -> dict[str, Order]:
        graph = chunk_corpus(index)
        orders: dict[str, Order] = {"cosine": lambda queries, ranking: ranking}
        if plan.checkpoint is not None:
            reranker = GraphReranker.from_pretrained(plan.checkpoint, device=Session(self._cfg).device)
            orders[f"GATv2 `{plan.checkpoint}`"] = by_graph_reranker(graph, reranker)
        if self._cfg.pair_encoder is not None:
            encoder = PairCache(instantiate(self._cfg.pair_encoder), Path(self._cfg.paths.cache) / "pairs")
            orders["cross-encoder"] = by_granker(graph, encoder, smoothing=0.0)
            orders["GRanker"] = by_granker(graph, encoder, smoothing=plan.smoothing)
        return orders

    def _index(self, solution: str, settings: Mapping[str, Any]) -> tuple[KETIndex, float]:
        made = {**{name: self._step[name] for name in INDEXED}, **settings}
        made = {name: value for name, value in made.items() if name not in RETRIEVED}
        wanted = find_solution(solution).settings(KETSettings(join=self._cfg.ket.join, **made))
        begin = time.perf_counter()
        if wanted not in self._indexes:
            self._indexes = {wanted: self._builder.build(self._documents, wanted)}  # one at a time in memory
        return self._indexes[wanted], time.perf_counter() - begin

    def _retrieval(self, index: KETIndex, solution: str, settings: Mapping[str, Any]) -> KETRetrieval:
        asked = {name: settings.get(name, self._step[name]) for name in RETRIEVED}
        return KETRetrieval(index, solution=solution, **asked).to(Session(self._cfg).device)


def by_graph_reranker(graph: CorpusGraph, reranker: GraphReranker) -> Order:
    """Order chunks by a trained graph reranker of BM25, cosine and the edges among them."""
    assert graph.embedding is not None
    assert graph.entities is not None
    vectors = graph.embedding
    names, entities = graph.entities.names, graph.entities
    neighbours = {
        node: graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist() for node in range(graph.num_nodes)
    }

    def order(queries: Queries, ranking: Ranking) -> Ranking:
        inputs, rows = [], [[node for node in row if node >= 0] for row in ranking.nodes.tolist()]
        for text, vector, row in zip(queries.texts, queries.encoded, rows, strict=True):
            place = {node: number for number, node in enumerate(row)}
            inputs.append(
                RerankInput(
                    text,
                    [graph.texts[node] for node in row],
                    edges=[(place[a], place[b]) for a in row for b in neighbours[a] if a < b and b in place],
                    entities=[
                        [names[e] for e in entities.indices[entities.indptr[node] : entities.indptr[node + 1]].tolist()]
                        for node in row
                    ],
                    query_vector=vector,
                    vectors=vectors[row],
                )
            )
        nodes, scores = torch.full_like(ranking.nodes, -1), torch.full_like(ranking.scores, -torch.inf)
        for number, (row, found) in enumerate(zip(rows, reranker.rerank_batch(inputs), strict=True)):
            nodes[number, : len(row)] = torch.tensor(row)[found.indices]
            scores[number, : len(row)] = found.scores
        return Ranking(nodes, scores)

    return order


def by_granker(graph: CorpusGraph, encoder: PairEncoder, *, smoothing: float) -> Order:
    """Order chunks by a cross-encoder's head on smoothed vectors; without smoothing, by the cross-encoder."""
    resources = Resources(graph, budget=graph.num_nodes, retriever=_no_retriever, pair_encoder=encoder)
    step = GRanker(resources, smoothing=smoothing)

    def order(queries: Queries, ranking: Ranking) -> Ranking:
        state = RetrievalState.start(queries, graph.device).with_ranking(ranking.nodes, ranking.scores)
        return step.run(state).ranking

    return order


def _no_retriever(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("chunks are ranked, not searched")


def _questions(folder: Path, encoder: VectorCache) -> Questions:
    queries = list(read_queries(folder))
    answers = [right_answers(query.metadata) for query in queries]
    if missing := next((query.query_id for query, own in zip(queries, answers, strict=True) if not own), None):
        raise ValueError(f"{folder}: every question needs an `answer` in its metadata, found none in {missing!r}")
    texts = [query.text for query in queries]
    return Questions(Queries([query.query_id for query in queries], texts, encoder.encode(texts)), answers)


def _version(plan: DictConfig) -> dict[str, Any]:
    """Give the settings of the last version."""
    return dict(plan.versions[-1])


def _table(plan: DictConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    """List what the table's rows are: halved chunks also whole, to compare their keywords with equal chunks."""
    for version in plan.versions:
        for solution in plan.solutions:
            splits = version.num_splits if find_solution(solution).splits_chunks else 0
            for num_splits in dict.fromkeys((splits, 0)):
                yield solution, {**version, "num_splits": num_splits}


def _points(plan: DictConfig, name: str, sweep: DictConfig) -> Iterator[tuple[float, dict[str, Any]]]:
    """List a sweep's values and settings; another setting may be one value, or a list that goes along."""
    others = {str(key): value for key, value in sweep.items() if key not in ("values", "solutions")}
    known = {*INDEXED, *RETRIEVED, "chunk_tokens", "num_splits"}
    if unknown := sorted({name, *others} - known):
        raise ValueError(f"`ket.sweeps` must name settings of KET-RAG, {sorted(known)}, got {unknown[0]!r}")
    for number, value in enumerate(sweep["values"]):
        along = {key: given[number] if OmegaConf.is_list(given) else given for key, given in others.items()}
        yield value, {**_version(plan), **along, name: value}


def _sweep_json(points: Sweep) -> dict[str, Any]:
    return {
        solution: {f"{value:g}": result.to_json() for value, result in found.items()}
        for solution, found in points.items()
    }


def _line(result: ContextResult) -> str:
    told = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    measures = ", ".join(f"{name} {result.mean(name):.1f}" for name in result.values)
    return f"{told}: {measures}, {result.milliseconds:.1f} ms, index {result.index_seconds:.1f} s"
