"""The rankings of the dense and of the graph path for questions of data sets: retrieved once, and which is right."""

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrerank.config.components import ComponentFactory, PipelineFactory
from graphrerank.core import Queries, Ranking
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.data.loaders.merged import SEPARATOR
from graphrerank.data.qrels import Qrels
from graphrerank.metrics import perfect_recall
from graphrerank.metrics.coverage import coverage
from graphrerank.pipelines.router import fuse_paths
from graphrerank.utils.caching import cached_tensors
from graphrerank.utils.checks import UserError, check_positive_share
from graphrerank.utils.files import hash_json
from graphrerank_papers.answers.packing import candidate_texts
from graphrerank_papers.answers.scoring import CONTAIN_MATCH, JUDGED
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.experiments import hashed_order

MERGED = "merged"  # of conf/data
WARM_UP = 8  # questions that each path retrieves before the clock starts
KEPT = ("dense_nodes", "dense_scores", "graph_nodes", "graph_scores", "seconds")
ROUTED_MEASURES = ("Hit@3", "Hit@5", "PR@5", "Answer@5")
Entry = Mapping[str, Any]  # of a data set in the settings, see :meth:`PathRunner.read`
RULES = ("all_relevant", "any_relevant", "answer_in_context", "language_model")


@dataclass(frozen=True, eq=False)
class TwoPaths:
    """The rankings of both paths for ``Q`` questions of one data set."""

    dataset: Dataset
    queries: Queries
    rows: Tensor  # `[Q]` int64, numbers of the questions in the data set
    qrels: Qrels  # judgements that hold these questions
    dense: Ranking  # `[Q, K]`, ranking of the dense path
    graph: Ranking  # `[Q, K]`, ranking of the graph path
    seconds: tuple[float, float]  # per question on both paths, many at once, without encoding the question

    def __len__(self) -> int:
        """Return the number of questions."""
        return len(self.queries)

    def routes(self, scores: Tensor) -> tuple[list[Ranking], Tensor]:
        """Return the ranking of each of ``ROUTES`` and its seconds, ``[Q, 3]`` float64.

        ``scores`` ``[Q]`` are the adapter's, by which both rankings are fused (:func:`fuse_paths`).
        """
        begin = time.perf_counter()
        fused = fuse_paths(self.dense, self.graph, scores, top_k=self.dense.nodes.shape[1])
        fuse_seconds = (time.perf_counter() - begin) / len(self)
        dense, graph = self.seconds
        seconds = torch.tensor([dense, graph, dense + graph + fuse_seconds], dtype=torch.float64)
        return [self.dense, self.graph, fused], seconds.expand(len(self), -1)

    def measure(self, nodes: Tensor) -> dict[str, Tensor]:
        """Measure rankings of the questions, ``[Q, K]`` int64, best first, padded with -1: ``[Q]`` float64, 0 or 1.

        ``Hit@k``: a relevant passage in the top k; ``PR@5``: all of them; ``Answer@5``: a right answer in the text of
        the top 5, NaN where the question has none.
        """
        relevance, gains = self._relevance(nodes)
        return {
            **{f"Hit@{k}": (relevance[:, :k] > 0).any(1).double() for k in (3, 5)},
            "PR@5": perfect_recall(relevance, gains, top_k=5),
            "Answer@5": self._holds_answer(nodes[:, :5]),
        }

    def is_right(self, nodes: Tensor, rule: str, *, answers: AnswerStage | None = None) -> Tensor:
        """Decide for which questions a ranking ``[Q, K]``, best first, padded with -1, is right: ``[Q]`` bool.

        ``rule`` is one of :data:`RULES` with a depth, as ``all_relevant@5``: all relevant passages, or any, in the top
        5; a right answer in their texts; or in what a stage answers from them, or as its judge says, if it has one.

        Source: "EA-GraphRAG", 2026, section 3.3: "as measured by automatic QA metrics"; its metric is the containment
        of the answer in what a language model says.
        """
        name, top_k = parse_rule(rule)
        relevance, gains = self._relevance(nodes)
        if name == "all_relevant":
            return perfect_recall(relevance, gains, top_k=top_k) > 0
        if name == "any_relevant":
            return (relevance[:, :top_k] > 0).any(1)
        known = self.dataset.answers
        if missing := next((query_id for query_id in self.queries.ids if query_id not in known), None):
            raise UserError(
                f"`right` = {rule} needs an `answer` in the metadata of every question, found none in {missing!r} of "
                f"data set {self.dataset.name!r}"
            )
        if name == "answer_in_context":
            return self._holds_answer(nodes[:, :top_k]) > 0
        if answers is None:
            raise UserError(f"`answers` must be given with `right` = {rule}, got none")
        contexts = answers.packing.pack(candidate_texts(self.dataset.graph.texts, nodes[:, :top_k].tolist()))
        right = [known[query_id] for query_id in self.queries.ids]
        (answered,) = answers.answer(self.queries.texts, {"": contexts}, right).values()
        return answered.values[CONTAIN_MATCH if answers.judge is None else JUDGED] > 0

    def _relevance(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        relevance = self.qrels.relevance(self.rows, nodes, num_nodes=self.dataset.graph.num_nodes)
        return relevance, self.qrels.gains(self.rows)

    def _holds_answer(self, nodes: Tensor) -> Tensor:
        known = self.dataset.answers
        passages = candidate_texts(self.dataset.graph.texts, nodes.tolist())
        holds = [
            coverage("\n".join(texts), known[query_id]) if query_id in known else torch.nan
            for query_id, texts in zip(self.queries.ids, passages, strict=True)
        ]
        return torch.tensor(holds, dtype=torch.float64)


def parse_rule(rule: str) -> tuple[str, int]:
    """Read when a ranking counts as right: the rule, and how deep to look."""
    matched = re.fullmatch(rf"({'|'.join(RULES)})@([1-9]\d*)", rule)
    if matched is None:
        raise UserError(f"`right` must be one of {[f'{name}@5' for name in RULES]} or another depth, got {rule!r}")
    return matched[1], int(matched[2])


class PathRunner:
    """Retrieves questions of data sets on both paths, once: the rankings are cached in ``<cache>/two_paths``.

    ``paths`` names the files of ``conf/pipeline`` of ``dense`` and ``graph``, which have one budget. ``merged`` are
    entries by name as of :meth:`read` whose corpora are searched as one; None for a corpus of each.
    """

    def __init__(
        self,
        parts: ComponentFactory,
        paths: Mapping[str, str],
        *,
        encoder: Any,
        merged: Mapping[str, Entry] | None = None,
    ) -> None:
        self.pipelines = {path: parts.settings("pipeline", name) for path, name in paths.items()}
        budgets = [pipeline["budget"] for pipeline in self.pipelines.values()]
        if len(set(budgets)) > 1:
            raise UserError(f"both paths must have one `budget`, got {budgets}")
        self._parts, self._encoder, self._merged = parts, encoder, merged
        self._prepared: dict[str, tuple[PreparedDataset, PipelineFactory]] = {}

    def read(self, name: str, entry: Entry, *, seed: int) -> TwoPaths:
        """Return both paths' rankings of some questions of a data set.

        ``name`` is of ``conf/data``, or a folder. ``entry`` has ``splits`` and, if given, ``data``, which replaces the
        name; ``share`` of their questions, in (0, 1], which the ``seed`` chooses; and ``max_relevant``, the most
        relevant passages that a question may have.
        """
        prepared, build = self._prepare(name, entry)
        if self._merged is not None:
            entry = {**entry, "splits": [f"{name}{SEPARATOR}{split}" for split in entry["splits"]]}
        dataset = prepared.dataset
        splits = [dataset.split(str(split)) for split in entry["splits"]]
        qrels = Qrels(*(torch.cat([getattr(part, name) for part in splits]) for name in ("query", "node", "gain")))
        rows = _pick_queries(dataset, qrels, entry, seed=seed)
        queries = Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors).select(rows)
        settings = {path: path_settings(pipeline) for path, pipeline in self.pipelines.items()}
        key = hash_json([dataset.fingerprint, prepared.encoder_fingerprint, list(queries.ids), settings])
        file = self._parts.cache / "two_paths" / f"{dataset.name}-{key}.safetensors"
        kept = cached_tensors(file, KEPT, partial(self._retrieve, prepared, build, queries))
        dense, graph = (Ranking(kept[f"{path}_nodes"], kept[f"{path}_scores"]) for path in ("dense", "graph"))
        dense_seconds, graph_seconds = kept["seconds"].tolist()
        return TwoPaths(dataset, queries, rows, qrels, dense, graph, (dense_seconds, graph_seconds))

    def _prepare(self, name: str, entry: Entry) -> tuple[PreparedDataset, PipelineFactory]:
        """Load and encode a data set, or all as one, and return a factory of pipelines over its corpus."""
        data: Any = str(entry.get("data") or name)
        if self._merged is not None:
            sets = {key: self._parts.settings("data", str(of.get("data") or key)) for key, of in self._merged.items()}
            name, data = MERGED, self._parts.settings("data", MERGED, datasets=sets)
        if name not in self._prepared:
            prepared = self._parts.prepare(data, retriever="dense", encoder=self._encoder)
            build = self._parts.pipeline_factory(prepared, retriever="dense", encoder=self._encoder)
            self._prepared[name] = prepared, build
        return self._prepared[name]

    def _retrieve(self, prepared: PreparedDataset, build: PipelineFactory, queries: Queries) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        seconds = []
        for path, described in self.pipelines.items():
            pipeline = build(described)
            pipeline.retrieve(queries.block(0, WARM_UP))
            begin = time.perf_counter()
            ranking = pipeline.retrieve(queries).ranking
            seconds.append((time.perf_counter() - begin) / len(queries))
            tensors |= {f"{path}_nodes": ranking.nodes, f"{path}_scores": ranking.scores}
            print(f"{prepared.dataset.name}: {path} path, {1000 * seconds[-1]:.1f} ms per question", flush=True)
        return tensors | {"seconds": torch.tensor(seconds, dtype=torch.float64)}


def _pick_queries(dataset: Dataset, qrels: Qrels, entry: Entry, *, seed: int) -> Tensor:
    """Choose the questions of an entry (:meth:`PathRunner.read`): ``[Q]`` int64, ascending."""
    share, most = float(entry.get("share", 1.0)), entry.get("max_relevant")
    check_positive_share(share=share)
    queries = qrels.queries
    if most is not None:
        queries = queries[(qrels.gains(queries) > 0).sum(1) <= int(most)]
    order = hashed_order([dataset.query_ids[query] for query in queries.tolist()], seed)  # so that shares are nested
    chosen = queries[torch.tensor(order[: round(share * len(order))], dtype=torch.int64)].sort().values
    if not len(chosen):
        raise UserError(f"data set {dataset.name!r} must have questions for {dict(entry)}, found none")
    return chosen


def question_key(text: str) -> str:
    """Hash a question regardless of case and spaces, to recognise it in another data set."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def path_settings(settings: Any) -> Any:
    """Return all that decides a path's rankings: its settings and classes by their names, without folders."""
    if isinstance(settings, Mapping):
        named = {str(key): path_settings(part) for key, part in settings.items() if key not in ("folder", "cache")}
        return named | ({"_target_": str(settings["_target_"]).rpartition(".")[2]} if "_target_" in named else {})
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        return [path_settings(part) for part in settings]
    return settings
