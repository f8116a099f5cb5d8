"""Text-rich knowledge graphs: the entities of a corpus as nodes with texts, joined by the relations between them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import REFERENCE
from graphrerank.graphs.sparse_rows import row_entries
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, KnowledgeExtractor
from graphrerank.text import normalize_entity

PASSAGE = "passage:"  # opens the id of a node that is a whole passage


def load_text_rich_graph(
    source: Dataset,
    *,
    extractor: KnowledgeExtractor,
    name: str | None = None,
    max_entities: int | None = None,
    max_characters: int = 4096,
    cache: str | Path | None = None,
) -> Dataset:
    """Build a text-rich knowledge graph from a data set's passages (:func:`text_rich_graph`).

    Args:
        source: The data set.
        extractor: Extracts entities and relations.
        name: As of :func:`text_rich_graph`.
        max_entities: As there.
        max_characters: As there.
        cache: Folder that keeps extracted knowledge, in its ``knowledge/``; nothing is kept when None.
    """
    if cache is not None:
        extractor = KnowledgeCache(extractor, Path(cache) / "knowledge")
    knowledge = extractor.extract(source.graph.all_texts)
    return text_rich_graph(source, knowledge, name=name, max_entities=max_entities, max_characters=max_characters)


def text_rich_graph(
    source: Dataset,
    knowledge: Sequence[Knowledge],
    *,
    name: str | None = None,
    max_entities: int | None = None,
    max_characters: int = 4096,
) -> Dataset:
    """Merge the knowledge of all passages into one graph.

    - Entities whose names :func:`~graphrerank.text.normalize_entity` makes equal are one node. Its id is that name, so
      that it stays when passages are added; its text is the most frequent spelling and the entity's descriptions.
    - Two nodes are joined if a relation joins them, in either direction; the weight is the number of such relations.
    - A passage makes nodes of those entities that are in one of its relations, or of all if it has no relations.
    - All nodes of a relevant passage are relevant, with the largest gain of their passages. A passage without entities
      is a node too, so that no query loses relevant nodes.

    Source: "FastInsight", 2026, section 4.2.2, after "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024.
    We concatenate descriptions (LightRAG lets a language model summarise long ones).

    Args:
        source: The data set whose passages were read; its edges and entities play no part.
        knowledge: The knowledge of each of its ``D`` passages.
        name: Short name of the graph; the source's with "-G" when None.
        max_entities: Entities to keep per passage, at least 1, those in most of its relations first; all when None.
        max_characters: Length up to which descriptions are added to a node's text; the first always is.

    Raises:
        ValueError: If lengths differ, or a number is below 1.
    """
    if len(knowledge) != source.graph.num_nodes:
        raise ValueError(
            f"`knowledge` must have one entry per passage ({source.graph.num_nodes}), got {len(knowledge)}"
        )
    check_counts(max_entities=max_entities, max_characters=max_characters)
    nodes = _Nodes(max_characters)
    weight: Counter[tuple[int, int]] = Counter()
    for passage, known in enumerate(knowledge):
        node_of: dict[str, int] = {}
        for entity in _kept(known, max_entities):
            if comparable := normalize_entity(entity.name):
                node_of[entity.name] = nodes.add(comparable, entity.name, entity.description, passage)
        if not node_of:
            nodes.add(f"{PASSAGE}{source.graph.node_ids[passage]}", "", source.graph.texts[passage], passage)
        for relation in known.relations:
            ends = node_of.get(relation.head), node_of.get(relation.tail)
            if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
                weight[min(ends[0], ends[1]), max(ends[0], ends[1])] += 1
    pairs = sorted(weight)
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    weights = torch.tensor([weight[pair] for pair in pairs], dtype=torch.float32)
    graph = CorpusGraph.from_edges(list(nodes.node_of), nodes.texts(), edges, weights, edge_type=REFERENCE)
    indptr, indices = nodes.passages()
    return Dataset(
        name or f"{source.name}-G",
        graph,
        source.query_ids,
        source.query_texts,
        _judge_nodes(source.splits, indptr, indices, source.graph.num_nodes),
        edge_counts={"relations": len(edges)},
    )


class _Nodes:
    """Collects entities of equal name."""

    def __init__(self, max_characters: int) -> None:
        self.node_of: dict[str, int] = {}
        self._max_characters = max_characters
        self._spellings: list[Counter[str]] = []
        self._descriptions: list[dict[str, None]] = []
        self._passages: list[dict[int, None]] = []

    def add(self, node_id: str, name: str, description: str, passage: int) -> int:
        node = self.node_of.setdefault(node_id, len(self.node_of))
        if node == len(self._spellings):
            self._spellings.append(Counter())
            self._descriptions.append({})
            self._passages.append({})
        self._spellings[node][name] += 1
        self._passages[node][passage] = None
        if description:
            self._descriptions[node][description] = None
        return node

    def texts(self) -> list[str]:
        return [self._text(node) for node in range(len(self._spellings))]

    def passages(self) -> tuple[Tensor, Tensor]:
        counts = torch.tensor([0, *map(len, self._passages)])
        return counts.cumsum(0), torch.tensor([passage for row in self._passages for passage in row], dtype=torch.int64)

    def _text(self, node: int) -> str:
        ((name, _),) = self._spellings[node].most_common(1)  # the first of equals
        text = ""
        for description in self._descriptions[node]:
            if text and len(text) + 1 + len(description) > self._max_characters:
                break
            text = f"{text} {description}" if text else description
        return ". ".join(filter(None, (name, text)))


def _kept(knowledge: Knowledge, max_entities: int | None) -> list[Entity]:
    """Choose the entities of a passage that become nodes, in the passage's order."""
    count = Counter(end for relation in knowledge.relations for end in (relation.head, relation.tail))
    candidates = [entity for entity in knowledge.entities if count[entity.name] or not count]
    kept = set(sorted(candidates, key=lambda entity: -count[entity.name])[:max_entities])
    return [entity for entity in candidates if entity in kept]


def _judge_nodes(splits: Mapping[str, Qrels], indptr: Tensor, indices: Tensor, num_passages: int) -> dict[str, Qrels]:
    """Transfer judgements of passages to all nodes that come from them."""
    node = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr[1:] - indptr[:-1])
    order = torch.argsort(indices, stable=True)
    start = torch.zeros(num_passages + 1, dtype=torch.int64)
    start[1:] = torch.bincount(indices, minlength=num_passages).cumsum(0)
    return {split: spread_judgements(qrels, start, node[order]) for split, qrels in splits.items()}


def spread_judgements(qrels: Qrels, indptr: Tensor, nodes: Tensor) -> Qrels:
    """Transfer judgements of ``D`` documents to their parts, by query, then number.

    The parts of document ``i`` are ``nodes[indptr[i]:indptr[i + 1]]``; a part of several documents takes the largest
    gain.

    Example:
        >>> one = Qrels(torch.tensor([0]), torch.tensor([1]), torch.tensor([2.0]))
        >>> spread_judgements(one, torch.tensor([0, 1, 3]), torch.tensor([0, 1, 2])).node
        tensor([1, 2])
    """
    row, node = row_entries(indptr, nodes, qrels.node)
    width = int(nodes.max()) + 1 if nodes.numel() else 1
    key, inverse = torch.unique(qrels.query[row] * width + node, return_inverse=True)
    gain = torch.zeros(len(key)).scatter_reduce_(0, inverse, qrels.gain[row], "amax")
    query = torch.div(key, width, rounding_mode="floor")
    return Qrels(query, key - query * width, gain)
