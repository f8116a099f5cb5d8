"""Questions of a data set with the rankings of the dense path and of the graph path, and which of them is right."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.data.dataset import Qrels
from graphrerank.graphs import Ranking
from graphrerank.metrics import perfect_recall
from graphrerank.metrics.coverage import coverage
from graphrerank.pipelines.router import fuse_paths
from graphrerank_papers.answers.packing import passages_of
from graphrerank_papers.answers.scoring import CONTAIN_MATCH, JUDGED
from graphrerank_papers.answers.stage import AnswerStage

ROUTED_MEASURES = ("Hit@3", "Hit@5", "PR@5", "Answer@5")
RULES = ("all_relevant", "any_relevant", "answer_in_context", "language_model")


@dataclass(frozen=True, eq=False)
class TwoPaths:
    """The rankings of both paths for ``Q`` questions of one data set."""

    dataset: str  # name of the data set
    query_ids: Sequence[str]  # `Q` strings
    texts: Sequence[str]  # `Q` questions
    queries: Tensor  # `[Q]` int64, their numbers in the data set
    qrels: Qrels  # judgements that hold these questions
    passages: Sequence[str]  # texts of the corpus
    answers: Mapping[str, Sequence[str]]  # right answers by query id, of those that have some
    dense: Ranking  # `[Q, K]`, ranking of the dense path
    graph: Ranking  # `[Q, K]`, ranking of the graph path
    # seconds per question on the dense and on the graph path, many at once, without encoding the question
    seconds: tuple[float, float]

    def __len__(self) -> int:
        """Return the number of questions."""
        return len(self.query_ids)

    def fused(self, scores: Tensor) -> Ranking:
        """Fuse both rankings, ``[Q, K]``, by the adapter's scores ``[Q]`` (:func:`fuse_paths`)."""
        return fuse_paths(self.dense, self.graph, scores, top_k=self.dense.nodes.shape[1])

    def measure(self, nodes: Tensor) -> dict[str, Tensor]:
        """Measure rankings of the questions, ``[Q, K]`` int64, best first, padded with -1.

        Returns:
            ``[Q]`` float64, 0 or 1, by measure: ``Hit@k``, a relevant passage in the top k; ``PR@5``, all of them;
            ``Answer@5``, a right answer in the text of the top 5, NaN where the question has none.
        """
        relevance, gains = self._relevance(nodes)
        measured = {f"Hit@{k}": (relevance[:, :k] > 0).any(1).double() for k in (3, 5)}
        measured["PR@5"] = perfect_recall(relevance, gains, top_k=5)
        measured["Answer@5"] = self._holds_answer(nodes, 5)
        return measured

    def is_right(self, nodes: Tensor, rule: str, *, answers: AnswerStage | None = None) -> Tensor:
        """Decide for which questions a ranking ``[Q, K]``, best first, padded with -1, is right: ``[Q]`` bool.

        ``rule`` is one of :data:`RULES` with a depth, as ``all_relevant@5``: all relevant passages, or any, in the top
        5; a right answer in their texts; or in what a stage answers from them, or as its judge says, if it has one.

        Source: "EA-GraphRAG", 2026, section 3.3: "as measured by automatic QA metrics"; its metric is the containment
        of the answer in what a language model says. The others need no language model.
        """
        name, top_k = parse_rule(rule)
        relevance, gains = self._relevance(nodes)
        if name == "all_relevant":
            return perfect_recall(relevance, gains, top_k=top_k) > 0
        if name == "any_relevant":
            return (relevance[:, :top_k] > 0).any(1)
        if missing := next((query_id for query_id in self.query_ids if query_id not in self.answers), None):
            raise ValueError(
                f"`right` = {rule} needs an `answer` in the metadata of every question, found none in {missing!r} of "
                f"data set {self.dataset!r}"
            )
        if name == "answer_in_context":
            return self._holds_answer(nodes, top_k) > 0
        if answers is None:
            raise ValueError(f"`answers` must be given with `right` = {rule}, got none")
        passages = passages_of(self.passages, nodes[:, :top_k].tolist())
        right = [self.answers[query_id] for query_id in self.query_ids]
        (said,) = answers.answer(self.texts, {"": passages}, right).values()
        return said.values[CONTAIN_MATCH if answers.judge is None else JUDGED] > 0

    def _relevance(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        relevance = self.qrels.relevance(self.queries, nodes, num_nodes=len(self.passages))
        return relevance, self.qrels.gains(self.queries)

    def _holds_answer(self, nodes: Tensor, top_k: int) -> Tensor:
        holds = [
            coverage("\n".join(self._top(row, top_k)), self.answers[query_id])
            if query_id in self.answers
            else torch.nan
            for query_id, row in zip(self.query_ids, nodes.tolist(), strict=True)
        ]
        return torch.tensor(holds, dtype=torch.float64)

    def _top(self, row: Sequence[int], top_k: int) -> list[str]:
        return [self.passages[node] for node in row[:top_k] if node >= 0]


def parse_rule(rule: str) -> tuple[str, int]:
    """Read when a ranking counts as right: the rule, and how deep to look."""
    matched = re.fullmatch(rf"({'|'.join(RULES)})@([1-9]\d*)", rule)
    if matched is None:
        raise ValueError(f"`right` must be one of {[f'{name}@5' for name in RULES]} or another depth, got {rule!r}")
    return matched[1], int(matched[2])
