"""ReTAG's language steps without a language model."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.text import Tokenizer, count_tokens
from graphrerank_papers.indexing.sentence_selection import pick_sentences
from graphrerank_papers.retag.entity_graph import EntityGraph
from graphrerank_papers.retag.index import ReTAGSettings
from graphrerank_papers.retag.language_steps import Corpus, centred, join_texts
from graphrerank_papers.retag.summary_material import Material
from graphrerank_papers.retag.topic_mining import cluster_entities, distinctive_words
from graphrerank_papers.retag.topics import Topics

NAME_WORDS = 3  # in the name of a topic


class ExtractiveSteps:
    """Language steps by clustering, vector similarity, and selection of sentences."""

    fingerprint = "extractive"
    is_extractive = True
    num_skipped = 0

    def __init__(self, tokenizer: Tokenizer, settings: ReTAGSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Describe entities and relations by the first sentences that name them, up to ``description_tokens``."""
        num_tokens = count_tokens(self._tokenizer, graph.sentences)

        def first(sentences: Sequence[int]) -> list[int]:
            selected: list[int] = []
            remaining = self._settings.description_tokens
            for sentence in sentences:
                if selected and num_tokens[sentence] > remaining:
                    break
                selected.append(sentence)
                remaining -= num_tokens[sentence]
            return selected

        return Material(
            texts=list(graph.sentences),
            num_tokens=num_tokens,
            sources=[[passage] for passage in graph.passage.tolist()],
            nodes=[first(sentences) for sentences in graph.naming],
            edges=[first(sentences) for sentences in graph.together.tolist()],
        )

    def find_topics(self, corpus: Corpus, centre: Tensor) -> Topics:
        """Cluster the entities, and name each cluster by words of its entities' names, weighted by mentions."""
        settings, graph = self._settings, corpus.graph
        vectors, label = cluster_entities(
            centred(corpus.entity_vectors, centre), num_topics=settings.num_topics, seed=settings.seed
        )
        groups: list[list[str]] = [[] for _ in vectors]
        for entities in graph.named.tolist():
            for entity in entities:
                if label[entity] >= 0:
                    groups[int(label[entity])].append(graph.names[entity])
        terms = distinctive_words(groups, num_words=settings.num_terms)
        return Topics([", ".join(words[:NAME_WORDS]) for words in terms], terms, vectors, centre)

    def relevant_entities(self, corpus: Corpus, topics: Topics, *, first_passage: int, first_entity: int) -> Tensor:
        """Select the entities named by a sentence near the topic."""
        return corpus.graph.entity_scores(_similarity(corpus, topics, first_passage)) >= topics.entity_threshold

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor, *, first_passage: int) -> Tensor:
        """Select relations with both ends named by a sentence near the topic.

        If no sentence of the corpus names both ends, the topic's entities must include them.
        """
        graph = corpus.graph
        is_near = graph.relation_scores(_similarity(corpus, topics, first_passage)) >= topics.entity_threshold
        has_no_sentence = graph.together.indptr.diff() == 0
        return is_near | (has_no_sentence[:, None] & entities[graph.edges].all(dim=1))

    def summarizer(self, corpus: Corpus) -> "SentenceSelector":
        """Return a selector of sentences."""
        return SentenceSelector(self._tokenizer, corpus.sentence_vectors, self._settings)

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Return the normalised mean vector of each summary's sentences."""
        vectors = torch.zeros(len(summaries), corpus.sentence_vectors.shape[1])
        for row, sentences in enumerate(summaries):
            if sentences:
                vectors[row] = corpus.sentence_vectors[list(sentences)].mean(dim=0)
        return torch.nn.functional.normalize(vectors, dim=1)


class SentenceSelector:
    """Summarises by selecting sentences of the corpus, which have ``vectors`` ``[S, d]``."""

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor, settings: ReTAGSettings) -> None:
        self._tokenizer = tokenizer
        self._vectors = vectors
        self._settings = settings

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material) -> list[list[int]]:
        """Select representative sentences of each list, in corpus order."""
        limit, centrality = self._settings.summary_tokens, self._settings.centrality
        summaries = []
        for sentences in contexts:
            lengths = [material.num_tokens[sentence] for sentence in sentences]
            selected = pick_sentences(self._vectors[list(sentences)], lengths, limit=limit, centrality=centrality)
            summaries.append([sentences[position] for position in selected])
        too_long = list(range(len(summaries)))
        while too_long:  # joined sentences may have more tokens than the sum of their lengths
            texts = [join_texts(material, sorted(summaries[row])) for row in too_long]
            lengths = count_tokens(self._tokenizer, texts)
            too_long = [row for row, length in zip(too_long, lengths, strict=True) if length > limit]
            for row in too_long:
                summaries[row].pop()
        return [sorted(sentences) for sentences in summaries]


def _similarity(corpus: Corpus, topics: Topics, first_passage: int) -> Tensor:
    """Return ``[S, T]`` cosines of sentences and topics, -inf for sentences before ``first_passage``."""
    similarity = topics.similarity(corpus.sentence_vectors)
    return similarity.masked_fill((corpus.graph.passage < first_passage)[:, None], -torch.inf)
