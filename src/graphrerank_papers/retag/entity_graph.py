"""Entities of a corpus, the sentences that name them, and the relations between them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.text import normalize_entity, split_sentences
from graphrerank_papers.knowledge.corpus_knowledge import merge_knowledge
from graphrerank_papers.retag.index import Rows

MAX_NAME_WORDS = 8  # of names searched for in a summary


@dataclass(frozen=True)
class EntityGraph:
    """Entities, sentences and relations."""

    names: Sequence[str]  # `E` entities, as first written
    normalized: Sequence[str]  # `E` names, normalised by `normalize_entity`
    sentences: Sequence[str]  # `S` sentences that name an entity, verbatim, in corpus order
    passage: Tensor  # `[S]` int64, the passage of each
    named: Rows  # entities that each sentence names, ascending
    edges: Tensor  # `[m, 2]` int64 related entities, unique pairs, the smaller index first, ascending
    weight: Tensor  # `[m]` float32, number of statements that join the two plus number of sentences that name both
    together: Rows  # sentences that name both ends of each edge, ascending

    @property
    def naming(self) -> list[list[int]]:
        """The sentences that name each entity, ascending."""
        rows: list[list[int]] = [[] for _ in self.names]
        for sentence, entities in enumerate(self.named.tolist()):
            for entity in entities:
                rows[entity].append(sentence)
        return rows

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
    as in Microsoft's FastGraphRAG: an extractor without a language model finds few statements in speech.

    A sentence names the entities of its passage whose normalised names occur in it. An extractor may change a name: one
    that occurs in no sentence of its passage belongs to the sentences that share the most words with it, if any.

    Example:
        >>> from graphrerank.knowledge.passage_knowledge import Entity
        >>> both = Knowledge((Entity("Metz", "", ""), Entity("Nancy", "", "")))
        >>> graph = build_entity_graph([both], ["Metz fell. So it was. Metz and Nancy are near."])
        >>> graph.sentences, graph.named.tolist(), graph.edges.tolist(), graph.together.tolist()
        (['Metz fell.', 'Metz and Nancy are near.'], [[0], [0, 1]], [[0, 1]], [[1]])
    """
    facts = merge_knowledge(knowledge, passages=range(len(passages)))
    passage_entities: list[list[int]] = [[] for _ in passages]
    for entity, index in facts.entity_links.tolist():
        passage_entities[index].append(entity)
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
        normalized=facts.names,
        sentences=sentences,
        passage=torch.tensor(passage, dtype=torch.int64),
        named=Rows.of(named),
        edges=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2),
        weight=torch.tensor([weight[pair] for pair in edges], dtype=torch.float32),
        together=Rows.of(together.get(pair, []) for pair in edges),
    )


def names_in(text: str, entities: Mapping[str, int]) -> set[int]:
    """Find the entities, indices by normalised name, that a text names."""
    words = normalize_entity(text).split()
    runs = (
        " ".join(words[start : start + length])
        for start in range(len(words))
        for length in range(1, min(MAX_NAME_WORDS, len(words) - start) + 1)
    )
    return {entities[run] for run in runs if run in entities}


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
