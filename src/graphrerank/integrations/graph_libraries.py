"""Corpus graphs from and to networkx, igraph and SciPy; the library must be installed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import EDGE_TYPES, edge_type_of

if TYPE_CHECKING:
    import igraph
    import networkx
    from scipy.sparse import csr_array


def corpus_from_networkx(
    graph: "networkx.Graph", *, text: str = "text", edge_meanings: Mapping[str, str] | None = None
) -> CorpusGraph:
    """Build a corpus graph; an edge of a directed graph runs one way, self-loops are left out.

    Args:
        graph: Nodes are ids, made strings; edges may have ``weight`` and ``type``, a name as of an edge file.
        text: The attribute of a node that is its text.
        edge_meanings: As of ``edge_type_of``.

    Raises:
        ValueError: If a node has no text, or as :meth:`CorpusGraph.from_edges`.
    """
    nodes = list(graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    texts = [_text(graph.nodes[node], text, node) for node in nodes]
    edges = [(place[i], place[j], attributes) for i, j, attributes in graph.edges(data=True) if i != j]
    return _corpus([str(node) for node in nodes], texts, edges, edge_meanings, undirected=not graph.is_directed())


def corpus_to_networkx(graph: CorpusGraph) -> "networkx.MultiDiGraph":
    """Return a graph of ids with ``text``, and an edge with ``weight`` and ``type`` for each type and direction."""
    import networkx

    made = networkx.MultiDiGraph()
    made.add_nodes_from((node, {"text": text}) for node, text in zip(graph.node_ids, graph.all_texts, strict=True))
    for i, j, weight, edge_type in _typed(graph):
        made.add_edge(graph.node_ids[i], graph.node_ids[j], weight=weight, type=edge_type)
    return made


def corpus_from_igraph(
    graph: "igraph.Graph", *, text: str = "text", edge_meanings: Mapping[str, str] | None = None
) -> CorpusGraph:
    """Build a corpus graph; ids are the vertices' ``name``, or their numbers; else as :func:`corpus_from_networkx`."""
    has_names = "name" in graph.vs.attributes()
    node_ids = [str(vertex["name"]) if has_names else str(vertex.index) for vertex in graph.vs]
    texts = [_text(vertex.attributes(), text, node) for vertex, node in zip(graph.vs, node_ids, strict=True)]
    edges = [(edge.source, edge.target, edge.attributes()) for edge in graph.es if edge.source != edge.target]
    return _corpus(node_ids, texts, edges, edge_meanings, undirected=not graph.is_directed())


def corpus_to_igraph(graph: CorpusGraph) -> "igraph.Graph":
    """Return a directed graph with ``name`` and ``text``, and an edge with ``weight`` and ``type`` for each type."""
    import igraph

    rows = list(_typed(graph))
    return igraph.Graph(
        graph.num_nodes,
        [(i, j) for i, j, _, _ in rows],
        directed=True,
        vertex_attrs={"name": list(graph.node_ids), "text": list(graph.all_texts)},
        edge_attrs={"weight": [row[2] for row in rows], "type": [row[3] for row in rows]},
    )


def corpus_from_scipy(node_ids: Sequence[str], texts: Sequence[str], adjacency: Any) -> CorpusGraph:
    """Build a corpus graph from a sparse matrix ``[N, N]``: row ``i`` holds the weights of node ``i``'s neighbours."""
    matrix = adjacency.tocoo()
    if matrix.shape != (len(node_ids), len(node_ids)):
        raise ValueError(f"`adjacency` must be [{len(node_ids)}, {len(node_ids)}], got {list(matrix.shape)}")
    kept = (matrix.row != matrix.col) & (matrix.data != 0)
    edges = torch.from_numpy(np.stack([matrix.row[kept], matrix.col[kept]], axis=1).astype(np.int64))
    return CorpusGraph.from_edges(
        list(node_ids), list(texts), edges, torch.from_numpy(matrix.data[kept].astype(np.float32)), undirected=False
    )


def corpus_to_scipy(graph: CorpusGraph) -> "csr_array":
    """Return the weights as a sparse matrix ``[N, N]``, all types together."""
    from scipy.sparse import csr_array

    graph, shape = graph.with_rows_in_order(), (graph.num_nodes, graph.num_nodes)
    return csr_array((graph.weight.numpy(), graph.indices.numpy(), graph.indptr.numpy()), shape=shape)


def _text(attributes: Mapping[str, Any], name: str, node: Any) -> str:
    if not isinstance(text := attributes.get(name), str):
        raise ValueError(f"every node must have the text {name!r}, {node!r} has {text!r}")
    return text


def _corpus(
    node_ids: list[str],
    texts: list[str],
    edges: list[tuple[int, int, Mapping[str, Any]]],
    meanings: Mapping[str, str] | None,
    *,
    undirected: bool,
) -> CorpusGraph:
    types = [edge_type_of(str(attributes.get("type", "other")), meanings) for _, _, attributes in edges]
    weights = [1.0 if attributes.get("weight") is None else float(attributes["weight"]) for _, _, attributes in edges]
    return CorpusGraph.from_edges(
        node_ids,
        texts,
        torch.tensor([(i, j) for i, j, _ in edges], dtype=torch.int64).reshape(-1, 2),
        torch.tensor(weights),
        edge_type=torch.tensor(types, dtype=torch.int64),
        undirected=undirected,
    )


def _typed(graph: CorpusGraph) -> list[tuple[int, int, float, str]]:
    """List node, neighbour, weight and type of each edge."""
    edges, weight, edge_type = graph.typed_edges()
    names = [EDGE_TYPES[number] for number in edge_type.tolist()]
    return [(i, j, *rest) for (i, j), *rest in zip(edges.tolist(), weight.tolist(), names, strict=True)]
