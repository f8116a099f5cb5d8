"""Build text-rich knowledge graphs: the entities of a corpus as nodes with texts, joined by their relations."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from graphrerank._moved import moved_names
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, KnowledgeExtractor
from graphrerank.text import normalize_entity
from graphrerank.utils.checks import check_counts
from graphrerank_papers.knowledge.corpus_knowledge import grouped

__getattr__ = moved_names(__name__)

#: Prefix of the id of a node that is a whole passage.
PASSAGE = "passage:"


class NodeMention(NamedTuple):
    """Mention of an entity in a passage, or a whole passage.

    Attributes:
        name: Name as written, or empty for a passage.
        description: Description of the entity, or the text of the passage.
        passage: Index of the passage.
    """

    name: str
    description: str
    passage: int


def load_text_rich_graph(
    source: Dataset,
    *,
    extractor: KnowledgeExtractor,
    name: str | None = None,
    max_entities: int | None = None,
    max_characters: int = 4096,
    cache: str | Path | None = None,
) -> Dataset:
    """Merge the entities and relations of all passages of a data set into one graph.

    - Entities whose names are equal after :func:`~graphrerank.text.normalize_entity` are one node. Its id is the
      normalised name, which does not change when passages are added. Its text is the most frequent spelling and the
      descriptions.
    - Two nodes are joined if a relation joins them in either direction. The weight is the number of such relations.
    - The entities of a passage that occur in one of its relations become nodes. If it has no relations, all of them do.
    - All nodes of a relevant passage are relevant, with the largest gain of their passages. A passage without entities
      becomes a node itself, so that no query loses relevant nodes.

    Source: "FastInsight", 2026, section 4.2.2, after "LightRAG: Simple and Fast Retrieval-Augmented Generation", 2024.

    *Differences from the paper:* we concatenate descriptions. LightRAG summarises long ones with a language model.

    Args:
        source: Data set with the passages. Its edges are ignored.
        extractor: Extractor of entities and relations.
        name: Name of the new data set. If None, that of ``source`` followed by "-G".
        max_entities: Maximum number of entities per passage. The entities in the most relations are used. If None, all
            are used.
        max_characters: Maximum number of characters of the descriptions of a node. The first description is never
            truncated.
        cache: Folder in which extracted knowledge is stored for later runs. If None, it is not stored.

    Returns:
        Data set whose nodes are entities.

    Raises:
        UserError: If ``max_entities`` or ``max_characters`` is not a positive integer.
    """
    check_counts(max_entities=max_entities, max_characters=max_characters)
    if cache is not None:
        extractor = KnowledgeCache(extractor, Path(cache) / "knowledge")
    knowledge = extractor.extract(source.graph.all_texts)
    mentions: dict[str, list[NodeMention]] = {}  # keyed by node id, in the order of the nodes
    number: dict[str, int] = {}
    weight: Counter[tuple[int, int]] = Counter()
    for passage, known in enumerate(knowledge):
        node_of: dict[str, int] = {}
        for entity in _kept(known, max_entities):
            if comparable := normalize_entity(entity.name):
                mentions.setdefault(comparable, []).append(NodeMention(entity.name, entity.description, passage))
                node_of[entity.name] = number.setdefault(comparable, len(number))
        if not node_of:
            node_id = f"{PASSAGE}{source.graph.node_ids[passage]}"
            number[node_id] = len(number)
            mentions[node_id] = [NodeMention("", source.graph.texts[passage], passage)]
        for relation in known.relations:
            low, high = sorted(node_of.get(end, -1) for end in (relation.head, relation.tail))
            if 0 <= low < high:
                weight[low, high] += 1
    pairs = sorted(weight)
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    weights = torch.tensor([weight[pair] for pair in pairs], dtype=torch.float32)
    texts = [_text(node_mentions, max_characters) for node_mentions in mentions.values()]
    graph = CorpusGraph.from_edges(list(mentions), texts, edges, weights, edge_type=REFERENCE)
    nodes_by_passage = (
        (mention.passage, node) for node, node_mentions in enumerate(mentions.values()) for mention in node_mentions
    )
    nodes_of = grouped(dict.fromkeys(nodes_by_passage), len(knowledge))
    return Dataset(
        name or f"{source.name}-G",
        graph,
        source.query_ids,
        source.query_texts,
        {split: _of_nodes(qrels, nodes_of) for split, qrels in source.splits.items()},
        edge_counts={"relations": len(edges)},
    )


def _text(mentions: Sequence[NodeMention], max_characters: int) -> str:
    """Join the most frequent name and the descriptions. The first of equally frequent names is used."""
    ((name, _),) = Counter(mention.name for mention in mentions).most_common(1)
    text = ""
    for description in dict.fromkeys(mention.description for mention in mentions if mention.description):
        if text and len(text) + 1 + len(description) > max_characters:
            break
        text = f"{text} {description}" if text else description
    return ". ".join(filter(None, (name, text)))


def _kept(knowledge: Knowledge, max_entities: int | None) -> list[Entity]:
    """Return the entities of a passage that become nodes, in the passage's order."""
    count = Counter(end for relation in knowledge.relations for end in (relation.head, relation.tail))
    candidates = [entity for entity in knowledge.entities if count[entity.name] or not count]
    kept = set(sorted(candidates, key=lambda entity: -count[entity.name])[:max_entities])
    return [entity for entity in candidates if entity in kept]


def _of_nodes(qrels: Qrels, nodes_of: Sequence[Sequence[int]]) -> Qrels:
    """Convert judgements of passages to judgements of nodes. A node has the largest gain of its passages."""
    gains: dict[tuple[int, int], float] = {}
    for query, passage, gain in zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True):
        for node in nodes_of[passage]:
            gains[query, node] = max(gain, gains.get((query, node), 0.0))
    queries, nodes = torch.tensor(sorted(gains), dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Qrels(queries, nodes, torch.tensor([gains[key] for key in sorted(gains)]))
