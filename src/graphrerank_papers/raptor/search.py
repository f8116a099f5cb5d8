"""RAPTOR: search in a tree of passages and summaries."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.checks import check_choice, check_counts
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.indexing.listed_passages import with_listed
from graphrerank_papers.raptor.summary_tree import SummaryTreeBuilder, SummaryTreeSettings

SEARCHES = ("collapsed", "tree")


class RAPTORSearch:
    """Replace the retrieved passages by those found in the summary tree.

    - ``collapsed``: passages and summaries are ranked together by their similarity to the query; a summary stands for
      the passages below it that are not listed yet, the most similar first.
    - ``tree``: from the highest layer down, the children of the ``num_branches`` most similar nodes are compared; the
      passages among the last children are ranked by similarity, which may be fewer than the budget.

    Source: Sarthi et al., "RAPTOR", 2024, section 3, tree traversal and collapsed tree. *Where we differ:* we rank
    passages, where RAPTOR gives its reader the texts of all nodes that it selects.

    Args:
        resources: Resources of the pipeline; its ``text_encoder`` encodes the summaries.
        folder: Folder of indexes.
        search: ``collapsed`` or ``tree``.
        num_branches: Nodes followed on each layer of a tree search.
        settings: Settings of the tree; None for the defaults.
        language_model: Language model that writes summaries; None to quote the passages.
        prompt: Of the language model (:func:`write_summaries`); None for the one that ships.
        cache: Folder of cached answers of the language model; None for no cache.

    Raises:
        ValueError: If a setting is out of range, or the corpus or its encoder lacks.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        search: str = "collapsed",
        num_branches: int = 10,
        settings: SummaryTreeSettings | None = None,
        language_model: ChatModel | None = None,
        prompt: Prompt | None = None,
        cache: str | Path | None = None,
    ) -> None:
        check_choice(SEARCHES, search=search)
        check_counts(num_branches=num_branches)
        self.search, self.num_branches = search, num_branches
        self._resources = resources
        model = None if language_model is None else remembering(language_model, cache)
        builder = SummaryTreeBuilder(folder, encoder=resources.index_encoder, language_model=model, prompt=prompt)
        graph = resources.graph
        self._tree = builder.build(graph.all_texts, graph.encoded, settings)
        print(self._tree.report(), flush=True)
        self._vectors = torch.cat([graph.encoded, self._tree.vectors.to(graph.encoded)])

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search the tree for each query; one without a vector keeps its ranking."""
        with self._resources.clock("graph"):
            similarity = state.queries.encoded.to(self._vectors) @ self._vectors.T
            find = self._collapsed if self.search == "collapsed" else self._descend
            listed = [list(find(row)) if bool(row.any()) else [] for row in similarity]
            return with_listed(state, listed, budget=self._resources.budget)

    def _collapsed(self, similarity: Tensor) -> Iterator[int]:
        num_passages, seen, scores = self._tree.num_passages, set[int](), similarity.tolist()
        for node in torch.argsort(similarity, descending=True, stable=True).tolist():
            passages = [node] if node < num_passages else self._tree.leaves[node - num_passages]
            for passage in sorted(passages, key=lambda leaf: (-scores[leaf], leaf)):
                if passage not in seen:
                    seen.add(passage)
                    yield passage
            if len(seen) >= self._resources.budget:
                return

    def _descend(self, similarity: Tensor) -> list[int]:
        num_passages, scores = self._tree.num_passages, similarity.tolist()
        num_roots = self._tree.layers[-1] if self._tree.layers else len(scores)
        nodes = list(range(len(scores) - num_roots, len(scores)))
        for _ in self._tree.layers:
            followed = sorted(nodes, key=lambda node: (-scores[node], node))[: self.num_branches]
            nodes = sorted({child for node in followed for child in self._tree.children[node - num_passages]})
        return sorted(nodes, key=lambda node: (-scores[node], node))
