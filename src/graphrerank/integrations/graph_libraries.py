"""Convert corpus graphs from and to networkx. For igraph, use the conversion between igraph and networkx."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES, edge_type_of
from graphrerank.utils.checks import UserError

if TYPE_CHECKING:
    import networkx


def corpus_from_networkx(
    graph: "networkx.Graph", *, text: str = "text", edge_meanings: Mapping[str, str] | None = None
) -> CorpusGraph:
    """Build a corpus graph from a networkx graph.

    Node ids are converted to strings. Edges may have the attributes ``weight`` and ``type`` (the name of an edge type,
    as in an edge file). Edges of a directed graph keep their direction. Self-loops are ignored.

    Args:
        graph: Graph of passages.
        text: Name of the node attribute with the passage text.
        edge_meanings: Maps names of types in the graph to edge types, as in
            :func:`~graphrerank.corpus.edge_types.edge_type_of`. If None, only the standard names are known.

    Returns:
        The corpus graph.

    Raises:
        ValueError: If a node has no text, or :meth:`CorpusGraph.from_edges` rejects the edges.
    """
    index_of = {node: index for index, node in enumerate(graph)}
    texts = [attributes.get(text) for _, attributes in graph.nodes(data=True)]
    if missing := [node for node, passage in zip(graph, texts, strict=True) if not isinstance(passage, str)]:
        attribute = graph.nodes[missing[0]].get(text)
        raise UserError(f"attribute {text!r} of every node must be a string, got {attribute!r} at node {missing[0]!r}")
    edges = [(index_of[i], index_of[j], attributes) for i, j, attributes in graph.edges(data=True) if i != j]
    types = [edge_type_of(str(attributes.get("type", "other")), edge_meanings) for _, _, attributes in edges]
    weights = [1.0 if attributes.get("weight") is None else float(attributes["weight"]) for _, _, attributes in edges]
    return CorpusGraph.from_edges(
        [str(node) for node in graph],
        texts,
        torch.tensor([(i, j) for i, j, _ in edges], dtype=torch.int64).reshape(-1, 2),
        torch.tensor(weights),
        edge_type=torch.tensor(types, dtype=torch.int64),
        undirected=not graph.is_directed(),
    )


def corpus_to_networkx(graph: CorpusGraph) -> "networkx.MultiDiGraph":
    """Return a corpus graph as a networkx graph.

    Args:
        graph: Corpus graph.

    Returns:
        A directed multigraph whose nodes are passage ids with the attribute ``text``. There is one edge, with the
        attributes ``weight`` and ``type``, per edge type and direction.
    """
    import networkx

    result, ids = networkx.MultiDiGraph(), graph.node_ids
    result.add_nodes_from((node, {"text": text}) for node, text in zip(ids, graph.all_texts, strict=True))
    for (i, j), weight, edge_type in zip(*(column.tolist() for column in graph.typed_edges()), strict=True):
        result.add_edge(ids[i], ids[j], weight=weight, type=EDGE_TYPES[edge_type])
    return result
