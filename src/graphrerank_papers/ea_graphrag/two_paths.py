"""Run the dense and the graph path for the questions of data sets, and decide which path is right."""

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
from graphrerank.data.loaders.merged import NAME_SEPARATOR
from graphrerank.data.qrels import Qrels
from graphrerank.metrics import perfect_recall
from graphrerank.metrics.coverage import coverage
from graphrerank.pipelines.router import fuse_paths
from graphrerank.utils.caching import cached_tensors
from graphrerank.utils.checks import UserError, check_positive_share
from graphrerank.utils.files import hash_json
from graphrerank_papers.answers.packing import candidate_texts
from graphrerank_papers.answers.scoring import CONTAIN_MATCH, JUDGED_MEASURE
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.experiments import hashed_order

#: Name of the merged data set in ``conf/data``.
MERGED = "merged"
#: Number of questions that each path retrieves before timing starts.
NUM_WARM_UP_QUESTIONS = 8
#: Names of the cached tensors.
STORED_FIELDS = ("dense_nodes", "dense_scores", "graph_nodes", "graph_scores", "seconds")
ROUTED_MEASURES = ("Hit@3", "Hit@5", "PR@5", "Answer@5")
#: Settings of one data set; see :meth:`PathRunner.read`.
Entry = Mapping[str, Any]
#: Rules that decide whether a ranking is right; see :meth:`TwoPaths.is_right`.
LABEL_RULES = ("all_relevant", "any_relevant", "answer_in_context", "language_model")


@dataclass(frozen=True, eq=False)
class TwoPaths:
    """Rankings of both paths for ``Q`` questions of one data set.

    Attributes:
        dataset: Data set of the questions.
        queries: Questions with their vectors.
        rows: Indices of the questions in the data set, ``[Q]`` int64.
        qrels: Relevance judgements. Must include those of these questions.
        dense: Ranking of the dense path ``[Q, K]``.
        graph: Ranking of the graph path ``[Q, K]``.
        seconds: Seconds per question of the dense and the graph path, measured on batches and without query encoding.
    """

    dataset: Dataset
    queries: Queries
    rows: Tensor
    qrels: Qrels
    dense: Ranking
    graph: Ranking
    seconds: tuple[float, float]

    def __len__(self) -> int:
        """Return the number of questions."""
        return len(self.queries)

    def routes(self, scores: Tensor) -> tuple[list[Ranking], Tensor]:
        """Return the rankings of all ``ROUTES`` and their times, ``[Q, 3]`` float64 seconds.

        Args:
            scores: Complexity scores ``[Q]``, which weight the two rankings in :func:`fuse_paths`.
        """
        begin = time.perf_counter()
        fused = fuse_paths(self.dense, self.graph, scores, top_k=self.dense.nodes.shape[1])
        fuse_seconds = (time.perf_counter() - begin) / len(self)
        dense, graph = self.seconds
        seconds = torch.tensor([dense, graph, dense + graph + fuse_seconds], dtype=torch.float64)
        return [self.dense, self.graph, fused], seconds.expand(len(self), -1)

    def measure(self, nodes: Tensor) -> dict[str, Tensor]:
        """Evaluate rankings of the questions.

        - ``Hit@k``: at least one relevant passage is in the top k.
        - ``PR@5``: all relevant passages are in the top 5.
        - ``Answer@5``: the text of the top 5 contains a right answer. NaN for questions without an answer.

        Args:
            nodes: Ranked nodes ``[Q, K]`` int64, best first, padded with -1.

        Returns:
            Value of each measure for each question, ``[Q]`` float64, 0 or 1.
        """
        relevance, gains = self._relevance(nodes)
        return {
            **{f"Hit@{k}": (relevance[:, :k] > 0).any(1).double() for k in (3, 5)},
            "PR@5": perfect_recall(relevance, gains, top_k=5),
            "Answer@5": self._holds_answer(nodes[:, :5]),
        }

    def is_right(self, nodes: Tensor, rule: str, *, answers: AnswerStage | None = None) -> Tensor:
        """Decide for which questions a ranking is right.

        The ``rule`` is one of :data:`LABEL_RULES` with a depth, such as ``all_relevant@5``:

        - ``all_relevant``: all relevant passages are in the top 5.
        - ``any_relevant``: at least one relevant passage is in the top 5.
        - ``answer_in_context``: the texts of the top 5 contain a right answer.
        - ``language_model``: the stage ``answers`` generates a right answer from the top 5. If the stage has a judge,
          the judge decides; otherwise, the generated text must contain a right answer.

        Source: "EA-GraphRAG", 2026, section 3.3, "as measured by automatic QA metrics". In the paper, the text that a
        language model generates must contain the answer.

        Args:
            nodes: Ranked nodes ``[Q, K]`` int64, best first, padded with -1.
            rule: Rule and depth.
            answers: Stage that answers questions from passages. Required by ``language_model``, ignored otherwise.

        Returns:
            Whether the ranking of each question is right, ``[Q]`` bool.

        Raises:
            ValueError: If the rule is unknown, or needs answers or a stage that are missing.
        """
        name, top_k = parse_rule(rule)
        relevance, gains = self._relevance(nodes)
        if name == "all_relevant":
            return perfect_recall(relevance, gains, top_k=top_k) > 0
        if name == "any_relevant":
            return (relevance[:, :top_k] > 0).any(1)
        right_answers = self.dataset.answers
        if missing := next((query_id for query_id in self.queries.ids if query_id not in right_answers), None):
            raise UserError(
                f"`right` = {rule} needs an `answer` in the metadata of every question; question {missing!r} of data "
                f"set {self.dataset.name!r} has none"
            )
        if name == "answer_in_context":
            return self._holds_answer(nodes[:, :top_k]) > 0
        if answers is None:
            raise UserError(f"`answers` is required with `right` = {rule}, got None")
        contexts = answers.packing.pack(candidate_texts(self.dataset.graph.texts, nodes[:, :top_k].tolist()))
        right = [right_answers[query_id] for query_id in self.queries.ids]
        (answered,) = answers.answer(self.queries.texts, {"": contexts}, right).values()
        return answered.values[CONTAIN_MATCH if answers.judge is None else JUDGED_MEASURE] > 0

    def _relevance(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        relevance = self.qrels.relevance(self.rows, nodes, num_nodes=self.dataset.graph.num_nodes)
        return relevance, self.qrels.gains(self.rows)

    def _holds_answer(self, nodes: Tensor) -> Tensor:
        right_answers = self.dataset.answers
        passages = candidate_texts(self.dataset.graph.texts, nodes.tolist())
        covered = [
            coverage("\n".join(texts), right_answers[query_id]) if query_id in right_answers else torch.nan
            for query_id, texts in zip(self.queries.ids, passages, strict=True)
        ]
        return torch.tensor(covered, dtype=torch.float64)


def parse_rule(rule: str) -> tuple[str, int]:
    """Parse a rule that decides whether a ranking is right, such as ``all_relevant@5``.

    Args:
        rule: One of :data:`LABEL_RULES`, ``@`` and the number of top passages.

    Returns:
        Name of the rule, and number of top passages.

    Raises:
        ValueError: If the rule is unknown or has no depth.

    Example:
        >>> parse_rule("all_relevant@5")
        ('all_relevant', 5)
    """
    matched = re.fullmatch(rf"({'|'.join(LABEL_RULES)})@([1-9]\d*)", rule)
    if matched is None:
        raise UserError(
            f"`right` must be one of {[f'{name}@5' for name in LABEL_RULES]}, where 5 may be any depth, got {rule!r}"
        )
    return matched[1], int(matched[2])


class PathRunner:
    """Run both paths for the questions of data sets. The rankings are cached in ``<cache>/two_paths``.

    Args:
        parts: Factory of the components. Also provides the cache folder.
        paths: Names of the pipelines in ``conf/pipeline`` for the paths ``dense`` and ``graph``. Both pipelines must
            have the same budget.
        encoder: Configuration of the text encoder.
        merged: Settings of each data set, by name, as in :meth:`read`. Their corpora are merged and searched as one. If
            None, each data set has its own corpus.

    Raises:
        ValueError: If the pipelines have different budgets.
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
            raise UserError(f"both paths must have the same `budget`, got {budgets}")
        self._parts, self._encoder, self._merged = parts, encoder, merged
        self._prepared: dict[str, tuple[PreparedDataset, PipelineFactory]] = {}

    def read(self, name: str, entry: Entry, *, seed: int) -> TwoPaths:
        """Return the rankings of both paths for questions of a data set.

        Args:
            name: Name of the data set in ``conf/data``, or a data set folder.
            entry: Settings of the data set: its ``splits``; optionally ``data``, the name in ``conf/data`` if it
                differs from ``name``; ``share``, the share of the questions to sample, in (0, 1], by default all; and
                ``max_relevant``, the maximum number of relevant passages of a question, by default unlimited.
            seed: Random seed of the sample.

        Raises:
            ValueError: If ``share`` is out of range, or no question is left.
        """
        prepared, build = self._prepare(name, entry)
        if self._merged is not None:
            entry = {**entry, "splits": [f"{name}{NAME_SEPARATOR}{split}" for split in entry["splits"]]}
        dataset = prepared.dataset
        splits = [dataset.split(str(split)) for split in entry["splits"]]
        qrels = Qrels(*(torch.cat([getattr(split, name) for split in splits]) for name in ("query", "node", "gain")))
        rows = _pick_queries(dataset, qrels, entry, seed=seed)
        queries = Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors).select(rows)
        settings = {path: path_settings(pipeline) for path, pipeline in self.pipelines.items()}
        key = hash_json([dataset.fingerprint, prepared.encoder_fingerprint, list(queries.ids), settings])
        file = self._parts.cache / "two_paths" / f"{dataset.name}-{key}.safetensors"
        tensors = cached_tensors(file, STORED_FIELDS, partial(self._retrieve, prepared, build, queries))
        dense, graph = (Ranking(tensors[f"{path}_nodes"], tensors[f"{path}_scores"]) for path in ("dense", "graph"))
        dense_seconds, graph_seconds = tensors["seconds"].tolist()
        return TwoPaths(dataset, queries, rows, qrels, dense, graph, (dense_seconds, graph_seconds))

    def _prepare(self, name: str, entry: Entry) -> tuple[PreparedDataset, PipelineFactory]:
        """Load and encode a data set, or the merged data sets, and return it with a pipeline factory for its corpus."""
        data: Any = str(entry.get("data") or name)
        if self._merged is not None:
            sets = {
                key: self._parts.settings("data", str(settings.get("data") or key))
                for key, settings in self._merged.items()
            }
            name, data = MERGED, self._parts.settings("data", MERGED, datasets=sets)
        if name not in self._prepared:
            prepared = self._parts.prepare(data, retriever="dense", encoder=self._encoder)
            build = self._parts.pipeline_factory(prepared, retriever="dense", encoder=self._encoder)
            self._prepared[name] = prepared, build
        return self._prepared[name]

    def _retrieve(self, prepared: PreparedDataset, build: PipelineFactory, queries: Queries) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        seconds = []
        for path, settings in self.pipelines.items():
            pipeline = build(settings)
            pipeline.retrieve(queries.block(0, NUM_WARM_UP_QUESTIONS))
            begin = time.perf_counter()
            ranking = pipeline.retrieve(queries).ranking
            seconds.append((time.perf_counter() - begin) / len(queries))
            tensors |= {f"{path}_nodes": ranking.nodes, f"{path}_scores": ranking.scores}
            print(f"{prepared.dataset.name}: {path} path, {1000 * seconds[-1]:.1f} ms per question", flush=True)
        return tensors | {"seconds": torch.tensor(seconds, dtype=torch.float64)}


def _pick_queries(dataset: Dataset, qrels: Qrels, entry: Entry, *, seed: int) -> Tensor:
    """Sample the questions of an entry (:meth:`PathRunner.read`), and return their indices ``[Q]``, ascending."""
    share, max_relevant = float(entry.get("share", 1.0)), entry.get("max_relevant")
    check_positive_share(share=share)
    queries = qrels.queries
    if max_relevant is not None:
        queries = queries[(qrels.gains(queries) > 0).sum(1) <= int(max_relevant)]
    # ordering by hash makes a smaller share a subset of a larger one
    order = hashed_order([dataset.query_ids[query] for query in queries.tolist()], seed)
    chosen = queries[torch.tensor(order[: round(share * len(order))], dtype=torch.int64)].sort().values
    if not len(chosen):
        raise UserError(f"data set {dataset.name!r} has no questions that match {dict(entry)}")
    return chosen


def question_key(text: str) -> str:
    """Return a hash of a question that ignores case and whitespace, to recognise the question in other data sets.

    Args:
        text: Text of the question.
    """
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def path_settings(settings: Any) -> Any:
    """Return the settings that determine a path's rankings: without folders and caches, and with bare class names.

    Args:
        settings: Configuration of a pipeline, or of a part of it.
    """
    if isinstance(settings, Mapping):
        named = {str(key): path_settings(value) for key, value in settings.items() if key not in ("folder", "cache")}
        return named | ({"_target_": str(settings["_target_"]).rpartition(".")[2]} if "_target_" in named else {})
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        return [path_settings(value) for value in settings]
    return settings
