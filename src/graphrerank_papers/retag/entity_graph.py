"""Entities of a corpus, the sentences that name them, their relations, and communities of related entities."""

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
    """Entities, sentences and relations."""

    names: Sequence[str]  # `E` entities, as first written
    sentences: Sequence[str]  # `S` sentences that name an entity, verbatim, in corpus order
    passage: Tensor  # `[S]` int64, the passage of each
    named: Rows  # entities that each sentence names, ascending
    edges: Tensor  # `[m, 2]` int64 related entities, unique pairs, the smaller index first, ascending
    weight: Tensor  # `[m]` float32, number of statements that join the two plus number of sentences that name both
    together: Rows  # sentences that name both ends of each edge, ascending

    def positions(self, edges: Tensor) -> Tensor:
        """Return the positions of some edges ``[n, 2]`` among all: ``[n]``."""
        size = len(self.names)
        return torch.searchsorted(self.edges[:, 0] * size + self.edges[:, 1], edges[:, 0] * size + edges[:, 1])

    @property
    def naming(self) -> list[list[int]]:
        """The sentences that name each entity, ascending."""
        pairs = ((entity, sentence) for sentence, named in enumerate(self.named.tolist()) for entity in named)
        return grouped(pairs, len(self.names))

    def entity_vectors(self, sentence_vectors: Tensor) -> Tensor:
        """Average the vectors ``[S, d]`` of the sentences that name each entity: ``[E, d]`` unit vectors, or zeros."""
        indptr, indices = self.named.indptr.numpy(), self.named.indices.numpy()
        incidence = sparse.csr_matrix(
            (np.ones(len(indices), np.float32), indices, indptr), shape=(len(self.sentences), len(self.names))
        )
        return torch.nn.functional.normalize(torch.from_numpy(incidence.T @ sentence_vectors.numpy()), dim=1)

    def entity_scores(self, scores: Tensor) -> Tensor:
        """Return each entity's maximum scores ``[E, n]`` of the sentences ``[S, n]`` that name it; -inf for none."""
        sentence = torch.repeat_interleave(torch.arange(len(self.sentences)), self.named.indptr.diff())
        return _largest(scores[sentence], self.named.indices, len(self.names))

    def relation_scores(self, scores: Tensor) -> Tensor:
        """Return each edge's maximum scores ``[m, n]`` over the sentences that name both ends; -inf if none does."""
        edge = torch.repeat_interleave(torch.arange(len(self.edges)), self.together.indptr.diff())
        return _largest(scores[self.together.indices], edge, len(self.edges))


def _largest(scores: Tensor, owner: Tensor, num_owners: int) -> Tensor:
    largest = scores.new_full((num_owners, scores.shape[1]), -torch.inf)
    return largest.scatter_reduce_(0, owner[:, None].expand(-1, scores.shape[1]), scores, "amax")


def build_entity_graph(knowledge: Sequence[Knowledge], passages: Sequence[str]) -> EntityGraph:
    """Merge the entities and relations of all passages.

    Two entities are related if a passage states a relation between them, or a sentence names both. The latter is ours,
    as in Microsoft's FastGraphRAG: an extractor without a language model finds few statements in speech. A sentence
    names the entities of its passage whose normalised names occur in it; an entity whose name occurs in none belongs to
    the sentences that share the most words with it, if any.
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
        for pair in combinations(entities, 2):  # ascending, as occurrences are
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
    """Return the entities that each sentence of a passage names."""
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
    """Nested communities, ordered by level, then by their smallest member."""

    level: Sequence[int]  # level of each; 0 is the coarsest
    parent: Sequence[int]  # the community of the level above that contains it; -1 at level 0
    members: Sequence[Sequence[int]]  # nodes of each, ascending

    def __len__(self) -> int:
        return len(self.members)


def hierarchical_leiden(edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> Hierarchy:
    """Find communities, and split those of ``max_community`` nodes or more recursively, if Leiden can.

    Source: "From Louvain to Leiden", 2019, as used by GraphRAG ("From Local to Global", 2024, section 3.1.3), in the
    implementation of Microsoft's ``graspologic-native``. ``edges`` are ``[m, 2]`` int64, undirected, unique pairs, with
    a positive ``weight`` ``[m]``.
    """
    native = optional("graspologic_native", "the search for communities")
    nodes, ends = torch.unique(edges, return_inverse=True)
    head, tail = ends.reshape(-1, 2).T.numpy()
    adjacency = sparse.coo_matrix((np.ones(len(head)), (head, tail)), shape=(len(nodes), len(nodes)))
    _, label = connected_components(adjacency, directed=False)
    is_large = torch.from_numpy(np.bincount(label)[label[head]] >= settings.min_component)
    edges, weight = edges[is_large], weight[is_large]
    if not len(edges):
        return Hierarchy([], [], [])
    pairs = [(str(a), str(b), w) for (a, b), w in zip(edges.tolist(), weight.double().tolist(), strict=True)]
    members: dict[tuple[int, int], list[int]] = defaultdict(list)  # by level and cluster
    parent: dict[tuple[int, int], tuple[int, int]] = {}
    for entry in native.hierarchical_leiden(
        pairs, resolution=settings.resolution, max_cluster_size=settings.max_community, seed=settings.seed
    ):
        members[entry.level, entry.cluster].append(int(entry.node))
        parent[entry.level, entry.cluster] = (entry.level - 1, entry.parent_cluster)
    order = sorted(members, key=lambda key: (key[0], min(members[key])))
    index = {key: number for number, key in enumerate(order)}
    parents = [index[parent[key]] if key[0] else -1 for key in order]
    return Hierarchy([level for level, _ in order], parents, [sorted(members[key]) for key in order])
