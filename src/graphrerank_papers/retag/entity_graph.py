"""Graph of related entities with the sentences that mention them, and its hierarchical communities."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graphrerank.installation.extras import optional
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.text import normalize_entity, split_sentences
from graphrerank_papers.knowledge.corpus_knowledge import grouped, merge_knowledge
from graphrerank_papers.retag.index import ReTAGSettings, Rows


@dataclass(frozen=True)
class EntityGraph:
    """Entities of a corpus, the sentences that mention them, and their relations.

    Attributes:
        names: Names of the ``E`` entities, as first spelled in the corpus.
        sentences: ``S`` sentences that mention an entity, verbatim, in corpus order.
        passage: Passage of each sentence ``[S]`` int64.
        named: Entities that each sentence mentions, ascending.
        edges: Pairs of related entities ``[m, 2]`` int64, unique, smaller index first, ascending.
        weight: Weight of each pair ``[m]`` float32: the number of statements that relate the entities, plus the number
            of sentences that mention both.
        together: Sentences that mention both entities of each pair, ascending.
    """

    names: Sequence[str]
    sentences: Sequence[str]
    passage: Tensor
    named: Rows
    edges: Tensor
    weight: Tensor
    together: Rows

    def positions(self, edges: Tensor) -> Tensor:
        """Return the indices ``[n]`` of edges in :attr:`edges`.

        Args:
            edges: Edges of this graph ``[n, 2]``.
        """
        size = len(self.names)
        return torch.searchsorted(self.edges[:, 0] * size + self.edges[:, 1], edges[:, 0] * size + edges[:, 1])

    @property
    def naming(self) -> list[list[int]]:
        """Sentences that mention each entity, ascending."""
        pairs = ((entity, sentence) for sentence, named in enumerate(self.named.tolist()) for entity in named)
        return grouped(pairs, len(self.names))

    def entity_vectors(self, sentence_vectors: Tensor) -> Tensor:
        """Average the vectors of the sentences that mention each entity.

        Args:
            sentence_vectors: Vectors of the sentences ``[S, d]``.

        Returns:
            Unit vectors ``[E, d]``. Entities that no sentence mentions have zero vectors.
        """
        indptr, indices = self.named.indptr.numpy(), self.named.indices.numpy()
        incidence = sparse.csr_matrix(
            (np.ones(len(indices), np.float32), indices, indptr), shape=(len(self.sentences), len(self.names))
        )
        return torch.nn.functional.normalize(torch.from_numpy(incidence.T @ sentence_vectors.numpy()), dim=1)

    def entity_scores(self, scores: Tensor) -> Tensor:
        """Return the maximum scores ``[E, n]`` of the sentences that mention each entity, or -inf if there are none.

        Args:
            scores: Scores of the sentences ``[S, n]``.
        """
        sentence = torch.repeat_interleave(torch.arange(len(self.sentences)), self.named.indptr.diff())
        return _largest(scores[sentence], self.named.indices, len(self.names))

    def relation_scores(self, scores: Tensor) -> Tensor:
        """Return the maximum scores ``[m, n]`` of the sentences that mention both ends of each edge, or -inf.

        Args:
            scores: Scores of the sentences ``[S, n]``.
        """
        edge = torch.repeat_interleave(torch.arange(len(self.edges)), self.together.indptr.diff())
        return _largest(scores[self.together.indices], edge, len(self.edges))


def _largest(scores: Tensor, owner: Tensor, num_owners: int) -> Tensor:
    largest = scores.new_full((num_owners, scores.shape[1]), -torch.inf)
    return largest.scatter_reduce_(0, owner[:, None].expand(-1, scores.shape[1]), scores, "amax")


def build_entity_graph(knowledge: Sequence[Knowledge], passages: Sequence[str]) -> EntityGraph:
    """Build a graph of the entities of all passages.

    Two entities are related if a passage states a relation between them, or if a sentence mentions both. The second
    rule is not in the paper. Microsoft's FastGraphRAG has it too, because an extractor without a language model finds
    few statements in transcribed speech.

    A sentence mentions the entities of its passage whose normalised names occur in it. If the name of an entity occurs
    in no sentence of the passage, the sentences that share the most words with the name mention the entity.

    Args:
        knowledge: Entities and relations of each passage.
        passages: Texts of the passages.

    Returns:
        Entity graph.

    Raises:
        ValueError: If ``knowledge`` does not have one entry per passage.
    """
    facts = merge_knowledge(knowledge, passages=range(len(passages)))
    passage_entities = grouped(facts.entity_links.flip(1).tolist(), len(passages))
    sentences, passage, named = [], [], []
    for index, text in enumerate(passages):
        split = [text[start:stop] for start, stop in split_sentences(text)]
        for sentence, entities in zip(split, _named(split, passage_entities[index], facts.names), strict=True):
            if entities:
                sentences.append(sentence)
                passage.append(index)
                named.append(entities)
    weight: Counter[tuple[int, int]] = Counter()
    together: dict[tuple[int, int], list[int]] = {}
    for number, entities in enumerate(named):
        for pair in combinations(entities, 2):  # smaller index first, because `entities` is ascending
            weight[pair] += 1
            together.setdefault(pair, []).append(number)
    for (head, tail), count in zip(facts.related.tolist(), facts.num_statements.tolist(), strict=True):
        weight[head, tail] += count
    edges = sorted(weight)
    return EntityGraph(
        names=facts.spellings,
        sentences=sentences,
        passage=torch.tensor(passage, dtype=torch.int64),
        named=Rows.of(named),
        edges=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2),
        weight=torch.tensor([weight[pair] for pair in edges], dtype=torch.float32),
        together=Rows.of(together.get(pair, []) for pair in edges),
    )


def _named(sentences: Sequence[str], entities: Sequence[int], names: Sequence[str]) -> list[list[int]]:
    """Return the entities that each sentence of a passage mentions."""
    padded = [f" {normalize_entity(sentence)} " for sentence in sentences]
    named: list[list[int]] = [[] for _ in sentences]
    for entity in entities:
        matches = [index for index, sentence in enumerate(padded) if f" {names[entity]} " in sentence]
        if not matches:
            words = set(names[entity].split())
            shared = [len(words.intersection(sentence.split())) for sentence in padded]
            matches = [index for index, count in enumerate(shared) if count == max(shared) > 0]
        for index in matches:
            named[index].append(entity)
    return named


@dataclass(frozen=True)
class Hierarchy:
    """Nested communities, ordered by level and then by smallest member.

    Attributes:
        level: Level of each community. 0 is the coarsest.
        parent: Community on the next coarser level that contains each community. -1 at level 0.
        members: Nodes of each community, ascending.
    """

    level: Sequence[int]
    parent: Sequence[int]
    members: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.members)


def hierarchical_leiden(edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> Hierarchy:
    """Find communities with the Leiden algorithm, and split large communities recursively.

    Source: Traag et al., "From Louvain to Leiden", 2019, as used in GraphRAG ("From Local to Global", 2024), section
    3.1.3. The implementation is Microsoft's ``graspologic-native``.

    Args:
        edges: Undirected edges ``[m, 2]`` int64, unique pairs.
        weight: Positive weight of each edge ``[m]``.
        settings: Settings of the index. Communities with at least ``max_community`` nodes are split if possible.
            Connected components with fewer than ``min_component`` nodes are ignored.

    Returns:
        Communities of all levels. Empty if no component is large enough.

    Raises:
        ValueError: If ``graspologic-native`` is not installed.
    """
    native = optional("graspologic_native", "community detection")
    nodes, ends = torch.unique(edges, return_inverse=True)
    head, tail = ends.reshape(-1, 2).T.numpy()
    adjacency = sparse.coo_matrix((np.ones(len(head)), (head, tail)), shape=(len(nodes), len(nodes)))
    _, label = connected_components(adjacency, directed=False)
    is_large = torch.from_numpy(np.bincount(label)[label[head]] >= settings.min_component)
    edges, weight = edges[is_large], weight[is_large]
    if not len(edges):
        return Hierarchy([], [], [])
    pairs = [(str(a), str(b), w) for (a, b), w in zip(edges.tolist(), weight.double().tolist(), strict=True)]
    members: dict[tuple[int, int], list[int]] = defaultdict(list)  # nodes by level and cluster
    parent: dict[tuple[int, int], tuple[int, int]] = {}
    for entry in native.hierarchical_leiden(
        pairs, resolution=settings.resolution, max_cluster_size=settings.max_community, seed=settings.seed
    ):
        members[entry.level, entry.cluster].append(int(entry.node))
        parent[entry.level, entry.cluster] = (entry.level - 1, entry.parent_cluster)
    index = {key: number for number, key in enumerate(members)}
    parents = [index[parent[key]] if key[0] else -1 for key in members]
    return order_hierarchy([level for level, _ in members], parents, list(members.values()))


def order_hierarchy(level: Sequence[int], parent: Sequence[int], members: Sequence[Sequence[int]]) -> Hierarchy:
    """Order communities by level and then by smallest member.

    Args:
        level: Level of each community. 0 is the coarsest.
        parent: Index of the parent of each community. -1 at level 0.
        members: Nodes of each community.

    Returns:
        Communities in the new order, with ascending members.
    """
    order = sorted(range(len(members)), key=lambda community: (level[community], min(members[community])))
    position = {community: number for number, community in enumerate(order)}
    return Hierarchy(
        level=[level[community] for community in order],
        parent=[position[parent[community]] if parent[community] >= 0 else -1 for community in order],
        members=[sorted(members[community]) for community in order],
    )
