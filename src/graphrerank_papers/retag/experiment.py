"""``python evaluate.py experiment=retag_podcast``: ReTAG's retrieval of summaries and its answers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.config.components import ComponentFactory
from graphrerank.core import Encoder, PairEncoder, Queries, top_k_by_node_order
from graphrerank.core.adapters import query_encoder
from graphrerank.data.readers.documents import read_documents, read_queries
from graphrerank.data.vector_cache import PairCache, VectorCache
from graphrerank.evaluation.significance import bootstrap_interval, compare_pairs
from graphrerank.utils.checks import UserError, check_choice
from graphrerank.utils.files import write_json_lines
from graphrerank_papers.answers.judges import win_rates
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import AnswerStage, SystemAnswers
from graphrerank_papers.answers.writers import CitedReply
from graphrerank_papers.experiments import hashed_order, write_tables
from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.retrieval import LevelSummaries, ReTAGRetrieval, ReTAGSearch, ReTAGSetup, SummarySentences

GRAPHRAG, TOPICS = "GraphRAG", "topics"
# name -> whether only the `top_p` summaries are retrieved, and whether questions are routed to topics
RETAG_VARIANTS = {GRAPHRAG: (False, False), TOPICS: (False, True), "retrieval": (True, False), "ReTAG": (True, True)}
SCOPES = ("general graph", TOPICS)  # questions are searched in the one, or routed to the others
BM25, EXPANDED, DENSE_SEARCH, HYBRID = "BM25", "BM25 + expansion", "dense", "hybrid"
HYBRID_EXPANDED = "hybrid + expansion"
TIMED_QUERIES = 64  # one at a time, after one that loads what there is to load
COMPARED_RETRIEVERS = ((EXPANDED, BM25), (DENSE_SEARCH, BM25), (HYBRID, BM25), (HYBRID_EXPANDED, HYBRID))

TableRow = dict[str, Any]  # of a table
RetrievalSettings = Mapping[str, float]  # settings of a retrieval; none: BM25 alone


@dataclass(frozen=True, kw_only=True)
class ReTAGSummaries:
    """The job; ``conf/experiment/retag_podcast.yaml`` describes its settings."""

    data: str
    titles: bool
    index: str | None = None
    levels: Sequence[int]
    scopes: Sequence[str]
    top_p: int
    recall_at: Sequence[int]
    chosen_on: float
    seed: int
    num_keywords: Sequence[int]
    num_sentences: Sequence[int]
    keyword_weights: Sequence[float]
    bm25_weights: Sequence[float]
    answer_level: int
    answers: AnswerStage | None = None
    search: "partial[ReTAGSearch]"
    encoder: Encoder
    pair_encoder: PairEncoder
    num_queries: int | None = None

    def __post_init__(self) -> None:
        for scope in self.scopes:
            check_choice(SCOPES, **{"job.scopes": scope})

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Measure the summaries to read and those retrieved; let a stage answer where one is given."""
        bench, tables, page = _Bench(self, parts, run_dir), dict[str, list[TableRow]](), ""
        for table, row in bench.rows():
            tables.setdefault(table, []).append(row)
            page = write_tables(run_dir, "ReTAG: retrieval and answers", tables)
        print(page)
        return run_dir

    def grid(self) -> dict[str, tuple[str | None, Sequence[RetrievalSettings]]]:
        """List the retrievals: the one whose best settings each extends, and the settings to choose from."""
        names = ("num_keywords", "num_sentences", "keyword_weight")
        expansions = product(self.num_keywords, self.num_sentences, self.keyword_weights)
        expanded = [dict(zip(names, each, strict=True)) for each in expansions]
        hybrid = [{"bm25_weight": weight, "dense_weight": 1 - weight} for weight in self.bm25_weights]
        return {
            BM25: (None, [{}]),
            EXPANDED: (None, expanded),
            DENSE_SEARCH: (None, [{"bm25_weight": 0.0, "dense_weight": 1.0}]),
            HYBRID: (None, hybrid),
            HYBRID_EXPANDED: (EXPANDED, hybrid),
        }


class _Bench:
    """Corpus, index and questions, and what is measured with them."""

    def __init__(self, job: ReTAGSummaries, parts: ComponentFactory, run_dir: Path) -> None:
        self._job, self._step, self._parts, self._run_dir = job, job.search.keywords, parts, run_dir
        torch.set_num_threads(parts.num_threads)
        folder = Path(job.data)
        documents, questions = list(read_documents(folder)), list(read_queries(folder))[: job.num_queries]
        if not questions:
            raise UserError(f"{folder}: needed questions, found none")
        self._encoder = VectorCache(job.encoder, parts.cache / "vectors")
        self._setup: ReTAGSetup = self._step["setup"]
        chunk_ids = [document.doc_id for document in documents]
        if job.index is None:
            passages = [document.passage if job.titles else document.text for document in documents]
            self.index = self._setup.build_index(self._encoder, chunk_ids, passages)
        else:
            self.index = ReTAGIndex.load(job.index)
        if list(self.index.passage_ids) != chunk_ids:
            raise UserError(f"`job.index` must be of {job.data}'s {len(chunk_ids)} chunks, {job.index} is of others")
        if not len(self.index.communities):
            report, least = self.index.report, self.index.settings.min_component
            raise UserError(
                f"{folder}: needed {least} or more entities that are connected (`min_component`), found "
                f"{report.entities} entities and {report.relations} relations and so no community to sum up"
            )
        self._sentences = SummarySentences(self.index, self._encoder)
        ids, texts = ([getattr(question, key) for question in questions] for key in ("query_id", "text"))
        self._queries = Queries(ids, texts, query_encoder(self._encoder).encode(texts))
        self._levels: dict[int, LevelSummaries] = {}

    def rows(self) -> Iterator[tuple[str, TableRow]]:
        """Yield the rows, each with the name of its table."""
        index, job = self.index, self._job
        counts = {"communities": len(index.communities), "topics": "; ".join(index.topics.names)}
        yield "index", {**asdict(index.report), **counts}
        for level in range(index.communities.num_levels(0)):
            most = 0.0
            for way in RETAG_VARIANTS:  # all summaries and the retrieved ones, without topics and with
                measured = measure_reading(self._way(way, level), self._queries)
                most = most or measured["tokens"]
                share = measured["tokens"] / most if most else None
                yield "reading", {"level": level, "summaries of": way, **measured, "tokens of GraphRAG's": share}
        for level in job.levels:
            for scope in job.scopes:
                yield from self._recall(scope, level)
        if job.answers is not None:
            yield from self._answers(job.answers)

    def _recall(self, scope: str, level: int) -> Iterator[tuple[str, TableRow]]:
        """Choose the settings of each retrieval on one part of the questions, and evaluate it on the other."""
        first, second = self._split_questions()
        relevant, num_candidates = self._relevant(scope, level)
        best: dict[str | None, RetrievalSettings] = {None: {}}
        recalls: dict[str, Tensor] = {}
        where: TableRow = {"level": level, "scope": scope}

        def recall(retrieval: ReTAGRetrieval, rows: Tensor) -> Tensor:
            ranking = retrieval.retrieve(self._queries.select(rows)).ranking
            return summary_recall(ranking.nodes[:, : self._job.top_p], relevant[rows])

        for name, (base, settings) in self._job.grid().items():
            choices = [{**best[base], **each} for each in settings]
            best[name] = choices[0]
            if len(choices) > 1:  # the first of equals
                best[name] = max(
                    choices, key=lambda one: float(recall(self._chosen(one, level, scope), first).nanmean())
                )
            retrieval = self._chosen(best[name], level, scope)
            recalls[name] = recall(retrieval, second)
            row = {
                "retrieval": name,
                "recall": float(recalls[name].nanmean()),
                "interval": bootstrap_interval(recalls[name]).tolist(),
                **time_retrieval(retrieval, self._queries.select(second)),
                "settings": ", ".join(f"{key} {value:g}" for key, value in best[name].items()),
                "candidates": num_candidates,
                "chosen on": len(first),
                "judged on": len(second),
            }
            yield "retrieval", {**where, **row}
            longer = self._chosen(best[name], level, scope, top_p=max(self._job.recall_at))
            nodes = longer.retrieve(self._queries.select(second)).ranking.nodes
            curve = {
                f"p {p}": float(summary_recall(nodes[:, :p], relevant[second]).nanmean()) for p in self._job.recall_at
            }
            yield "recall over p", {**where, "retrieval": name, **curve}
        names = list(recalls)
        pairs = [(names.index(one), names.index(other)) for one, other in COMPARED_RETRIEVERS]
        tests = compare_pairs(torch.stack([*recalls.values()]).unsqueeze(1), pairs, seed=self._job.seed)
        for index, (one, other) in enumerate(COMPARED_RETRIEVERS):
            columns = {"difference": "difference", "interval": "interval", "p": "p_holm"}
            compared = {name: tests[key][index, 0].tolist() for name, key in columns.items()}
            yield "comparisons", {**where, "retrieval": one, "against": other, **compared}

    def _split_questions(self) -> tuple[Tensor, Tensor]:
        """Split the questions by a hash of their ids: to choose settings on, and to evaluate these on."""
        share, order = self._job.chosen_on, hashed_order(self._queries.ids, self._job.seed)
        split = round(share * len(order))
        several = [name for name, (_, settings) in self._job.grid().items() if len(settings) > 1]
        if split >= len(order) or (several and not split):
            raise UserError(
                f"`job.chosen_on` must leave questions to judge, and if there are several settings (of {several}) "
                f"questions to choose on, got {share} of {len(order)}"
            )
        first, second = (torch.tensor(sorted(part), dtype=torch.int64) for part in (order[:split], order[split:]))
        return first, second

    def _relevant(self, scope: str, level: int) -> tuple[Tensor, float]:
        """Return the first ``top_p`` of all candidates by the cross-encoder, ``[Q, P]``, and their mean number."""
        retrieval = self._retrieval(level, top_p=None, use_topics=scope == TOPICS)
        candidates = retrieval.retrieve(self._queries).candidates.cpu()
        encoder = PairCache(self._job.pair_encoder, self._parts.cache / "pairs")
        print(f"level {level}, {scope}: {int(candidates.sum()):,} pairs to read", flush=True)
        scores = read_by_pairs(encoder, self._queries.texts, retrieval.summaries.graph.texts, candidates)
        return top_k_by_node_order(scores, self._job.top_p)[0], float(candidates.sum(1).double().mean())

    def _answers(self, stage: AnswerStage) -> Iterator[tuple[str, TableRow]]:
        """Answer from the summaries of each way, write the answers, and compare them with GraphRAG's."""
        contexts, listed = {}, {}
        for way in reversed(RETAG_VARIANTS):
            retrieval = self._way(way, self._job.answer_level)
            texts, tokens = retrieval.summaries.graph.texts, retrieval.summaries.num_tokens.tolist()
            nodes = retrieval.retrieve(self._queries).ranking.nodes.tolist()
            rows = listed[way] = [[node for node in row if node >= 0] for row in nodes]
            contexts[way] = [Context(tuple(texts[n] for n in row), sum(tokens[n] for n in row)) for row in rows]
        node_ids = retrieval.summaries.graph.node_ids
        questions = self._queries.texts
        answers = stage.answer(questions, contexts, [None] * len(questions))
        lines = []
        for way, written in answers.items():
            for query_id, reply, row in zip(self._queries.ids, written.replies, listed[way], strict=True):
                line: TableRow = {"query_id": query_id, "system": way, "text": reply.text, "outcome": reply.outcome}
                if isinstance(reply, CitedReply):
                    cited = [node_ids[row[position]] for position in reply.citations]
                    line |= {"citations": cited, "helpfulness": reply.helpfulness}
                lines.append(line)
        write_json_lines(self._run_dir / "answers.jsonl", lines)
        for way, written in answers.items():
            yield "answers", {"system": way, "writer": stage.writer.name, **count_answers(written)}
        if stage.comparison is not None:
            judge = f"{stage.comparison.prompt.name} {stage.comparison.prompt.fingerprint}"
            for way in list(answers)[:-1]:
                verdicts = stage.comparison.compare(questions, answers[way].said, answers[GRAPHRAG].said)
                for rate in win_rates(verdicts, system=way, baseline=GRAPHRAG, seed=self._job.seed):
                    yield "win rates", {**asdict(rate), "judge": judge}

    def _way(self, name: str, level: int) -> ReTAGRetrieval:
        """Retrieve in one of :data:`RETAG_VARIANTS`, with the step's settings."""
        retrieves, use_topics = RETAG_VARIANTS[name]
        numbers = {key: self._step[key] for key in ("num_keywords", "num_sentences")}
        return self._retrieval(level, **numbers, top_p=self._job.top_p if retrieves else None, use_topics=use_topics)

    def _chosen(self, choice: RetrievalSettings, level: int, scope: str, *, top_p: int | None = None) -> ReTAGRetrieval:
        """Retrieve the first summaries, ``top_p`` of the job when None, with some settings, else by BM25 alone."""
        settings: dict[str, Any] = {"bm25_weight": 1.0, "dense_weight": 0.0, **choice}
        return self._retrieval(level, top_p=top_p or self._job.top_p, use_topics=scope == TOPICS, **settings)

    def _retrieval(self, level: int, *, num_keywords: int = 0, num_sentences: int = 0, **search: Any) -> ReTAGRetrieval:
        """Build a retrieval with the step's settings but for some."""
        if level not in self._levels:
            self._levels[level] = LevelSummaries(self.index, level, device=self._parts.device)
        numbers = {"num_keywords": num_keywords, "num_sentences": num_sentences, "num_terms": self._step["num_terms"]}
        return ReTAGRetrieval(
            self._levels[level],
            replace(self._step["search"], **search),
            keywords=self._setup.keyword_finder(self.index, self._sentences, **numbers),
            classifier=self._setup.topic_classifier(self.index),
        )


def count_answers(answers: SystemAnswers) -> TableRow:
    """Count the answers of a system, and the summaries that it cites (mean, None where none does) and has read."""
    cited = [reply for reply in answers.replies if isinstance(reply, CitedReply)]
    numbers = [len(reply.citations) for reply in cited if reply.text]
    parts = [helpfulness for reply in cited for helpfulness in reply.helpfulness]
    counts = answers.counts
    return {
        "questions": counts.questions,
        "answered": sum(bool(text) for text in answers.said),
        "citations": sum(numbers) / len(numbers) if numbers else None,
        "context_tokens": counts.context_tokens,
        "parts": len(parts),
        "skipped": sum(helpfulness is None for helpfulness in parts),
        "input_tokens": counts.input_tokens,
        "output_tokens": counts.output_tokens,
        "counts": asdict(counts),
    }


def read_by_pairs(encoder: PairEncoder, query_texts: Sequence[str], texts: Sequence[str], candidates: Tensor) -> Tensor:
    """Score each question's candidates, ``[Q, N]`` bool, by a cross-encoder: ``[Q, N]`` float32, -inf for others."""
    scores = torch.full(candidates.shape, -torch.inf)
    for row, question in enumerate(query_texts):
        nodes = candidates[row].nonzero().flatten().tolist()
        if nodes:
            vectors = encoder.encode([question] * len(nodes), [texts[node] for node in nodes])
            scores[row, nodes] = encoder.head(vectors).cpu().float()
    return scores


def summary_recall(nodes: Tensor, relevant: Tensor) -> Tensor:
    """Return the share of the ``relevant`` summaries among the retrieved: ``[Q]`` float64; NaN where there is none.

    Both are ``[Q, K]`` int64 nodes, padded with -1.
    """
    is_relevant = relevant >= 0
    hits = (nodes.to(relevant.device).unsqueeze(1) == relevant.unsqueeze(2)).any(2) & is_relevant
    return hits.sum(1).double() / is_relevant.sum(1)


def time_retrieval(retrieval: ReTAGRetrieval, queries: Queries) -> dict[str, float]:
    """Time one or more questions, one at a time, without encoding them: median and 95th percentile in milliseconds."""
    retrieval.retrieve(queries.block(0, 1))
    seconds = []
    for query in range(min(TIMED_QUERIES, len(queries))):
        begin = time.perf_counter()
        retrieval.retrieve(queries.block(query, query + 1))
        seconds.append(time.perf_counter() - begin)
    median, high = (1000 * torch.tensor(seconds).double()).quantile(torch.tensor([0.5, 0.95]).double()).tolist()
    return {"p50 ms": median, "p95 ms": high}


def measure_reading(retrieval: ReTAGRetrieval, queries: Queries) -> dict[str, Any]:
    """Count what a retrieval selects per question on average, and where it searches; and time it."""
    retrieved = retrieval.retrieve(queries)
    nodes, topics = retrieved.ranking.nodes.cpu(), retrieved.graphs[:, 1:].sum(1)
    tokens = retrieval.summaries.num_tokens[nodes.clamp(min=0)].masked_fill(nodes < 0, 0).sum(1)
    counts = {
        "summaries": (nodes >= 0).sum(1),
        "tokens": tokens,
        "no topic": topics == 0,
        "one topic": topics == 1,
        "more": topics > 1,
    }
    means = {name: float(count.double().mean()) for name, count in counts.items()}
    return means | time_retrieval(retrieval, queries)
