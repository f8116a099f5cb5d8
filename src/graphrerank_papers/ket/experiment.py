"""``python evaluate.py experiment=ket_solutions``: KET-RAG's solutions, sweeps, rerankers behind it."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import torch

from graphrerank.checks import UserError, check_counts
from graphrerank.data.encoder import Encoder
from graphrerank.data.readers.documents import read_documents, read_queries
from graphrerank.data.vector_cache import PairCache, VectorCache
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.graphs import CorpusGraph, EntityIncidence, PairEncoder, Queries, Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES, SIMILARITY
from graphrerank.graphs.queries import query_encoder
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.metrics.coverage import coverage
from graphrerank.parts import Parts
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.pipelines.steps import GRanker
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.experiments import write_tables
from graphrerank_papers.indexing import padded_ranking
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings, Tokens
from graphrerank_papers.ket.retrieval import Contexts, KETRetrieval, KETSearch, find_solution, first_that_fit
from graphrerank_papers.knowledge.corpus_knowledge import grouped

RETRIEVED = ("context_tokens", "graph_share", "num_seeds")  # settings of the step that retrieve
INDEXED = ("chunk_tokens", "num_neighbours", "core_share", "seed", "num_splits", "description_tokens")  # of its index
SOLUTION = "ket_p"  # behind which rerankers are put
BATCH = 16  # questions retrieved at once

Row = dict[str, Any]  # of a table: settings and measures by name
Order = Callable[[Queries, Ranking], Ranking]


@dataclass(frozen=True, kw_only=True)
class Rerankers:
    """Rerankers behind the last version of :data:`SOLUTION`; ``conf/experiment/ket_solutions.yaml`` describes them."""

    checkpoint: str | None = None
    smoothing: float
    limits: Sequence[int]
    num_queries: int | None = None


@dataclass(kw_only=True)
class KETSolutions:
    """The job; ``conf/experiment/ket_solutions.yaml`` describes its settings."""

    data: str
    titles: bool
    join: bool
    solutions: Sequence[str]
    versions: Sequence[Mapping[str, int]]
    sweeps: Mapping[str, Mapping[str, Any]] | None = None
    rerank: Rerankers | None = None
    answers: AnswerStage | None = None
    search: "partial[KETSearch]"
    encoder: Encoder
    pair_encoder: PairEncoder | None = None

    def __post_init__(self) -> None:
        known = {*INDEXED, *RETRIEVED}
        for name, sweep in (self.sweeps or {}).items():
            if unknown := sorted({name, *sweep} - {*known, "values", "solutions"}):
                raise UserError(f"`job.sweeps` must name settings of KET-RAG, {sorted(known)}, got {unknown[0]!r}")

    def __call__(self, parts: Parts, run_dir: Path) -> Path:
        """Measure, and write the tables and ``metrics.json`` after every row."""
        tables: dict[str, list[Row]] = {}
        write_tables(run_dir, "KET-RAG's experiments", tables)
        self._open(parts)
        for table, row in self._rows():
            tables.setdefault(table, []).append(row)
            shown = (f"{name} {entry}" for name, entry in row.items() if isinstance(entry, str | int | float))
            print(f"{table}:", ", ".join(shown), flush=True)
            write_tables(run_dir, "KET-RAG's experiments", tables)
        return run_dir

    def _open(self, parts: Parts) -> None:
        """Read corpus and questions, which must have answers."""
        torch.set_num_threads(parts.num_threads)
        self._parts, self._step, folder = parts, self.search.keywords, Path(self.data)
        self._documents = [document.passage if self.titles else document.text for document in read_documents(folder)]
        queries = list(read_queries(folder))
        if missing := next((query.query_id for query in queries if not query.answers), None):
            raise UserError(f"{folder}: every question needs an `answer` in its metadata, found none in {missing!r}")
        encoder = VectorCache(self.encoder, parts.cache / "vectors")
        ids, texts = [query.query_id for query in queries], [query.text for query in queries]
        self._queries = Queries(ids, texts, query_encoder(encoder).encode(texts))
        self._right = [query.answers or [] for query in queries]
        models = {name: self._step[name] for name in ("tokenizer", "extractor")}
        self._builder = KETIndexBuilder(self._step["folder"], encoder=encoder, **models)
        self._built: KETIndex | None = None  # one at a time in memory

    def _rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the rows, each with the name of its table."""
        for version in self.versions:
            for solution in self.solutions:
                splits = version["num_splits"] if find_solution(solution).splits_chunks else 0
                for num_splits in dict.fromkeys((splits, 0)):  # also whole, to compare keywords with equal chunks
                    yield "solutions", self._judge(solution, {**version, "num_splits": num_splits})
        for name, sweep in (self.sweeps or {}).items():
            others = {key: given for key, given in sweep.items() if key not in ("values", "solutions")}
            for step, value in enumerate(sweep["values"]):
                along = {key: given[step] if isinstance(given, list) else given for key, given in others.items()}
                for solution in sweep["solutions"]:
                    yield name, self._judge(solution, {**self.versions[-1], **along, name: value})
        if self.rerank is not None:
            yield from (("rerankers", row) for row in self._reranked(self.rerank))

    def _judge(self, solution: str, settings: Mapping[str, Any]) -> Row:
        """Judge a solution; ``settings`` are those of index and retrieval that are not the step's."""
        begin = time.perf_counter()
        index = self._index(solution, settings)
        seconds, retrieval = time.perf_counter() - begin, self._retrieval(index, solution, settings)
        sizes, sent = index.sizes, model_tokens(index)

        def retrieve(queries: Queries) -> Contexts:
            return retrieval(queries.encoded)

        judged = judge_contexts(retrieve, self._queries, self._right, answers=self.answers)
        row = {"solution": solution, **settings, "num_splits": index.settings.num_splits, **judged}
        row |= {"chunks": sizes["sub-chunks"], **{name: sizes[name] for name in ("entities", "relations", "keywords")}}
        row |= {"encoder_tokens": sent.encoder, "model_tokens": sent.model_input + sent.model_output}
        return row | {"USD of index": sent.dollars, "index_seconds": seconds}

    def _reranked(self, settings: Rerankers) -> Iterator[Row]:
        """Judge contexts of fewer tokens: retrieved so, and of the whole context's chunks in a reranker's order."""
        version = self.versions[-1]
        index, count = self._index(SOLUTION, version), settings.num_queries
        queries = self._queries if count is None else self._queries.block(0, count)
        whole = self._retrieval(index, SOLUTION, version)

        def reordered(order: Order, limit: int, queries: Queries) -> Contexts:
            return pack_chunks(index, order(queries, whole(queries.encoded).ranking), limit)

        def retrieved(limit: int, queries: Queries) -> Contexts:
            return self._retrieval(index, SOLUTION, {**version, "context_tokens": limit})(queries.encoded)

        ways: dict[str, Callable[[int, Queries], Contexts]] = {f"{SOLUTION} of that size": retrieved}
        ways |= {name: partial(reordered, order) for name, order in self._orders(index, settings).items()}
        for name, retrieve in ways.items():
            for limit in settings.limits:
                judged = judge_contexts(partial(retrieve, limit), queries, self._right)
                yield {"order": name, "limit": limit, **judged}

    def _orders(self, index: KETIndex, settings: Rerankers) -> dict[str, Order]:
        graph = chunk_corpus(index)
        orders: dict[str, Order] = {"cosine": lambda queries, ranking: ranking}
        if settings.checkpoint is not None:
            reranker = GraphReranker.from_pretrained(settings.checkpoint, device=self._parts.device)
            orders[f"GATv2 `{settings.checkpoint}`"] = partial(by_graph_reranker, graph, reranker)
        if self.pair_encoder is not None:
            encoder = PairCache(self.pair_encoder, self._parts.cache / "pairs")
            orders["cross-encoder"] = partial(by_granker, graph, encoder, 0.0)
            orders["GRanker"] = partial(by_granker, graph, encoder, settings.smoothing)
        return orders

    def _index(self, solution: str, settings: Mapping[str, Any]) -> KETIndex:
        given = {**asdict(self._step["index"]), "join": self.join, **settings}
        needed = find_solution(solution).settings(KETSettings(**{k: v for k, v in given.items() if k not in RETRIEVED}))
        if self._built is None or self._built.settings != needed:
            self._built = self._builder.build(self._documents, needed)
        return self._built

    def _retrieval(self, index: KETIndex, solution: str, settings: Mapping[str, Any]) -> KETRetrieval:
        arguments = {name: settings.get(name, self._step[name]) for name in RETRIEVED}
        return KETRetrieval(index, solution=solution, **arguments, device=self._parts.device)


def model_tokens(index: KETIndex) -> Tokens:
    """Return the tokens sent to models; without a language model, those that one would read, without prompts.

    Source: KET-RAG, section 5.3: each core chunk is read twice.
    """
    if index.sent.model_input:
        return index.sent
    return replace(index.sent, model_input=2 * int(index.chunks.num_tokens[index.core].sum()))


def judge_contexts(
    retrieve: Callable[[Queries], Contexts],
    queries: Queries,
    right: Sequence[Sequence[str]],
    *,
    answers: AnswerStage | None = None,
) -> Row:
    """Retrieve contexts for ``Q`` queries, look for the right answers in them, and let a stage answer from them.

    The row has means of ``Coverage``, with its 95% bootstrap ``interval``, and where a stage answers of ``EM`` and
    ``F1``; ``ms``, the median per question, retrieved in batches of 16, without encoding it; and ``context_tokens``.
    """
    retrieve(queries.block(0, BATCH))  # warm
    texts, packed, milliseconds = list[str](), list[Context](), list[float]()
    for block in queries.blocks(BATCH):
        begin = time.perf_counter()
        contexts = retrieve(block)
        milliseconds.append(1000 * (time.perf_counter() - begin) / len(block))
        texts += contexts.texts
        packed += starmap(Context, zip(contexts.passages, contexts.num_tokens, strict=True))
    right = right[: len(queries)]
    covered = torch.tensor([coverage(*pair) for pair in zip(texts, right, strict=True)], dtype=torch.float64)
    row: Row = {"Coverage": float(covered.mean()), "interval": bootstrap_interval(covered).tolist()}
    if answers is not None:
        (written,) = answers.answer(queries.texts, {"": packed}, right).values()
        row |= {name: float(written.values[name].mean()) for name in ("EM", "F1")}
        row |= {"USD of answers": written.counts.usd, "answers": asdict(written.counts)}
    tokens = statistics.mean(context.num_tokens for context in packed)
    return {**row, "questions": len(queries), "ms": statistics.median(milliseconds), "context_tokens": tokens}


def chunk_corpus(index: KETIndex) -> CorpusGraph:
    """Return an index's chunks as a corpus with the edges of the chunk graph and the entities of the skeleton.

    Chunks must not be halved, as the chunk graph joins whole ones.
    """
    if index.settings.num_splits:
        raise UserError(f"`index` must have whole chunks (`num_splits` 0), got {index.settings.num_splits}")
    ids = [str(chunk) for chunk in range(len(index.sub_chunks))]
    graph = CorpusGraph.from_edges(ids, index.sub_chunks.texts, index.chunk_graph.edges, edge_type=SIMILARITY)
    graph = graph.with_embedding(index.sub_chunks.vectors)
    if index.skeleton is None:
        return graph
    knowledge = index.skeleton.knowledge
    links = ((chunk, knowledge.names[entity]) for entity, chunk in knowledge.entity_links.tolist())
    return replace(graph, entities=EntityIncidence.from_names(grouped(links, len(ids))))


def pack_chunks(index: KETIndex, ranking: Ranking, context_tokens: int) -> Contexts:
    """Fill contexts of at most ``context_tokens`` with the first chunks of a ranking ``[B, C]`` that fit, in order."""
    check_counts(context_tokens=context_tokens)
    texts, lengths = index.sub_chunks.texts, index.sub_chunks.num_tokens.tolist()
    rows = []
    for nodes, scores in zip(ranking.nodes.tolist(), ranking.scores.tolist(), strict=True):
        scored = {node: score for node, score in zip(nodes, scores, strict=True) if node >= 0}
        rows.append({node: scored[node] for node in first_that_fit(scored, lengths, context_tokens)})
    packed = [tuple(texts[node] for node in row) for row in rows]
    num_tokens = [sum(lengths[node] for node in row) for row in rows]
    return Contexts(padded_ranking(rows).to(ranking.nodes.device), packed, num_tokens)


def by_graph_reranker(graph: CorpusGraph, reranker: GraphReranker, queries: Queries, ranking: Ranking) -> Ranking:
    """Order chunks by a trained graph reranker of BM25, cosine and the edges among them, which join similar ones."""
    assert graph.embedding is not None
    assert graph.entities is not None
    entities, similar = graph.entities, EDGE_TYPES[SIMILARITY]

    def held(node: int) -> list[str]:
        return [entities.names[e] for e in entities.indices[entities.indptr[node] : entities.indptr[node + 1]].tolist()]

    inputs, rows = [], [[node for node in row if node >= 0] for row in ranking.nodes.tolist()]
    for text, vector, row in zip(queries.texts, queries.encoded, rows, strict=True):
        origin, others = graph.neighbours(torch.tensor(row, dtype=torch.int64), SIMILARITY)
        pairs, inside = zip(origin.tolist(), others.tolist(), strict=True), set(row)
        edges = [(row[i], other) for i, other in pairs if row[i] < other and other in inside]
        given: dict[str, Any] = {"edges": edges, "edge_types": [similar] * len(edges), "entities": [*map(held, row)]}
        given |= {"query_vector": vector, "vectors": graph.embedding[row], "ids": row}
        inputs.append(RerankInput(text, [graph.texts[node] for node in row], **given))
    return padded_ranking([dict(each) for each in reranker.rerank_batch(inputs)]).to(ranking.nodes.device)


def by_granker(
    graph: CorpusGraph, encoder: PairEncoder, smoothing: float, queries: Queries, ranking: Ranking
) -> Ranking:
    """Order chunks by a cross-encoder's head on smoothed vectors; without smoothing, by the cross-encoder."""
    resources = Resources(graph, budget=graph.num_nodes, retriever=_search_nothing, pair_encoder=encoder)
    state = RetrievalState.start(queries, graph.device).with_ranking(ranking.nodes, ranking.scores)
    return GRanker(resources, smoothing=smoothing).run(state).ranking


def _search_nothing(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("chunks are ranked, not searched")
