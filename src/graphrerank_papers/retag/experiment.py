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

from graphrerank.checks import UserError
from graphrerank.data.encoder import Encoder
from graphrerank.data.readers.documents import Document, read_documents, read_queries
from graphrerank.data.vector_cache import PairCache, VectorCache
from graphrerank.evaluation.significance import bootstrap_interval, compare_pairs
from graphrerank.files import write_json_lines
from graphrerank.graphs import PairEncoder, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.queries import query_encoder
from graphrerank.inference.checkpoint_scorer import CheckpointScorer
from graphrerank.parts import Parts
from graphrerank.text.tokenizer import count_tokens
from graphrerank_papers.answers.judges import win_rates
from graphrerank_papers.answers.map_reduce_writer import CitedReply
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import AnswerStage, SystemAnswers
from graphrerank_papers.experiments import hashed_order, write_tables
from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.retrieval import LevelSummaries, ReTAGRetrieval, ReTAGSearch, ReTAGSetup, SummarySentences

GRAPHRAG = "GraphRAG"
# name -> whether only the `top_p` summaries are retrieved, and whether questions are routed to topics
WAYS = {GRAPHRAG: (False, False), "topics": (False, True), "retrieval": (True, False), "ReTAG": (True, True)}
SCOPES = {"general graph": False, "topics": True}  # whether questions are routed to topics
BM25, EXPANDED, DENSE, HYBRID = "BM25", "BM25 + expansion", "dense", "hybrid"
HYBRID_EXPANDED, RERANKED = "hybrid + expansion", "hybrid + graph reranker"
TIMED_QUERIES = 64  # one at a time, after one that loads what there is to load
COMPARED = ((EXPANDED, BM25), (DENSE, BM25), (HYBRID, BM25), (HYBRID_EXPANDED, HYBRID), (RERANKED, HYBRID))

Row = dict[str, Any]  # of a table
Choice = Mapping[str, float]  # settings of a retrieval by the names that tables show; none: BM25 alone


@dataclass(frozen=True, kw_only=True)
class ReTAGSummaries:
    """The job; ``conf/experiment/retag_podcast.yaml`` describes its settings."""

    data: str
    titles: bool
    index: str | None = None
    levels: Sequence[int]
    scopes: Sequence[str]
    top_p: int
    chosen_on: float
    seed: int
    num_keywords: Sequence[int]
    num_sentences: Sequence[int]
    keyword_weights: Sequence[float]
    bm25_weights: Sequence[float]
    rerank_depths: Sequence[int]
    checkpoint: str
    answer_level: int
    answers: AnswerStage | None = None
    search: "partial[ReTAGSearch]"
    encoder: Encoder
    pair_encoder: PairEncoder
    num_queries: int | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.scopes) - set(SCOPES)):
            raise UserError(f"`job.scopes` must be some of {list(SCOPES)}, got {unknown[0]!r}")

    def __call__(self, parts: Parts, run_dir: Path) -> Path:
        """Measure the summaries to read and those retrieved; let a stage answer where one is given."""
        bench, tables, page = _Bench(self, parts, run_dir), dict[str, list[Row]](), ""
        for table, row in bench.rows():
            tables.setdefault(table, []).append(row)
            page = write_tables(run_dir, "ReTAG: retrieval and answers", tables)
        print(page)
        return run_dir

    def grid(self) -> dict[str, tuple[str | None, Sequence[Choice]]]:
        """List the retrievals: the one whose best settings each extends, and the settings to choose from."""
        expansions = product(self.num_keywords, self.num_sentences, self.keyword_weights)
        expanded = [dict(zip(("keywords", "sentences", "weight"), each, strict=True)) for each in expansions]
        hybrid = [{"BM25": weight} for weight in self.bm25_weights]
        return {
            BM25: (None, [{}]),
            EXPANDED: (None, expanded),
            DENSE: (None, [{"BM25": 0.0}]),
            HYBRID: (None, hybrid),
            HYBRID_EXPANDED: (EXPANDED, hybrid),
            RERANKED: (HYBRID, [{"depth": depth} for depth in self.rerank_depths]),
        }


class _Bench:
    """Corpus, index and questions, and what is measured with them."""

    def __init__(self, job: ReTAGSummaries, parts: Parts, run_dir: Path) -> None:
        self._job, self._step, self._parts, self._run_dir = job, job.search.keywords, parts, run_dir
        torch.set_num_threads(parts.num_threads)
        folder = Path(job.data)
        documents, questions = list(read_documents(folder)), list(read_queries(folder))[: job.num_queries]
        if not questions:
            raise UserError(f"{folder}: needed questions, found none")
        self._encoder = VectorCache(job.encoder, parts.cache / "vectors")
        self._setup: ReTAGSetup = self._step["setup"]
        self.index = self._index(documents)
        if not len(self.index.communities):
            report, least = self.index.report, self.index.settings.min_component
            raise UserError(
                f"{folder}: needed {least} or more entities that are connected (`min_component`), found "
                f"{report.entities} entities and {report.relations} relations and so no community to sum up"
            )
        self._sentences = SummarySentences(self.index, self._encoder)
        ids, texts = [question.query_id for question in questions], [question.text for question in questions]
        self._queries = Queries(ids, texts, query_encoder(self._encoder).encode(texts))
        self._levels: dict[int, LevelSummaries] = {}

    def _index(self, documents: Sequence[Document]) -> ReTAGIndex:
        """Build the index, or read a saved one of the same chunks."""
        ids, saved = [document.doc_id for document in documents], self._job.index
        if saved is None:
            passages = [document.passage if self._job.titles else document.text for document in documents]
            return self._setup.build_index(self._encoder, ids, passages)
        index = ReTAGIndex.load(saved)
        if list(index.passage_ids) != ids:
            raise UserError(f"`job.index` must be of the {len(ids)} chunks of {self._job.data}, {saved} is of others")
        return index

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the rows, each with the name of its table."""
        index, job = self.index, self._job
        counts = {"communities": len(index.communities), "topics": "; ".join(index.topics.names)}
        yield "index", {**asdict(index.report), **counts}
        for level in range(index.communities.num_levels(0)):
            yield from (("reading", row) for row in self._reading(level))
        for level in job.levels:
            for scope in job.scopes:
                yield from self._recall(scope, level)
        if job.answers is not None:
            yield from self._answers(job.answers)

    def _reading(self, level: int) -> Iterator[Row]:
        """Measure reading at a level: all summaries and the retrieved ones, without topics and with."""
        most = 0.0
        for way in WAYS:
            measured = measure_reading(self._way(way, level), self._queries)
            most = most or measured["tokens"]
            share = measured["tokens"] / most if most else None
            yield {"level": level, "summaries of": way, **measured, "tokens of GraphRAG's": share}

    def _recall(self, scope: str, level: int) -> Iterator[tuple[str, Row]]:
        """Choose the settings of each retrieval on one part of the questions, and judge it on the other.

        ``recall`` is the share, among the first ``top_p`` summaries, of the ``top_p`` that the cross-encoder ranks
        first of all candidates. Comparisons have the p-value of the paired randomisation test after Holm's correction.
        """
        first, second = self._split_questions()
        relevant, num_candidates = self._relevant(scope, level)
        best: dict[str | None, Choice] = {None: {}}
        recalls: dict[str, Tensor] = {}
        where: Row = {"level": level, "scope": scope}

        def recall(retrieval: ReTAGRetrieval, rows: Tensor) -> Tensor:
            ranking = retrieval.retrieve(self._queries.select(rows)).ranking
            return summary_recall(ranking, relevant[rows], top_k=self._job.top_p)

        for name, (base, settings) in self._job.grid().items():
            choices = [{**best[base], **each} for each in settings]
            tried = [0.0]
            if len(choices) > 1:
                tried = [float(recall(self._chosen(each, level, scope), first).nanmean()) for each in choices]
            best[name] = choices[tried.index(max(tried))]
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
        names = list(recalls)
        pairs = [(names.index(one), names.index(other)) for one, other in COMPARED]
        tests = compare_pairs(torch.stack([*recalls.values()]).unsqueeze(1), pairs, seed=self._job.seed)
        for index, (one, other) in enumerate(COMPARED):
            columns = {"difference": "difference", "interval": "interval", "p": "p_holm"}
            compared = {name: tests[key][index, 0].tolist() for name, key in columns.items()}
            yield "comparisons", {**where, "retrieval": one, "against": other, **compared}

    def _split_questions(self) -> tuple[Tensor, Tensor]:
        """Split the questions by a hash of their ids: to choose settings on, and to judge these on."""
        share, order = self._job.chosen_on, hashed_order(self._queries.ids, self._job.seed)
        split = round(share * len(order))
        if not split < len(order):
            raise UserError(f"`job.chosen_on` must leave questions to judge, got {share} of {len(order)}")
        grid = ("num_keywords", "num_sentences", "keyword_weights", "bm25_weights", "rerank_depths")
        if not split and (several := next((name for name in grid if len(getattr(self._job, name)) > 1), None)):
            raise UserError(
                f"`job.chosen_on` must leave questions to choose among the `{several}` on, got {share} of "
                f"{len(order)}; or give one of them alone"
            )
        first, second = (torch.tensor(sorted(part), dtype=torch.int64) for part in (order[:split], order[split:]))
        return first, second

    def _relevant(self, scope: str, level: int) -> tuple[Tensor, float]:
        """Let the cross-encoder read all candidates: ``[Q, N]`` bool, and the mean number of candidates."""
        retrieval = self._retrieval(level, top_p=None, use_topics=SCOPES[scope])
        candidates = retrieval.retrieve(self._queries).candidates.cpu()
        encoder = PairCache(self._job.pair_encoder, self._parts.cache / "pairs")
        print(f"level {level}, {scope}: {int(candidates.sum()):,} pairs to read", flush=True)
        scores = read_by_pairs(encoder, self._queries.texts, retrieval.summaries.graph.texts, candidates)
        return most_relevant(scores, self._job.top_p), float(candidates.sum(1).double().mean())

    def _answers(self, stage: AnswerStage) -> Iterator[tuple[str, Row]]:
        """Answer from the summaries of each way, write the answers, and compare them with GraphRAG's."""
        texts, contexts, names = self._queries.texts, {}, {}
        for way in reversed(WAYS):
            contexts[way], names[way] = self._contexts(self._way(way, self._job.answer_level))
        answers = stage.answer(texts, contexts, [None] * len(texts))
        lines = [line for way, written in answers.items() for line in self._lines(way, written, names[way])]
        write_json_lines(self._run_dir / "answers.jsonl", lines)
        for way, written in answers.items():
            yield "answers", {"system": way, "writer": stage.writer.name, **count_answers(written)}
        if stage.comparison is not None:
            judge = f"{stage.comparison.prompt.name} {stage.comparison.prompt.fingerprint}"
            for way in list(answers)[:-1]:
                verdicts = stage.comparison.compare(texts, answers[way].said, answers[GRAPHRAG].said)
                for rate in win_rates(verdicts, system=way, baseline=GRAPHRAG, seed=self._job.seed):
                    yield "win rates", {**asdict(rate), "judge": judge}

    def _contexts(self, retrieval: ReTAGRetrieval) -> tuple[list[Context], list[list[str]]]:
        """List the summaries to read for each question, best first, and their ids."""
        graph, nodes = retrieval.summaries.graph, retrieval.retrieve(self._queries).ranking.nodes.tolist()
        rows = [[node for node in row if node >= 0] for row in nodes]
        tokens = count_tokens(self._setup.tokenizer, graph.texts)
        contexts = [Context(tuple(graph.texts[n] for n in row), sum(tokens[n] for n in row)) for row in rows]
        return contexts, [[graph.node_ids[node] for node in row] for row in rows]

    def _lines(self, name: str, answers: SystemAnswers, names: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Describe each answer, with the ids of the summaries that it cites."""
        for query_id, reply, ids in zip(self._queries.ids, answers.replies, names, strict=True):
            line: dict[str, Any] = {"query_id": query_id, "system": name, "text": reply.text, "outcome": reply.outcome}
            if isinstance(reply, CitedReply):
                line |= {"citations": [ids[place] for place in reply.citations], "helpfulness": reply.helpfulness}
            yield line

    def _way(self, name: str, level: int) -> ReTAGRetrieval:
        """Retrieve in one of :data:`WAYS`, with the step's settings."""
        retrieves, use_topics = WAYS[name]
        numbers = (self._step["num_keywords"], self._step["num_sentences"])
        return self._retrieval(level, numbers, top_p=self._job.top_p if retrieves else None, use_topics=use_topics)

    def _chosen(self, choice: Choice, level: int, scope: str) -> ReTAGRetrieval:
        """Retrieve the first summaries with some settings."""
        weight, search = choice.get("BM25", 1.0), dict[str, Any]()
        if "weight" in choice:
            search["keyword_weight"] = choice["weight"]
        if "depth" in choice:
            search["rerank_depth"] = choice["depth"]
        return self._retrieval(
            level,
            (int(choice.get("keywords", 0)), int(choice.get("sentences", 0))),
            is_reranked="depth" in choice,
            top_p=self._job.top_p,
            use_topics=SCOPES[scope],
            bm25_weight=weight,
            dense_weight=1 - weight,
            **search,
        )

    def _retrieval(
        self, level: int, keywords: tuple[int, int] = (0, 0), *, is_reranked: bool = False, **search: Any
    ) -> ReTAGRetrieval:
        """Build a retrieval with the step's settings but for some, and numbers of keywords and sentences."""
        if level not in self._levels:
            self._levels[level] = LevelSummaries(self.index, level, device=self._parts.device)
        summaries = self._levels[level]
        finder = self._setup.keyword_finder(
            self.index,
            self._sentences,
            num_keywords=keywords[0],
            num_sentences=keywords[1],
            num_terms=self._step["num_terms"],
        )
        scorer = None
        if is_reranked:
            scorer = CheckpointScorer(
                summaries.graph,
                checkpoint=self._job.checkpoint,
                text_encoder=self._encoder,
                device=self._parts.device,
            )
        classifier = self._setup.topic_classifier(self.index)
        settings = replace(self._step["search"], **search)
        return ReTAGRetrieval(summaries, settings, keywords=finder, scorer=scorer, classifier=classifier)


def count_answers(answers: SystemAnswers) -> Row:
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
        "USD": counts.usd,
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


def most_relevant(scores: Tensor, count: int) -> Tensor:
    """Take the ``count`` best summaries of each question, what a full read would select: ``[Q, N]`` bool.

    ``scores`` is ``[Q, N]``, -inf for what is no candidate. Ties go by index; fewer are taken of fewer candidates.
    """
    nodes, _ = top_k_by_node_order(scores, count)
    relevant = torch.zeros(scores.shape[0], scores.shape[1] + 1, dtype=torch.bool)
    return relevant.scatter(1, nodes.masked_fill(nodes < 0, scores.shape[1]), True)[:, :-1]


def summary_recall(ranking: Ranking, relevant: Tensor, *, top_k: int) -> Tensor:
    """Share of the ``relevant`` summaries (``[Q, N]`` bool) in the top K: ``[Q]`` float64; NaN where there is none."""
    nodes = ranking.nodes[:, :top_k]
    hits = torch.nn.functional.pad(relevant, (0, 1)).gather(1, nodes.masked_fill(nodes < 0, relevant.shape[1]))
    return hits.sum(1).double() / relevant.sum(1)


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
