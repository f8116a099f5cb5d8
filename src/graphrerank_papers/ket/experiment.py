"""``python evaluate.py experiment=ket_solutions``: KET-RAG's solutions and sweeps."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import torch

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
from graphrerank_papers.experiments import write_tables
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings, Tokens
from graphrerank_papers.ket.retrieval import Contexts, KETRetrieval, KETSearch, find_solution

RETRIEVED = ("context_tokens", "graph_share", "num_seeds")  # settings of the step that retrieve
INDEXED = ("chunk_tokens", "num_neighbours", "core_share", "seed", "num_splits", "description_tokens")  # of its index
BATCH = 16  # questions retrieved at once

Row = dict[str, Any]  # of a table: settings and measures by name


@dataclass(kw_only=True)
class KETSolutions:
    """The job; ``conf/experiment/ket_solutions.yaml`` describes its settings."""

    data: str
    titles: bool
    join: bool
    solutions: Sequence[str]
    versions: Sequence[Mapping[str, int]]
    sweeps: Mapping[str, Mapping[str, Any]] | None = None
    answers: AnswerStage | None = None
    search: "partial[KETSearch]"
    encoder: Encoder

    def __post_init__(self) -> None:
        known = {*INDEXED, *RETRIEVED}
        for name, sweep in (self.sweeps or {}).items():
            if unknown := sorted({name, *sweep} - {*known, "values", "solutions"}):
                raise UserError(f"`job.sweeps` must name settings of KET-RAG, {sorted(known)}, got {unknown[0]!r}")

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
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

    def _open(self, parts: ComponentFactory) -> None:
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
        row |= {"answers": asdict(written.counts)}
    tokens = statistics.mean(context.num_tokens for context in packed)
    return {**row, "questions": len(queries), "ms": statistics.median(milliseconds), "context_tokens": tokens}
