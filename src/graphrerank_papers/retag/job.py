"""``python evaluate.py experiment=retag_podcast``: ReTAG's retrieval of summaries and its answers beside GraphRAG's."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.cli.job_session import JobSession
from graphrerank.data.encoder import Encoder
from graphrerank.data.pair_cache import PairCache
from graphrerank.data.readers.documents import Document, read_documents, read_queries
from graphrerank.data.vector_cache import VectorCache
from graphrerank.files import write_json, write_json_lines, write_text
from graphrerank.graphs import PairEncoder, Queries
from graphrerank.graphs.queries import query_encoder
from graphrerank.inference.checkpoint_scorer import CheckpointScorer
from graphrerank.text.tokenizer import count_tokens
from graphrerank_papers.answers.map_reduce_writer import CitedReply
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import AnswerStage, SystemAnswers
from graphrerank_papers.answers.win_rates import WinRate, win_rates
from graphrerank_papers.hashed_order import hashed_order
from graphrerank_papers.retag.choices import COMPARED, Choice, Grid, table_rows
from graphrerank_papers.retag.cited_answers import CitedAnswers, count_answers
from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.keywords import SummarySentences
from graphrerank_papers.retag.page import RecallTable, compare_recall, render_retag
from graphrerank_papers.retag.retrieval import ReTAGRetrieval, ReTAGSearchSettings
from graphrerank_papers.retag.search import ReTAGSearch
from graphrerank_papers.retag.setup import ReTAGSetup
from graphrerank_papers.retag.summaries import LevelSummaries
from graphrerank_papers.retag.summary_retrieval import (
    Reading,
    SummaryResult,
    measure_reading,
    most_relevant,
    read_by_pairs,
    summary_recall,
    time_retrieval,
)

GRAPHRAG, RETAG = "GraphRAG", "ReTAG"
SCOPES = {"general graph": False, "topics": True}  # whether questions are asked in topics
KEYWORDS = ("num_keywords", "num_sentences", "num_terms")  # settings of the step that expand a question


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
            raise ValueError(f"`job.scopes` must be some of {list(SCOPES)}, got {unknown[0]!r}")

    @property
    def told(self) -> list[str]:
        """What writes the answers and what compares them: names and fingerprints of prompts, or of a reader."""
        if self.answers is None:
            return []
        judge = self.answers.comparison
        compared = [] if judge is None else [f"{judge.prompt.name} {judge.prompt.fingerprint}"]
        return [self.answers.writer.name, *compared]

    @property
    def _told_line(self) -> str:
        return f" Answers by: {', '.join(self.told)}." if self.told else ""

    @property
    def grid(self) -> Grid:
        """The settings to choose among."""
        return Grid(**{entry.name: getattr(self, entry.name) for entry in fields(Grid)})

    def __call__(self, session: JobSession) -> Path:
        """Measure what there is to read and what is retrieved; let a stage answer where one is given."""
        run_dir, bench = session.run_dir, _Bench(self, session)
        readings = [reading for level in range(bench.num_levels) for reading in bench.readings(level)]
        tables: list[RecallTable] = []
        counts: list[CitedAnswers] = []
        wins: dict[str, list[WinRate]] = {}

        def write() -> str:
            content = {
                "index": bench.index_counts,
                "prompts": self.told,
                "reading": [reading.to_json() for reading in readings],
                "retrieval": [table.to_json() for table in tables],
                "answers": [count.to_json() for count in counts],
                "win_rates": {name: [asdict(rate) for rate in rates] for name, rates in wins.items()},
            }
            write_json(run_dir / "metrics.json", content)
            page = render_retag(session.command, bench.index_line + self._told_line, readings, tables, counts, wins)
            write_text(run_dir / "report.md", page)
            return page

        page = write()
        for level in self.levels:
            for scope in self.scopes:
                tables.append(bench.recall(scope, level))
                page = write()
        if self.answers is not None:
            counts, wins = bench.answers(self.answers, run_dir / "answers.jsonl")
            page = write()
        print(page)
        return run_dir


class _Bench:
    """Corpus, index and questions; retrieval, judge and language model."""

    def __init__(self, plan: ReTAGSummaries, session: JobSession) -> None:
        self._plan, self._step, self._device = plan, plan.search.keywords, session.device
        torch.set_num_threads(session.num_threads)
        folder, self._cache = Path(plan.data), session.cache
        documents, questions = list(read_documents(folder)), list(read_queries(folder))[: plan.num_queries]
        if not questions:
            raise ValueError(f"{folder}: needed questions, found none")
        session.reads_files(folder.name, sorted(file for file in folder.glob("*.jsonl*") if file.is_file()))
        self._encoder = VectorCache(plan.encoder, self._cache / "vectors")
        self._setup: ReTAGSetup = self._step["setup"]
        begin = time.perf_counter()
        self.index = self._index(documents)
        print(f"index: {time.perf_counter() - begin:.0f} s", flush=True)
        if not len(self.index.communities):
            report, least = self.index.report, self.index.settings.min_component
            raise ValueError(
                f"{folder}: needed {least} or more entities that are connected (`min_component`), found "
                f"{report.entities} entities and {report.relations} relations and so no community to sum up"
            )
        self._sentences = SummarySentences(self.index, self._encoder)
        ids, texts = [question.query_id for question in questions], [question.text for question in questions]
        self._queries = Queries(ids, texts, query_encoder(self._encoder).encode(texts))
        self._levels: dict[int, LevelSummaries] = {}

    @property
    def num_levels(self) -> int:
        """Levels of the general graph."""
        return self.index.communities.num_levels(0)

    @property
    def index_counts(self) -> dict[str, Any]:
        """The index's counts, for ``metrics.json``."""
        return {
            **asdict(self.index.report),
            "communities": len(self.index.communities),
            "topics": len(self.index.topics),
        }

    @property
    def index_line(self) -> str:
        """The index's counts as a sentence."""
        report, topics = self.index.report, self.index.topics
        return (
            f"Index: {report.passages:,} passages of {report.corpus_tokens:,} tokens, {report.entities:,} entities, "
            f"{report.relations:,} relations, {len(self.index.communities):,} communities on {self.num_levels} levels "
            f"of the general graph and in {len(topics)} topics ({'; '.join(topics.names)})."
        )

    def _index(self, documents: Sequence[Document]) -> ReTAGIndex:
        """Build the index, or read a saved one of the same chunks."""
        ids, saved = [document.doc_id for document in documents], self._plan.index
        if saved is None:
            passages = [document.passage if self._plan.titles else document.text for document in documents]
            return self._setup.build_index(self._encoder, ids, passages)
        index = ReTAGIndex.load(saved)
        if list(index.passage_ids) != ids:
            raise ValueError(f"`job.index` must be of the {len(ids)} chunks of {self._plan.data}, {saved} is of others")
        return index

    def readings(self, level: int) -> Iterator[Reading]:
        """Measure reading at a level: all summaries and the retrieved ones, without topics and with."""
        for name, top_p, use_topics in (
            (f"all ({GRAPHRAG})", None, False),
            ("topics", None, True),
            ("retrieval", self._plan.top_p, False),
            (f"topics and retrieval ({RETAG})", self._plan.top_p, True),
        ):
            search = self._search(top_p=top_p, use_topics=use_topics)
            yield measure_reading(name, self._retrieval(Choice(search, self._keywords()), level), self._queries)

    def recall(self, scope: str, level: int) -> RecallTable:
        """Choose the settings of each row on one part of the questions, and judge it on the other."""
        plan, grid, use_topics = self._plan, self._plan.grid, SCOPES[scope]
        order = hashed_order(self._queries.ids, plan.seed)
        split = round(plan.chosen_on * len(order))
        if not split < len(order):
            raise ValueError(f"`job.chosen_on` must leave questions to judge, got {plan.chosen_on} of {len(order)}")
        if not split and (several := next((name for name, tried in vars(grid).items() if len(tried) > 1), None)):
            raise ValueError(
                f"`job.chosen_on` must leave questions to choose among the `{several}` on, got {plan.chosen_on} of "
                f"{len(order)}; or give one of them alone"
            )
        relevant, num_candidates = self._relevant(scope, level)
        chosen_on, judged_on = (
            torch.tensor(sorted(part), dtype=torch.int64) for part in (order[:split], order[split:])
        )
        results: list[SummaryResult] = []
        best: dict[str, Choice] = {}
        plain = self._search(top_p=plan.top_p, use_topics=use_topics, bm25_weight=1.0, dense_weight=0.0)
        for name, choices in table_rows(grid, plain, num_terms=self._step["num_terms"], best=best):
            recalls = (
                [self._recall(choice, level, relevant, chosen_on) for choice in choices] if len(choices) > 1 else [0.0]
            )
            best[name] = choices[recalls.index(max(recalls))]
            retrieval = self._retrieval(best[name], level)
            judged = self._queries.select(judged_on)
            recall = summary_recall(retrieval.retrieve(judged).ranking, relevant[judged_on], top_k=plan.top_p)
            results.append(SummaryResult(name, best[name].shown, recall, time_retrieval(retrieval, judged)))
            mean = f"{100 * float(recall.nanmean()):.1f}"
            print(f"level {level}, {scope}, {name}: R@{plan.top_p} {mean}, of {len(choices)} settings", flush=True)
        comparisons = compare_recall(results, COMPARED, seed=plan.seed)
        return RecallTable(scope, level, plan.top_p, num_candidates, len(chosen_on), results, comparisons)

    def answers(self, stage: AnswerStage, file: Path) -> tuple[list[CitedAnswers], dict[str, list[WinRate]]]:
        """Answer from all summaries, by topic, as retrieved, and both; compare with the first, if the stage does."""
        plan, contexts, names = self._plan, {}, {}
        for name, top_p, use_topics in (
            (RETAG, plan.top_p, True),
            ("topics", None, True),
            ("retrieval", plan.top_p, False),
            (GRAPHRAG, None, False),
        ):
            search = self._search(top_p=top_p, use_topics=use_topics)
            retrieval = self._retrieval(Choice(search, self._keywords()), plan.answer_level)
            contexts[name], names[name] = self._contexts(retrieval)
        texts = self._queries.texts
        answers = stage.answer_from(texts, contexts, [None] * len(texts))
        lines = [line for name, written in answers.items() for line in self._lines(name, written, names[name])]
        write_json_lines(file, lines)
        wins = {}
        if stage.comparison is not None:
            for name in list(answers)[:-1]:
                verdicts = stage.comparison.compare(texts, answers[name].said, answers[GRAPHRAG].said)
                wins[f"{name} against {GRAPHRAG}"] = win_rates(verdicts, system=name, baseline=GRAPHRAG, seed=plan.seed)
        return [count_answers(*entry) for entry in answers.items()], wins

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

    def _relevant(self, scope: str, level: int) -> tuple[Tensor, float]:
        """Let the cross-encoder read all candidates: ``[Q, N]`` bool, and how many there are on average."""
        search = self._search(top_p=None, use_topics=SCOPES[scope])
        retrieval = self._retrieval(Choice(search), level)
        candidates = retrieval.retrieve(self._queries).candidates.cpu()
        encoder = PairCache(self._plan.pair_encoder, self._cache / "pairs")
        texts = retrieval.summaries.graph.texts
        scores = read_by_pairs(
            encoder, self._queries.texts, texts, candidates, advance=_progress(f"level {level}, {scope}")
        )
        return most_relevant(scores, self._plan.top_p), float(candidates.sum(1).double().mean())

    def _recall(self, choice: Choice, level: int, relevant: Tensor, rows: Tensor) -> float:
        ranking = self._retrieval(choice, level).retrieve(self._queries.select(rows)).ranking
        return float(summary_recall(ranking, relevant[rows], top_k=self._plan.top_p).nanmean())

    def _search(self, **settings: Any) -> ReTAGSearchSettings:
        """Take the step's settings, but for some."""
        search: ReTAGSearchSettings = self._step["search"]
        return replace(search, **settings)

    def _keywords(self) -> dict[str, int]:
        """Take the step's keyword settings."""
        return {name: self._step[name] for name in KEYWORDS}

    def _retrieval(self, choice: Choice, level: int) -> ReTAGRetrieval:
        if level not in self._levels:
            self._levels[level] = LevelSummaries(self.index, level, device=self._device)
        summaries = self._levels[level]
        finder = self._setup.keyword_finder(self.index, self._sentences, **choice.keywords) if choice.keywords else None
        scorer = None
        if choice.reranked:
            scorer = CheckpointScorer(
                summaries.graph, checkpoint=self._plan.checkpoint, text_encoder=self._encoder, device=self._device
            )
        classifier = self._setup.topic_classifier(self.index)
        return ReTAGRetrieval(summaries, choice.search, keywords=finder, scorer=scorer, classifier=classifier)


def _progress(scope: str) -> Callable[[int, int], None]:
    begin, printed = time.perf_counter(), [0]

    def advance(done: int, total: int) -> None:
        if (tenth := 10 * done // max(1, total)) > printed[0]:
            printed[0] = tenth
            print(f"{scope}: {done:,} of {total:,} pairs read, {time.perf_counter() - begin:.0f} s", flush=True)

    return advance
