"""ReTAG's language steps without a language model."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphrerank.indexes.retag.entity_graph import EntityGraph
from graphrerank.indexes.retag.index import ReTAGSettings
from graphrerank.indexes.retag.language import Corpus, FoundTopics, centred, join_texts
from graphrerank.indexes.retag.summary_material import Material
from graphrerank.indexes.retag.topic_mining import cluster_entities, telling_words
from graphrerank.indexes.retag.topics import Topics
from graphrerank.knowledge import Knowledge
from graphrerank.text import Tokenizer, count_tokens
from graphrerank.text.sentence_selection import pick_sentences

NAME_WORDS = 3  # of a topic's name


class ExtractiveLanguage:
    """Without a language model: clusters, likeness of vectors, and sentences of the corpus.

    Args:
        tokenizer: What a token is.
        settings: Of the index.
    """

    fingerprint = "extractive"
    picked = True
    skipped = 0

    def __init__(self, tokenizer: Tokenizer, settings: ReTAGSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Let the first sentences tell of what they name, as far as ``description_tokens`` go."""
        limit = self._settings.description_tokens
        num_tokens = count_tokens(self._tokenizer, graph.sentences)

        def first(sentences: Sequence[int]) -> list[int]:
            taken: list[int] = []
            room = limit
            for sentence in sentences:
                if taken and num_tokens[sentence] > room:
                    break
                taken.append(sentence)
                room -= num_tokens[sentence]
            return taken

        return Material(
            texts=list(graph.sentences),
            num_tokens=num_tokens,
            sources=[[passage] for passage in graph.passage.tolist()],
            nodes=[first(sentences) for sentences in graph.naming],
            edges=[first(sentences) for sentences in graph.together.tolist()],
        )

    def find_topics(self, corpus: Corpus, centre: Tensor) -> FoundTopics:
        """Cluster the entities, and name each cluster by the words of its entities' names.

        A name counts as often as the corpus says it.
        """
        settings, graph = self._settings, corpus.graph
        vectors, label = cluster_entities(
            centred(corpus.entity_vectors, centre), num_topics=settings.num_topics, seed=settings.seed
        )
        groups: list[list[str]] = [[] for _ in vectors]
        for entities in graph.named.tolist():
            for entity in entities:
                if label[entity] >= 0:
                    groups[int(label[entity])].append(graph.names[entity])
        terms = telling_words(groups, num_words=settings.num_terms)
        return FoundTopics([", ".join(words[:NAME_WORDS]) for words in terms], terms, vectors)

    def relevant_entities(
        self,
        corpus: Corpus,
        topics: Topics,
        *,
        first_passage: int,
        first_entity: int,
    ) -> Tensor:
        """Take the entities that a sentence near the topic names."""
        return corpus.graph.entity_scores(_likeness(corpus, topics, first_passage)) >= topics.entity_threshold

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor, *, first_passage: int) -> Tensor:
        """Take the relations whose ends a sentence near the topic names together; or its entities, where none does."""
        graph = corpus.graph
        near = graph.relation_scores(_likeness(corpus, topics, first_passage)) >= topics.entity_threshold
        alone = graph.together.indptr.diff() == 0
        return near | (alone[:, None] & entities[graph.edges].all(dim=1))

    def summarizer(self, corpus: Corpus) -> "SentencePicker":
        """Pick sentences."""
        return SentencePicker(self._tokenizer, corpus.sentence_vectors, self._settings)

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Take the direction of the mean over a summary's sentences."""
        means = [corpus.sentence_vectors[list(numbers)].mean(dim=0) for numbers in summaries if numbers]
        found = torch.zeros(len(summaries), corpus.sentence_vectors.shape[1])
        if means:
            told = torch.tensor([bool(numbers) for numbers in summaries])
            found[told] = torch.nn.functional.normalize(torch.stack(means), dim=1)
        return found


class SentencePicker:
    """Sums up with sentences of the corpus.

    Args:
        tokenizer: What a token is.
        vectors: ``[S, d]`` of the sentences, which are the material's texts.
        settings: Of the index.
    """

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor, settings: ReTAGSettings) -> None:
        self._tokenizer = tokenizer
        self._vectors = vectors
        self._settings = settings

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material) -> list[list[int]]:
        """Pick of each list the sentences that stand for it, in the order of the corpus."""
        limit, centrality = self._settings.summary_tokens, self._settings.centrality
        found = []
        for numbers in contexts:
            lengths = [material.num_tokens[number] for number in numbers]
            picked = pick_sentences(self._vectors[list(numbers)], lengths, limit=limit, centrality=centrality)
            found.append([numbers[place] for place in picked])
        waiting = list(range(len(found)))
        while waiting:  # a tokenizer may count sentences in a row as more than each by itself
            texts = [join_texts(material, sorted(found[place])) for place in waiting]
            lengths = count_tokens(self._tokenizer, texts)
            waiting = [place for place, length in zip(waiting, lengths, strict=True) if length > limit]
            for place in waiting:
                found[place].pop()
        return [sorted(numbers) for numbers in found]


def _likeness(corpus: Corpus, topics: Topics, first_passage: int) -> Tensor:
    """``[S, T]``, of each sentence; of those before ``first_passage`` none."""
    likeness = topics.similarity(corpus.sentence_vectors)
    return likeness.masked_fill((corpus.graph.passage < first_passage)[:, None], -torch.inf)
