"""Evaluate the retrieval of summaries and the answers of ReTAG: ``graphrerank evaluate experiment=retag_podcast``."""

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
from graphrerank_papers.experiments import Experiment, TableRow, hashed_order, write_tables
from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.retrieval import LevelSummaries, ReTAGRetrieval, ReTAGSearch, ReTAGSetup, SummarySentences

GRAPHRAG, TOPICS = "GraphRAG", "topics"
#: Systems by name: whether only the ``top_p`` summaries are retrieved, and whether questions are routed to topics.
RETAG_VARIANTS = {GRAPHRAG: (False, False), TOPICS: (False, True), "retrieval": (True, False), "ReTAG": (True, True)}
#: Summaries that are searched: those of the general graph, or those of each question's topics.
SCOPES = ("general graph", TOPICS)
BM25, EXPANDED, DENSE_SEARCH, HYBRID = "BM25", "BM25 + expansion", "dense", "hybrid"
HYBRID_EXPANDED = "hybrid + expansion"
#: Maximum number of questions that are timed, one at a time, after a warm-up.
TIMED_QUERIES = 64
#: Pairs of retrievals that are tested against each other.
COMPARED_RETRIEVERS = ((EXPANDED, BM25), (DENSE_SEARCH, BM25), (HYBRID, BM25), (HYBRID_EXPANDED, HYBRID))

#: Settings of a retrieval. If empty, only BM25 is used.
RetrievalSettings = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ReTAGSummaries(Experiment):
    """Job that evaluates ReTAG on global questions, with the settings of ``conf/experiment/retag_podcast.yaml``.

    Attributes:
        data: Folder with ``corpus.jsonl`` and ``queries.jsonl``. Judgements are not needed.
        titles: Whether the text of a passage starts with its title.
        index: Folder of a saved index of these passages. If None, the index is built with the settings of ``search``.
        levels: Community levels whose summaries the cross-encoder scores. 0 is the coarsest.
        scopes: Summaries to score: ``general graph``, ``topics`` or both.
        top_p: Number of summaries to retrieve. The same number of summaries with the highest cross-encoder scores are
            relevant.
        recall_at: Numbers of retrieved summaries at which recall is reported.
        chosen_on: Share of the questions on which settings are selected, in [0, 1). The other questions are used for
            evaluation. With 0, there is no selection, so only single settings are allowed.
        seed: Random seed of this split, of the significance tests and of the win rates.
        num_keywords: Candidate numbers of keywords.
        num_sentences: Candidate numbers of nearest sentences.
        keyword_weights: Candidate weights of a keyword.
        bm25_weights: Candidate weights of BM25 in the hybrid retrieval. The cosine similarity has the remaining weight.
        answer_level: Community level whose summaries the answers are based on.
        answers: Stage that answers the questions. If None, no questions are answered.
        search: Builder of the pipeline step. Its settings are used where the experiment sets none.
        encoder: Encoder of texts.
        pair_encoder: Cross-encoder that defines the relevant summaries.
        num_queries: Maximum number of questions. None uses all questions.
    """

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
        """Evaluate the retrieval of summaries and, if there is an answer stage, the answers.

        Args:
            parts: Factory of components. Provides the cache folder, the device and the number of threads.
            run_dir: Folder of the run.

        Returns:
            Folder of the run.

        Raises:
            ValueError: If there are no questions, the index does not match the data or has no communities, or
                ``chosen_on`` leaves no questions for selection or evaluation.
        """
        bench, tables, page = _Bench(self, parts, run_dir), dict[str, list[TableRow]](), ""
        for table, row in bench.rows():
            tables.setdefault(table, []).append(row)
            page = write_tables(run_dir, "ReTAG: retrieval and answers", tables)
        print(page)
        return run_dir

    def grid(self) -> dict[str, tuple[str | None, Sequence[RetrievalSettings]]]:
        """Return the retrievals to compare.

        Returns:
            For each retrieval, by name: the retrieval whose best settings it extends, or None; and its candidate
            settings.
        """
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
    """Corpus, index and questions of the experiment, and its measurements."""

    def __init__(self, job: ReTAGSummaries, parts: ComponentFactory, run_dir: Path) -> None:
        self._job, self._step, self._parts, self._run_dir = job, job.search.keywords, parts, run_dir
        torch.set_num_threads(parts.num_threads)
        folder = Path(job.data)
        documents, questions = list(read_documents(folder)), list(read_queries(folder))[: job.num_queries]
        if not questions:
            raise UserError(f"{folder}: the folder has no questions")
        self._encoder = VectorCache(job.encoder, parts.cache / "vectors")
        self._setup: ReTAGSetup = self._step["setup"]
        chunk_ids = [document.doc_id for document in documents]
        if job.index is None:
            passages = [document.passage if job.titles else document.text for document in documents]
            self.index = self._setup.build_index(self._encoder, chunk_ids, passages)
        else:
            self.index = ReTAGIndex.load(job.index)
        if list(self.index.passage_ids) != chunk_ids:
            raise UserError(
                f"`job.index` must be an index of the {len(chunk_ids)} passages of {job.data}, but {job.index} indexes "
                "other passages"
            )
        if not len(self.index.communities):
            report, least = self.index.report, self.index.settings.min_component
            raise UserError(
                f"{folder}: the corpus must have at least {least} connected entities (`min_component`) to form a "
                f"community, got {report.entities} entities and {report.relations} relations"
            )
        self._sentences = SummarySentences(self.index, self._encoder)
        ids, texts = ([getattr(question, key) for question in questions] for key in ("query_id", "text"))
        self._queries = Queries(ids, texts, query_encoder(self._encoder).encode(texts))
        self._levels: dict[int, LevelSummaries] = {}

    def rows(self) -> Iterator[tuple[str, TableRow]]:
        """Yield the name of the table and the row of each measurement."""
        index, job = self.index, self._job
        counts = {"communities": len(index.communities), "topics": "; ".join(index.topics.names)}
        yield "index", {**asdict(index.report), **counts}
        for level in range(index.communities.num_levels(0)):
            most = 0.0
            for way in RETAG_VARIANTS:
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
        """Select the settings of each retrieval on one part of the questions, and evaluate them on the other part."""
        first, second = self._split_questions()
        relevant, num_candidates = self._relevant(scope, level)
        best: dict[str | None, RetrievalSettings] = {None: {}}
        recalls: dict[str, Tensor] = {}
        setting: TableRow = {"level": level, "scope": scope}

        def recall(retrieval: ReTAGRetrieval, rows: Tensor) -> Tensor:
            ranking = retrieval.retrieve(self._queries.select(rows)).ranking
            return summary_recall(ranking.nodes[:, : self._job.top_p], relevant[rows])

        for name, (base, settings) in self._job.grid().items():
            choices = [{**best[base], **each} for each in settings]
            best[name] = choices[0]
            if len(choices) > 1:  # ties go to the first choice
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
            yield "retrieval", {**setting, **row}
            longer = self._chosen(best[name], level, scope, top_p=max(self._job.recall_at))
            nodes = longer.retrieve(self._queries.select(second)).ranking.nodes
            curve = {
                f"p {p}": float(summary_recall(nodes[:, :p], relevant[second]).nanmean()) for p in self._job.recall_at
            }
            yield "recall over p", {**setting, "retrieval": name, **curve}
        names = list(recalls)
        pairs = [(names.index(one), names.index(other)) for one, other in COMPARED_RETRIEVERS]
        tests = compare_pairs(torch.stack([*recalls.values()]).unsqueeze(1), pairs, seed=self._job.seed)
        for index, (one, other) in enumerate(COMPARED_RETRIEVERS):
            columns = {"difference": "difference", "interval": "interval", "p": "p_holm"}
            compared = {name: tests[key][index, 0].tolist() for name, key in columns.items()}
            yield "comparisons", {**setting, "retrieval": one, "against": other, **compared}

    def _split_questions(self) -> tuple[Tensor, Tensor]:
        """Split the questions by a hash of their ids into questions for selection and for evaluation."""
        share, order = self._job.chosen_on, hashed_order(self._queries.ids, self._job.seed)
        split = round(share * len(order))
        several = [name for name, (_, settings) in self._job.grid().items() if len(settings) > 1]
        if split >= len(order) or (several and not split):
            raise UserError(
                f"`job.chosen_on` must leave at least one question for evaluation and one for the selection of "
                f"settings (of {several}), got {share} of {len(order)} questions"
            )
        first, second = (torch.tensor(sorted(rows), dtype=torch.int64) for rows in (order[:split], order[split:]))
        return first, second

    def _relevant(self, scope: str, level: int) -> tuple[Tensor, float]:
        """Return the ``top_p`` candidates by cross-encoder score ``[Q, P]``, and the mean number of candidates."""
        retrieval = self._retrieval(level, top_p=None, use_topics=scope == TOPICS)
        candidates = retrieval.retrieve(self._queries).candidates.cpu()
        encoder = PairCache(self._job.pair_encoder, self._parts.cache / "pairs")
        print(f"level {level}, {scope}: {int(candidates.sum()):,} pairs to score", flush=True)
        scores = read_by_pairs(encoder, self._queries.texts, retrieval.summaries.graph.texts, candidates)
        return top_k_by_node_order(scores, self._job.top_p)[0], float(candidates.sum(1).double().mean())

    def _answers(self, stage: AnswerStage) -> Iterator[tuple[str, TableRow]]:
        """Answer the questions from the summaries of each system, and compare the answers with those of GraphRAG."""
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
        """Build the retrieval of one of :data:`RETAG_VARIANTS`, with the settings of the pipeline step."""
        retrieves, use_topics = RETAG_VARIANTS[name]
        numbers = {key: self._step[key] for key in ("num_keywords", "num_sentences")}
        return self._retrieval(level, **numbers, top_p=self._job.top_p if retrieves else None, use_topics=use_topics)

    def _chosen(self, choice: RetrievalSettings, level: int, scope: str, *, top_p: int | None = None) -> ReTAGRetrieval:
        """Build a retrieval of ``top_p`` summaries with the chosen settings. If None, ``top_p`` of the job is used."""
        settings: dict[str, Any] = {"bm25_weight": 1.0, "dense_weight": 0.0, **choice}
        return self._retrieval(level, top_p=top_p or self._job.top_p, use_topics=scope == TOPICS, **settings)

    def _retrieval(self, level: int, *, num_keywords: int = 0, num_sentences: int = 0, **search: Any) -> ReTAGRetrieval:
        """Build a retrieval with the settings of the pipeline step, some of which are replaced."""
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
    """Count the answers of a system, its citations and its tokens.

    Args:
        answers: Answers of the system.

    Returns:
        Table row. ``citations`` is the mean number of cited summaries per answer, or None if the writer cites none.
        ``parts`` is the number of partial answers, and ``skipped`` the number of those that could not be parsed.
        ``USD`` is the cost of the answers, if the stage has a price.
    """
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
        **({} if counts.usd is None else {"USD": counts.usd}),
        "counts": asdict(counts),
    }


def read_by_pairs(encoder: PairEncoder, query_texts: Sequence[str], texts: Sequence[str], candidates: Tensor) -> Tensor:
    """Score the candidates of each question with a cross-encoder.

    Args:
        encoder: Cross-encoder that scores the candidates.
        query_texts: ``Q`` questions.
        texts: ``N`` texts.
        candidates: Whether each text is a candidate of each question, ``[Q, N]`` bool.

    Returns:
        Scores ``[Q, N]`` float32. -inf for texts that are not candidates.
    """
    scores = torch.full(candidates.shape, -torch.inf)
    for row, question in enumerate(query_texts):
        nodes = candidates[row].nonzero().flatten().tolist()
        if nodes:
            vectors = encoder.encode([question] * len(nodes), [texts[node] for node in nodes])
            scores[row, nodes] = encoder.head(vectors).cpu().float()
    return scores


def summary_recall(nodes: Tensor, relevant: Tensor) -> Tensor:
    """Return the recall of each question, ``[Q]`` float64, or NaN for questions without relevant summaries.

    Args:
        nodes: Retrieved summaries ``[Q, K]`` int64, padded with -1.
        relevant: Relevant summaries ``[Q, P]`` int64, padded with -1.

    Example:
        >>> summary_recall(torch.tensor([[4, 2]]), torch.tensor([[2, 3]]))
        tensor([0.5000], dtype=torch.float64)
    """
    is_relevant = relevant >= 0
    hits = (nodes.to(relevant.device).unsqueeze(1) == relevant.unsqueeze(2)).any(2) & is_relevant
    return hits.sum(1).double() / is_relevant.sum(1)


def time_retrieval(retrieval: ReTAGRetrieval, queries: Queries) -> dict[str, float]:
    """Measure the latency of a retrieval, one question at a time, without query encoding.

    Args:
        retrieval: Retrieval to time.
        queries: Questions with vectors. At least one is needed.

    Returns:
        Median and 95th percentile in milliseconds.
    """
    retrieval.retrieve(queries.block(0, 1))
    seconds = []
    for query in range(min(TIMED_QUERIES, len(queries))):
        begin = time.perf_counter()
        retrieval.retrieve(queries.block(query, query + 1))
        seconds.append(time.perf_counter() - begin)
    median, high = (1000 * torch.tensor(seconds).double()).quantile(torch.tensor([0.5, 0.95]).double()).tolist()
    return {"p50 ms": median, "p95 ms": high}


def measure_reading(retrieval: ReTAGRetrieval, queries: Queries) -> dict[str, Any]:
    """Measure the number of summaries and tokens that a retrieval selects, its topics and its latency.

    Args:
        retrieval: Retrieval to measure.
        queries: Questions with vectors.

    Returns:
        Mean number of summaries and tokens per question; shares of the questions that are routed to no topic, one topic
        or more topics; and latency in milliseconds.
    """
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
