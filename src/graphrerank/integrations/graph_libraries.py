"""Corpus graphs from and to networkx, which must be installed; igraph reads and makes graphs of networkx."""

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
    """Build a corpus graph; an edge of a directed graph runs one way, self-loops are left out.

    Nodes are ids, made strings; ``text`` is their attribute that holds the text. Edges may have ``weight`` and
    ``type``, a name as of an edge file; ``edge_meanings`` as of ``edge_type_of``.

    Raises:
        ValueError: If a node has no text, or as :meth:`CorpusGraph.from_edges`.
    """
    place = {node: number for number, node in enumerate(graph)}
    texts = [attributes.get(text) for _, attributes in graph.nodes(data=True)]
    if missing := [node for node, found in zip(graph, texts, strict=True) if not isinstance(found, str)]:
        found = graph.nodes[missing[0]].get(text)
        raise UserError(f"every node must have the text {text!r}, {missing[0]!r} has {found!r}")
    edges = [(place[i], place[j], attributes) for i, j, attributes in graph.edges(data=True) if i != j]
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
    """Return a graph of ids with ``text``, and an edge with ``weight`` and ``type`` for each type and direction."""
    import networkx

    made, ids = networkx.MultiDiGraph(), graph.node_ids
    made.add_nodes_from((node, {"text": text}) for node, text in zip(ids, graph.all_texts, strict=True))
    for (i, j), weight, edge_type in zip(*(column.tolist() for column in graph.typed_edges()), strict=True):
        made.add_edge(ids[i], ids[j], weight=weight, type=EDGE_TYPES[edge_type])
    return made
