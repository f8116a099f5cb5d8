"""A set to judge: what several systems rank highest, pooled, without saying which system found it."""

import csv
from collections.abc import Sequence
from io import StringIO

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.data.dataset import RetrievalDataset
from graphrerank.graphs import Ranking

DEPTH = 10  # of each ranking
HEADER = ("query-id", "corpus-id", "score", "query", "text")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute a cell that begins so


def pool_csv(dataset: RetrievalDataset, queries: Tensor, rankings: Sequence[Ranking], *, depth: int = DEPTH) -> str:
    """Write the passages that any ranking has among its first as CSV, with an empty score to fill in.

    Source: the pooling of Spärck Jones and van Rijsbergen, "Report on the Need for and Provision of an 'Ideal'
    Information Retrieval Test Collection", 1975. A query's passages come in the order of a hash.

    Args:
        dataset: Corpus and queries.
        queries: ``[Q]`` int64, the rows of the rankings.
        rankings: ``[Q, K]`` each.
        depth: Passages of each ranking.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    pooled = torch.cat([ranking.nodes[:, :depth].cpu() for ranking in rankings], dim=1)
    for query, row in zip(queries.tolist(), pooled.tolist(), strict=True):
        query_id, query_text = dataset.query_ids[query], dataset.query_texts[query]
        ids = {node: dataset.graph.node_ids[node] for node in row if node >= 0}
        for node in sorted(ids, key=lambda node: hash_texts([query_id, ids[node]])):
            shown = (_shown(query_text), _shown(dataset.graph.texts[node]))
            writer.writerow([query_id, ids[node], "", *shown])
    return text.getvalue()


def chosen_queries(dataset: RetrievalDataset, count: int) -> Tensor:
    """Choose queries by the hash of their ids: ``[Q]`` int64, ascending; all if there are fewer."""
    by_hash = sorted(range(len(dataset.query_ids)), key=lambda query: hash_texts([dataset.query_ids[query]]))
    return torch.tensor(sorted(by_hash[:count]), dtype=torch.int64)


def _shown(text: str) -> str:
    """Keep a spreadsheet from reading a text as a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
