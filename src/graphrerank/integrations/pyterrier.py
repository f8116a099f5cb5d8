"""The reranker as a transformer of PyTerrier, and a corpus graph for it; ``pip install graphrerank[pyterrier]``."""

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
    """A corpus graph from a list of edges, for :class:`GraphRerankTransformer` and ``pyterrier_adaptive.GAR``.

    ``edges`` are undirected pairs of positions in ``docnos``, each of weight 1 without ``weights``; self-loops are left
    out. Neighbours stand in the order of their weights.
    """

    def __init__(
        self, docnos: Sequence[str], edges: Sequence[tuple[int, int]], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__("")
        self._docnos = list(docnos)
        self._place = {docno: place for place, docno in enumerate(self._docnos)}
        found: list[dict[int, float]] = [{} for _ in self._docnos]
        for place, (i, j) in enumerate(edges):
            if not (0 <= i < len(found) and 0 <= j < len(found)):
                raise UserError(f"`edges` must join two of {len(found)} documents, got {(i, j)} at place {place}")
            weight = 1.0 if weights is None else weights[place]
            if i == j:
                continue
            found[i][j] = found[j][i] = max(weight, found[i].get(j, weight))
        self._rows = [sorted(row.items(), key=lambda pair: (-pair[1], pair[0])) for row in found]

    def neighbours(self, docid: int | str, weights: bool = False) -> Any:
        """Return the neighbours of a document, by place or by id as it is given, the largest weight first."""
        row = self._rows[self._place[docid] if isinstance(docid, str) else docid]
        found = np.array([j for j, _ in row], dtype=np.int64)
        neighbours = [self._docnos[j] for j in found] if isinstance(docid, str) else found
        return (neighbours, np.array([weight for _, weight in row], dtype=np.float32)) if weights else neighbours


class GraphRerankTransformer(pt.Transformer):
    """Ranks the documents of each query in a result frame: ``retriever >> GraphRerankTransformer(...)``.

    Reads the columns ``qid``, ``query``, ``docno``, ``score``, and the texts from ``text_field`` or, where the frame
    has no such column (as within ``pyterrier_adaptive.GAR``), from ``texts``, by ``docno``. Replaces ``score`` and
    ``rank``. The reranker must not need vectors. Edges of the ``corpus_graph``, any of PyTerrier's, join the documents
    of one list. ``reads_scores=False`` keeps the frame's scores from the model: within GAR they are of two kinds.
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
        """Rank each query's documents, all queries in one pass of the model."""
        needed = ["qid", "query", "docno", *(["score"] if self._reads_scores else [])]
        if missing := [name for name in needed if name not in inp.columns]:
            raise UserError(f"the frame must have the columns {needed}, missing are {missing}")
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
            column = f"the frame has no column {self._text_field!r}"
            raise UserError(f"`texts` must hold every document, missing is {absent[0]!r}; {column}")
        scores = group["score"].tolist() if self._reads_scores else None
        query, passages = group["query"].iloc[0], ["" if pd.isna(texts[docno]) else texts[docno] for docno in docnos]
        return RerankInput(query, passages, scores=scores, edges=self._edges(docnos))

    def _edges(self, docnos: list[str]) -> list[tuple[int, int]]:
        if self._corpus_graph is None:
            return []
        place = {docno: i for i, docno in enumerate(docnos)}
        graph: Any = self._corpus_graph
        pairs = ((i, place.get(other, i)) for i, docno in enumerate(docnos) for other in graph.neighbours(docno))
        return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
