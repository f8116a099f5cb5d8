"""Use the reranker as a transformer of PyTerrier, with a corpus graph.

Install it with ``pip install graphrerank[pyterrier]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphrerank.installation.extras import importing
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.utils.checks import UserError

with importing("pyterrier", __name__):
    import pandas as pd
    import pyterrier as pt
    import pyterrier_adaptive


class EdgeGraph(pyterrier_adaptive.CorpusGraph):
    """Corpus graph built from a list of edges, for :class:`GraphRerankTransformer` and ``pyterrier_adaptive.GAR``.

    Neighbours are sorted by weight, largest first. Self-loops are ignored.

    Args:
        docnos: Ids of the documents.
        edges: Undirected edges, as pairs of positions in ``docnos``.
        weights: Weight of each edge. If None, all weights are 1.

    Raises:
        ValueError: If an edge refers to a position outside ``docnos``.
    """

    def __init__(
        self, docnos: Sequence[str], edges: Sequence[tuple[int, int]], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__("")
        self._docnos = list(docnos)
        self._index_of = {docno: index for index, docno in enumerate(self._docnos)}
        neighbours: list[dict[int, float]] = [{} for _ in self._docnos]
        for index, (i, j) in enumerate(edges):
            if not (0 <= i < len(neighbours) and 0 <= j < len(neighbours)):
                raise UserError(
                    f"`edges` must be pairs of positions of the {len(neighbours)} documents, got {(i, j)} at index "
                    f"{index}"
                )
            weight = 1.0 if weights is None else weights[index]
            if i == j:
                continue
            neighbours[i][j] = neighbours[j][i] = max(weight, neighbours[i].get(j, weight))
        self._rows = [sorted(row.items(), key=lambda pair: (-pair[1], pair[0])) for row in neighbours]

    def neighbours(self, docid: int | str, weights: bool = False) -> Any:
        """Return the neighbours of a document, those with the largest weight first.

        Args:
            docid: Position or id of the document. Neighbours are returned in the same form.
            weights: Whether to return the weights too.

        Returns:
            Positions (an int64 array) or ids (a list) of the neighbours. If ``weights``, a pair with the float32
            weights.
        """
        row = self._rows[self._index_of[docid] if isinstance(docid, str) else docid]
        indices = np.array([j for j, _ in row], dtype=np.int64)
        neighbours = [self._docnos[j] for j in indices] if isinstance(docid, str) else indices
        return (neighbours, np.array([weight for _, weight in row], dtype=np.float32)) if weights else neighbours


class GraphRerankTransformer(pt.Transformer):
    """Transformer that reranks the documents of each query, as in ``retriever >> GraphRerankTransformer(...)``.

    Reads the columns ``qid``, ``query``, ``docno``, ``score`` and ``text_field``. Replaces ``score`` and ``rank``.

    Args:
        reranker: Reranker whose model needs no vectors.
        corpus_graph: Any corpus graph of PyTerrier. Its edges connect the documents of the same query. If None, there
            are no edges.
        text_field: Name of the column with the document texts.
        texts: Texts of the documents by ``docno``, used if the frame has no column ``text_field``. This is the case
            within ``pyterrier_adaptive.GAR``.
        reads_scores: Whether the model uses the column ``score``. Use False within GAR, which mixes two kinds of
            scores.
    """

    def __init__(
        self,
        reranker: GraphReranker,
        *,
        corpus_graph: pyterrier_adaptive.CorpusGraph | None = None,
        text_field: str = "text",
        texts: Mapping[str, str] | None = None,
        reads_scores: bool = True,
    ) -> None:
        self._reranker, self._corpus_graph = reranker, corpus_graph
        self._text_field, self._texts, self._reads_scores = text_field, texts, reads_scores

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rank the documents of each query. All queries are scored in one batch.

        Args:
            inp: Result frame.

        Returns:
            The frame sorted by rank within each query, with new columns ``score`` and ``rank``.

        Raises:
            ValueError: If a column or the text of a document is missing.
        """
        needed = ["qid", "query", "docno", *(["score"] if self._reads_scores else [])]
        if missing := [name for name in needed if name not in inp.columns]:
            raise UserError(f"the frame must have the columns {needed}, but {missing} are missing")
        if not len(inp):
            return pt.model.add_ranks(inp.assign(score=pd.Series(dtype=float)))
        groups = [group for _, group in inp.groupby("qid", sort=False)]
        rankings = self._reranker.rerank_batch([self._input(group) for group in groups])
        ranked = [
            group.iloc[ranking.indices.numpy()].assign(score=ranking.relevance.numpy(), rank=range(len(ranking)))
            for group, ranking in zip(groups, rankings, strict=True)
        ]
        return pd.concat(ranked, ignore_index=True)

    def _input(self, group: pd.DataFrame) -> RerankInput:
        docnos: list[str] = group["docno"].tolist()
        texts = self._texts or {}
        if self._text_field in group.columns:
            texts = dict(zip(docnos, group[self._text_field], strict=True))
        if absent := [docno for docno in docnos if docno not in texts]:
            raise UserError(
                f"`texts` must have every document because the frame has no column {self._text_field!r}, but "
                f"{absent[0]!r} is missing"
            )
        scores = group["score"].tolist() if self._reads_scores else None
        query, passages = group["query"].iloc[0], ["" if pd.isna(texts[docno]) else texts[docno] for docno in docnos]
        return RerankInput(query, passages, scores=scores, edges=self._edges(docnos))

    def _edges(self, docnos: list[str]) -> list[tuple[int, int]]:
        if self._corpus_graph is None:
            return []
        index_of = {docno: i for i, docno in enumerate(docnos)}
        graph: Any = self._corpus_graph
        pairs = ((i, index_of.get(other, i)) for i, docno in enumerate(docnos) for other in graph.neighbours(docno))
        return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
