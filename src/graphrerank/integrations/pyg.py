"""Corpus graphs from and to PyTorch Geometric; ``pip install graphrerank[pyg]``."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.extras import importing
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import OTHER, edge_type_of

with importing("pyg", __name__):
    from torch_geometric.data import Data, HeteroData


def corpus_from_pyg(
    data: Data | HeteroData,
    texts: Sequence[str] | Mapping[str, Sequence[str]],
    node_ids: Sequence[str] | None = None,
    *,
    edge_meanings: Mapping[str, str] | None = None,
    undirected: bool = True,
) -> CorpusGraph:
    """Build a corpus graph.

    Of :class:`Data` are read ``edge_index``, ``edge_weight``, and ``edge_type`` if it holds numbers of
    :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`; of :class:`HeteroData` the edges of all relations, each with the
    type that its name means, and ``edge_weight`` where all have one. Self-loops are left out.
    ``j -> i`` of ``edge_index [2, E]`` makes ``j`` a neighbour of ``i``, and if ``undirected`` the other way too. There
    is one text per node, of :class:`HeteroData` by type of node; ids are positions, of :class:`HeteroData`
    ``type:position``, where ``node_ids`` are not given. ``edge_meanings`` as of ``edge_type_of``.

    Raises:
        ValueError: If there is not one text per node, or as :meth:`CorpusGraph.from_edges`.
    """
    edge_type: Tensor | None = None
    if isinstance(data, HeteroData):
        if not isinstance(texts, Mapping) or sorted(texts) != sorted(data.node_types):
            raise UserError(f"`texts` must map each of {sorted(data.node_types)} to its texts")
        for name in data.node_types:
            _check_texts(f"texts[{name!r}]", texts[name], data[name].num_nodes)
        listed = [text for name in data.node_types for text in texts[name]]
        node_ids = node_ids or [f"{name}:{index}" for name in data.node_types for index in range(len(texts[name]))]
        meaning = torch.tensor([edge_type_of(name, edge_meanings) for _, name, _ in data.edge_types], dtype=torch.int64)
        data = data.to_homogeneous(add_node_type=False)
        edge_type = meaning[data.edge_type]
    else:
        listed = list(texts)
        _check_texts("texts", listed, data.num_nodes)
        edge_type = data.get("edge_type")
    edges = torch.zeros(0, 2, dtype=torch.int64) if data.edge_index is None else data.edge_index.flip(0).T.contiguous()
    kept = edges[:, 0] != edges[:, 1]
    weight = data.get("edge_weight")
    return CorpusGraph.from_edges(
        list(node_ids or map(str, range(len(listed)))),
        listed,
        edges[kept],
        None if weight is None else weight[kept],
        edge_type=OTHER if edge_type is None else edge_type[kept],
        undirected=undirected,
    )


def _check_texts(name: str, texts: Sequence[str], num_nodes: int) -> None:
    if len(texts) != num_nodes:
        raise UserError(f"`{name}` must have one entry per node ({num_nodes}), got {len(texts)}")


def corpus_to_pyg(graph: CorpusGraph) -> Data:
    """Return ``edge_index [2, E]``, ``edge_weight [E]`` and ``edge_type [E]``, the vectors as ``x``, ids and texts.

    Two nodes are joined by one edge for each type.
    """
    edges, weight, edge_type = graph.typed_edges()
    return Data(
        x=graph.embedding,
        edge_index=edges.flip(1).T.contiguous(),
        edge_weight=weight,
        edge_type=edge_type,
        num_nodes=graph.num_nodes,
        node_ids=list(graph.node_ids),
        texts=list(graph.all_texts),
    )
