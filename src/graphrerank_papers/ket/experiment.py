"""Evaluate the solutions and parameter sweeps of KET-RAG: ``graphrerank evaluate experiment=ket_solutions``."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.config.components import ComponentFactory
from graphrerank.core import Encoder, Queries
from graphrerank.core.adapters import query_encoder
from graphrerank.data.readers.documents import read_documents, read_queries
from graphrerank.data.vector_cache import VectorCache
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.metrics.coverage import coverage
from graphrerank.utils.checks import UserError
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.experiments import Experiment, TableRow, write_tables
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings, Tokens
from graphrerank_papers.ket.retrieval import Contexts, KETRetrieval, KETSearch, find_solution

#: Settings of the retrieval.
RETRIEVED = ("context_tokens", "graph_share", "num_seeds")
#: Settings of the index.
INDEXED = ("chunk_tokens", "num_neighbours", "core_share", "seed", "num_splits", "description_tokens")
#: Number of questions per batch.
BATCH_QUESTIONS = 16
#: Solution whose index is the graph of nearest chunks and nothing else.
CHUNK_GRAPH_SOLUTION = "knng_rag"
#: Share of the chunks, those with most neighbours, whose share of the ends of edges is reported.
CENTRAL_SHARE = 0.01


@dataclass(kw_only=True)
class KETSolutions(Experiment):
    """Job that compares the solutions of KET-RAG, with the settings of ``conf/experiment/ket_solutions.yaml``.

    Attributes:
        data: Folder with ``corpus.jsonl`` and ``queries.jsonl``. Every question needs an ``answer`` in its metadata.
        titles: Whether the text of a document starts with its title.
        join: Whether a chunk may span documents.
        solutions: Names of the solutions to compare.
        versions: Settings ``chunk_tokens`` and ``num_splits`` of each version of the index. Solutions without keywords
            do not split chunks.
        sweeps: Parameter sweeps by the name of the swept setting. Each has its ``values``, its ``solutions``, and
            optionally other settings: one value, or a list with one value per swept value. Settings that are not named
            are those of the last version. None runs no sweep.
        degrees: Whether to describe the degrees of the graph of nearest chunks of each version (Figure 2).
        answers: Stage that answers the questions, for EM and F1. If None, these measures are omitted.
        search: Builder of the pipeline step. Its settings are used where the experiment sets none.
        encoder: Encoder of texts.
    """

    data: str
    titles: bool
    join: bool
    solutions: Sequence[str]
    versions: Sequence[Mapping[str, int]]
    sweeps: Mapping[str, Mapping[str, Any]] | None = None
    degrees: bool = False
    answers: AnswerStage | None = None
    search: "partial[KETSearch]"
    encoder: Encoder

    def __post_init__(self) -> None:
        settings = {*INDEXED, *RETRIEVED}
        for name, sweep in (self.sweeps or {}).items():
            if unknown := sorted({name, *sweep} - {*settings, "values", "solutions"}):
                raise UserError(f"`job.sweeps` must name settings of KET-RAG, {sorted(settings)}, got {unknown[0]!r}")

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Evaluate all solutions. The tables and ``metrics.json`` are written after every row.

        Args:
            parts: Factory of components. Provides the cache folder, the device and the number of threads.
            run_dir: Folder of the run.

        Returns:
            Folder of the run.

        Raises:
            ValueError: If a question has no answer.
        """
        tables: dict[str, list[TableRow]] = {}
        write_tables(run_dir, "KET-RAG's experiments", tables)
        self._open(parts)
        for table, row in self._rows():
            tables.setdefault(table, []).append(row)
            cells = (f"{name} {entry}" for name, entry in row.items() if isinstance(entry, str | int | float))
            print(f"{table}:", ", ".join(cells), flush=True)
            write_tables(run_dir, "KET-RAG's experiments", tables)
        return run_dir

    def _open(self, parts: ComponentFactory) -> None:
        """Read the corpus and the questions, which must have answers."""
        torch.set_num_threads(parts.num_threads)
        self._parts, self._step, folder = parts, self.search.keywords, Path(self.data)
        self._documents = [document.passage if self.titles else document.text for document in read_documents(folder)]
        queries = list(read_queries(folder))
        if missing := next((query.query_id for query in queries if not query.answers), None):
            raise UserError(
                f"{folder}: every question needs an `answer` in its metadata; question {missing!r} has none"
            )
        encoder = VectorCache(self.encoder, parts.cache / "vectors")
        ids, texts = [query.query_id for query in queries], [query.text for query in queries]
        self._queries = Queries(ids, texts, query_encoder(encoder).encode(texts))
        self._right = [query.answers or [] for query in queries]
        models = {name: self._step[name] for name in ("tokenizer", "extractor")}
        self._builder = KETIndexBuilder(self._step["folder"], encoder=encoder, **models)
        self._built: KETIndex | None = None  # only one index is kept in memory

    def _rows(self) -> Iterator[tuple[str, TableRow]]:
        """Yield the name of the table and the row of each evaluation."""
        for version in self.versions if self.degrees else ():
            index = self._index(CHUNK_GRAPH_SOLUTION, {**version, "num_splits": 0})
            degrees = count_degrees(index.chunk_graph.edges, len(index.chunks))
            yield "degrees", {"chunk_tokens": index.settings.chunk_tokens, **degrees}
        for version in self.versions:
            for solution in self.solutions:
                splits = version["num_splits"] if find_solution(solution).splits_chunks else 0
                for num_splits in dict.fromkeys((splits, 0)):  # also unsplit, to compare all solutions on equal chunks
                    yield "solutions", self._judge(solution, {**version, "num_splits": num_splits})
        for name, sweep in (self.sweeps or {}).items():
            others = {key: setting for key, setting in sweep.items() if key not in ("values", "solutions")}
            for step, value in enumerate(sweep["values"]):
                along = {
                    key: setting[step] if isinstance(setting, list) else setting for key, setting in others.items()
                }
                for solution in sweep["solutions"]:
                    yield name, self._judge(solution, {**self.versions[-1], **along, name: value})

    def _judge(self, solution: str, settings: Mapping[str, Any]) -> TableRow:
        """Evaluate a solution with index and retrieval settings that replace those of the pipeline step."""
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

    def _index(self, solution: str, settings: Mapping[str, Any]) -> KETIndex:
        merged = {**asdict(self._step["index"]), "join": self.join, **settings}
        indexed = KETSettings(**{name: value for name, value in merged.items() if name not in RETRIEVED})
        needed = find_solution(solution).settings(indexed)
        if self._built is None or self._built.settings != needed:
            self._built = self._builder.build(self._documents, needed)
        return self._built

    def _retrieval(self, index: KETIndex, solution: str, settings: Mapping[str, Any]) -> KETRetrieval:
        arguments = {name: settings.get(name, self._step[name]) for name in RETRIEVED}
        return KETRetrieval(index, solution=solution, **arguments, device=self._parts.device)


def count_degrees(edges: Tensor, num_chunks: int) -> TableRow:
    """Describe the degrees of the chunks in the graph of nearest chunks.

    Source: "KET-RAG", 2025, Figure 2, which plots the number of chunks by degree.

    Args:
        edges: Undirected edges ``[E, 2]``, unique pairs.
        num_chunks: Number of chunks.

    Returns:
        Number of ``chunks``; ``mean`` and ``greatest`` degree; ``central_share``, the share of the ends of edges at the
        1% of the chunks with most neighbours; and ``counts``, the number of chunks by degree.

    Example:
        >>> count_degrees(torch.tensor([[0, 1], [0, 2]]), 4)
        {'chunks': 4, 'mean': 1.0, 'greatest': 2, 'central_share': 0.5, 'counts': {0: 1, 1: 2, 2: 1}}
    """
    degree = torch.bincount(edges.flatten(), minlength=num_chunks)
    values, numbers = torch.unique(degree, return_counts=True)
    central = degree.sort(descending=True).values[: max(1, round(CENTRAL_SHARE * num_chunks))]
    return {
        "chunks": num_chunks,
        "mean": float(degree.double().mean()),
        "greatest": int(degree.max()) if num_chunks else 0,
        "central_share": float(central.sum() / degree.sum()) if len(edges) else 0.0,
        "counts": dict(zip(values.tolist(), numbers.tolist(), strict=True)),
    }


def model_tokens(index: KETIndex) -> Tokens:
    """Return the number of tokens that models process to build an index.

    If no language model extracted the knowledge, the input tokens that one would need are estimated: twice the tokens
    of the core chunks, without prompts. Source: "KET-RAG", 2025, section 5.3.

    Args:
        index: KET-RAG index.
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
) -> TableRow:
    """Retrieve contexts for questions, and evaluate whether they contain the right answers.

    Args:
        retrieve: Function that retrieves contexts for a batch of questions.
        queries: ``Q`` questions.
        right: Right answers of each question.
        answers: Stage that answers the questions from the contexts. If None, ``EM`` and ``F1`` are omitted.

    Returns:
        Mean ``Coverage`` with its 95% bootstrap ``interval``; mean ``EM`` and ``F1``, and token counts in ``answers``;
        ``USD of answers`` if the stage has a price;
        number of ``questions``; ``ms``, the median milliseconds per question in batches of 16, without query encoding;
        and mean ``context_tokens``.
    """
    retrieve(queries.block(0, BATCH_QUESTIONS))  # warm up before timing
    texts, packed, milliseconds = list[str](), list[Context](), list[float]()
    for block in queries.blocks(BATCH_QUESTIONS):
        begin = time.perf_counter()
        contexts = retrieve(block)
        milliseconds.append(1000 * (time.perf_counter() - begin) / len(block))
        texts += contexts.texts
        packed += starmap(Context, zip(contexts.passages, contexts.num_tokens, strict=True))
    right = right[: len(queries)]
    covered = torch.tensor([coverage(*pair) for pair in zip(texts, right, strict=True)], dtype=torch.float64)
    row: TableRow = {"Coverage": float(covered.mean()), "interval": bootstrap_interval(covered).tolist()}
    if answers is not None:
        (written,) = answers.answer(queries.texts, {"": packed}, right).values()
        row |= {name: float(written.values[name].mean()) for name in ("EM", "F1")}
        row |= {} if written.counts.usd is None else {"USD of answers": written.counts.usd}
        row |= {"answers": asdict(written.counts)}
    tokens = statistics.mean(context.num_tokens for context in packed)
    return {**row, "questions": len(queries), "ms": statistics.median(milliseconds), "context_tokens": tokens}
