"""Several data sets over one corpus: each question is searched for among all their passages."""

from collections.abc import Mapping

import torch

from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.graphs import CorpusGraph

SEPARATOR = "-"  # between a data set's name and the id, or split, that it gave


def load_merged(
    datasets: Mapping[str, Dataset], *, name: str = "merged", knn: int = 0, knn_below: int | None = None
) -> Dataset:
    """Put data sets together: ``scifact``'s passage ``7`` is ``scifact-7``, its split ``test`` is ``scifact-test``.

    Edges stay within a data set; none are added between passages of two, but for ``knn``. Passages with one text in
    several data sets stay apart, and each is relevant to the questions of its data set.

    Args:
        datasets: By the names that ids begin with.
        name: Of what comes out.
        knn: Edges from each passage to its nearest neighbours of the whole corpus, as of
            :class:`~graphrerank.data.dataset.Dataset`; those of the parts are not added.
        knn_below: As there.

    Raises:
        ValueError: If there is none, or one has shared entities, vectors or removed passages.

    Example:
        >>> graph = CorpusGraph.from_edges(["a"], ["Metz"], torch.zeros(0, 2, dtype=torch.int64))
        >>> judged = Qrels(torch.tensor([0]), torch.tensor([0]), torch.ones(1))
        >>> part = Dataset("part", graph, ["q"], ["Where?"], {"test": judged})
        >>> both = load_merged({"x": part, "y": part})
        >>> both.graph.node_ids, list(both.splits)
        (['x-a', 'y-a'], ['x-test', 'y-test'])
    """
    if not datasets:
        raise ValueError("`datasets` must name at least one data set, got none")
    for key, part in datasets.items():
        graph = part.graph
        if graph.entities is not None or graph.embedding is not None or graph.passages.removed is not None:
            raise ValueError(f"`datasets` must be without shared entities, vectors and removed passages, got {key!r}")
    parts = list(datasets.items())
    edges, weights, types, splits = [], [], [], {}
    node = query = 0
    for key, part in parts:
        own, weight, kinds = part.graph.typed_edges()
        edges.append(own + node)
        weights.append(weight)
        types.append(kinds)
        for split, qrels in part.splits.items():
            splits[f"{key}{SEPARATOR}{split}"] = Qrels(qrels.query + query, qrels.node + node, qrels.gain)
        node, query = node + part.graph.num_nodes, query + len(part.query_ids)
    return Dataset(
        name,
        CorpusGraph.from_edges(
            [f"{key}{SEPARATOR}{node_id}" for key, part in parts for node_id in part.graph.node_ids],
            [text for _, part in parts for text in part.graph.texts],
            torch.cat(edges),
            torch.cat(weights),
            edge_type=torch.cat(types),
            undirected=False,
        ),
        [f"{key}{SEPARATOR}{query_id}" for key, part in parts for query_id in part.query_ids],
        [text for _, part in parts for text in part.query_texts],
        splits,
        knn=knn,
        knn_below=knn_below,
        answers={
            f"{key}{SEPARATOR}{query_id}": right for key, part in parts for query_id, right in part.answers.items()
        },
    )
