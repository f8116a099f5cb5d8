"""Entities of a corpus, the sentences that name them, and who is related to whom."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.indexes.facts.facts import Facts, merge_knowledge
from graphrerank.indexes.retag.communities import Rows
from graphrerank.knowledge import Knowledge
from graphrerank.text import normalize_entity, split_sentences

MAX_NAME_WORDS = 8  # of names that are looked for in a summary


@dataclass(frozen=True)
class EntityGraph:
    """Entities, sentences and relations.

    Attributes:
        names: ``E`` entities, as they were written first.
        normalized: ``E`` names as :func:`~graphrerank.text.normalize_entity` makes them.
        sentences: ``S`` sentences of the corpus that name an entity, in its order, each as its passage has it.
        passage: ``[S]`` int64, the passage of each.
        named: Entities that each sentence names, ascending.
        edges: ``[m, 2]`` int64 entities that are related, each pair once, the smaller number first, ascending.
        weight: ``[m]`` float32, statements that join the two and sentences that name both.
        together: Sentences that name both ends of each edge, ascending.
    """

    names: Sequence[str]
    normalized: Sequence[str]
    sentences: Sequence[str]
    passage: Tensor
    named: Rows
    edges: Tensor
    weight: Tensor
    together: Rows

    @property
    def naming(self) -> list[list[int]]:
        """The sentences that name each entity, ascending."""
        rows: list[list[int]] = [[] for _ in self.names]
        for sentence, entities in enumerate(self.named.tolist()):
            for entity in entities:
                rows[entity].append(sentence)
        return rows

    def entity_vectors(self, sentence_vectors: Tensor) -> Tensor:
        """Take the direction of the mean over the sentences that name an entity; zeros where none does.

        Args:
            sentence_vectors: ``[S, d]`` unit vectors.

        Returns:
            ``[E, d]`` float32.
        """
        indptr, indices = self.named.indptr.numpy(), self.named.indices.numpy()
        held = sparse.csr_matrix(
            (np.ones(len(indices), np.float32), indices, indptr), shape=(len(self.sentences), len(self.names))
        )
        return torch.nn.functional.normalize(torch.from_numpy(held.T @ sentence_vectors.numpy()), dim=1)

    def entity_scores(self, scores: Tensor) -> Tensor:
        """Take for each entity the largest of each score over the sentences that name it; -inf where none does.

        Args:
            scores: ``[S, n]``.

        Returns:
            ``[E, n]``.
        """
        sentence = torch.repeat_interleave(torch.arange(len(self.sentences)), self.named.indptr.diff())
        return _largest(scores[sentence], self.named.indices, len(self.names))

    def relation_scores(self, scores: Tensor) -> Tensor:
        """Take for each edge the largest of each score over the sentences that name both ends; as above, ``[m, n]``."""
        edge = torch.repeat_interleave(torch.arange(len(self.edges)), self.together.indptr.diff())
        return _largest(scores[self.together.indices], edge, len(self.edges))


def _largest(scores: Tensor, owner: Tensor, num_owners: int) -> Tensor:
    found = scores.new_full((num_owners, scores.shape[1]), -torch.inf)
    return found.scatter_reduce_(0, owner[:, None].expand(-1, scores.shape[1]), scores, "amax")


def build_entity_graph(knowledge: Sequence[Knowledge], passages: Sequence[str]) -> EntityGraph:
    """Put together what passages say.

    Two entities are related if a passage states a relation between them, or a sentence names both. The second is ours,
    as in Microsoft's FastGraphRAG: an extractor without a language model finds few statements in speech.

    A sentence names the entities of its passage whose normalised names stand in it. One that stands in no sentence of
    its passage, as an extractor may change a name, is named by those that share most words with it, if any does.

    Args:
        knowledge: Of each of ``P`` passages.
        passages: ``P`` texts.

    Raises:
        ValueError: If there is not one knowledge per passage.

    Example:
        >>> from graphrerank.text import Entity
        >>> both = Knowledge((Entity("Metz", "", ""), Entity("Nancy", "", "")))
        >>> graph = build_entity_graph([both], ["Metz fell. So it was. Metz and Nancy are near."])
        >>> graph.sentences, graph.named.tolist(), graph.edges.tolist(), graph.together.tolist()
        (['Metz fell.', 'Metz and Nancy are near.'], [[0], [0, 1]], [[0, 1]], [[1]])
    """
    if len(knowledge) != len(passages):
        raise ValueError(f"`knowledge` must have one entry per passage ({len(passages)}), got {len(knowledge)}")
    facts = merge_knowledge(knowledge)
    held: list[list[int]] = [[] for _ in passages]
    for place, entity in facts.occurrences.tolist():
        held[place].append(entity)
    sentences, passage, named = [], [], []
    for place, text in enumerate(passages):
        spans = split_sentences(text)
        for (start, stop), entities in zip(
            spans, _named([text[a:b] for a, b in spans], held[place], facts.names), strict=True
        ):
            if entities:
                sentences.append(text[start:stop])
                passage.append(place)
                named.append(entities)
    edges, weight, together = _edges(facts, named)
    return EntityGraph(
        names=facts.spellings,
        normalized=facts.names,
        sentences=sentences,
        passage=torch.tensor(passage, dtype=torch.int64),
        named=Rows.of(named),
        edges=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2),
        weight=torch.tensor(weight, dtype=torch.float32),
        together=Rows.of(together),
    )


def names_in(text: str, entities: Mapping[str, int]) -> set[int]:
    """Find the entities that a text names.

    Args:
        text: The text.
        entities: Numbers by normalised name.

    Example:
        >>> names_in("The King of Metz's sons.", {"king of metz": 0, "metz": 1, "son": 2})
        {0, 1}
    """
    words = normalize_entity(text).split()
    runs = (
        " ".join(words[start : start + length])
        for start in range(len(words))
        for length in range(1, min(MAX_NAME_WORDS, len(words) - start) + 1)
    )
    return {entities[run] for run in runs if run in entities}


def _named(sentences: Sequence[str], entities: Sequence[int], names: Sequence[str]) -> list[list[int]]:
    """Tell which entities each sentence of a passage names."""
    padded = [f" {normalize_entity(sentence)} " for sentence in sentences]
    found: list[list[int]] = [[] for _ in sentences]
    for entity in entities:
        holders = [place for place, sentence in enumerate(padded) if f" {names[entity]} " in sentence]
        for place in holders or _most_alike(names[entity], padded):
            found[place].append(entity)
    return found


def _most_alike(name: str, padded: Sequence[str]) -> list[int]:
    words = set(name.split())
    shared = [len(words.intersection(sentence.split())) for sentence in padded]
    most = max(shared, default=0)
    return [place for place, count in enumerate(shared) if count == most] if most else []


def _edges(facts: Facts, named: Sequence[Sequence[int]]) -> tuple[list[tuple[int, int]], list[int], list[list[int]]]:
    weight: Counter[tuple[int, int]] = Counter()
    together: dict[tuple[int, int], list[int]] = {}
    for sentence, entities in enumerate(named):
        for pair in combinations(entities, 2):  # ascending, as occurrences are
            weight[pair] += 1
            together.setdefault(pair, []).append(sentence)
    for (head, tail), count in zip(facts.related.tolist(), facts.num_statements.tolist(), strict=True):
        weight[head, tail] += count
    edges = sorted(weight)
    return edges, [weight[pair] for pair in edges], [together.get(pair, []) for pair in edges]
