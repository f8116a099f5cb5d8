"""The language steps of ReTAG: extractive ones, and those by a language model."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.text import Tokenizer, count_tokens
from graphrerank_papers.knowledge.corpus_knowledge import merge_knowledge
from graphrerank_papers.retag.entity_graph import EntityGraph
from graphrerank_papers.retag.index import ReTAGSettings
from graphrerank_papers.retag.language_model import mine_topics, relate_to_topics
from graphrerank_papers.retag.summaries import Material, join_texts
from graphrerank_papers.retag.topics import Topics, cluster_entities, distinctive_words
from graphrerank_papers.summaries import pick_sentences, write_summaries

NAME_WORDS = 3  # in the name of a topic
MAX_BATCHES = 16  # of ``context_tokens`` each, read by the language model to find topics

Encode = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class Corpus:
    """A corpus before topics are found."""

    graph: EntityGraph  # entities, sentences and relations
    material: Material  # texts that summaries are made from
    sentence_vectors: Tensor  # `[S, d]`
    entity_vectors: Tensor  # `[E, d]`


class LanguageSteps(Protocol):
    """An implementation of the language steps."""

    is_extractive: bool  # whether summaries consist of sentences of the corpus, which are then the material's texts

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the results would."""

    @property
    def num_skipped(self) -> int:
        """Number of answers that remained unusable, over all calls."""

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Collect the texts that summaries are made from."""

    def find_topics(self, corpus: Corpus, centre: Tensor) -> Topics:
        """Find the topics of a corpus with the centre ``[d]``; thresholds are set later."""

    def relevant_entities(self, corpus: Corpus, topics: Topics) -> Tensor:
        """Return which entities belong to which topics, ``[E, T]`` bool."""

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor) -> Tensor:
        """Return which relations belong to which topics, ``[m, T]`` bool, given the latter's entities ``[E, T]``."""

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> list[list[int]]:
        """Summarise each of ``n`` lists of texts by some of them, or by a text that is added to the material."""

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Return ``[n, d]`` unit vectors of summaries, zeros for empty ones."""


def centred(vectors: Tensor, centre: Tensor) -> Tensor:
    """Subtract the centre and normalise; zero vectors stay zero."""
    is_nonzero = vectors.abs().sum(dim=1, keepdim=True) > 0
    return torch.nn.functional.normalize(vectors - centre, dim=1) * is_nonzero


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

    def relevant_entities(self, corpus: Corpus, topics: Topics) -> Tensor:
        """Select the entities named by a sentence near the topic."""
        return corpus.graph.entity_scores(topics.similarity(corpus.sentence_vectors)) >= topics.entity_threshold

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor) -> Tensor:
        """Select relations with both ends named by a sentence near the topic.

        If no sentence of the corpus names both ends, the topic's entities must include them.
        """
        graph = corpus.graph
        is_near = graph.relation_scores(topics.similarity(corpus.sentence_vectors)) >= topics.entity_threshold
        has_no_sentence = graph.together.indptr.diff() == 0
        return is_near | (has_no_sentence[:, None] & entities[graph.edges].all(dim=1))

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> list[list[int]]:
        """Select representative sentences of each list, in corpus order."""
        limit, centrality = self._settings.summary_tokens, self._settings.centrality
        summaries = []
        for sentences in contexts:
            lengths = [material.num_tokens[sentence] for sentence in sentences]
            selected = pick_sentences(
                corpus.sentence_vectors[list(sentences)], lengths, limit=limit, centrality=centrality
            )
            summaries.append([sentences[position] for position in selected])
        too_long = list(range(len(summaries)))
        while too_long:  # joined sentences may have more tokens than the sum of their lengths
            texts = [join_texts(material, sorted(summaries[row])) for row in too_long]
            lengths = count_tokens(self._tokenizer, texts)
            too_long = [row for row, length in zip(too_long, lengths, strict=True) if length > limit]
            for row in too_long:
                summaries[row].pop()
        return [sorted(sentences) for sentences in summaries]

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Return the normalised mean vector of each summary's sentences."""
        vectors = torch.zeros(len(summaries), corpus.sentence_vectors.shape[1])
        for row, sentences in enumerate(summaries):
            if sentences:
                vectors[row] = corpus.sentence_vectors[list(sentences)].mean(dim=0)
        return torch.nn.functional.normalize(vectors, dim=1)


@dataclass(frozen=True)
class ReTAGPrompts:
    """The prompts of a language model that builds and searches a ReTAG index."""

    _: KW_ONLY
    # topics of notes and of parts of a collection, and notes relevant to them; see `mine_topics`, `relate_to_topics`
    topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_topics"))
    merged_topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_merged_topics"))
    relevance: Prompt = field(default_factory=partial(shipped_prompt, "retag_relevance"))
    summary: Prompt = field(default_factory=partial(shipped_prompt, "summary"))  # see `write_summaries`
    # of the topic of a question, see `classify_questions`
    classification: Prompt = field(default_factory=partial(shipped_prompt, "retag_classification"))
    keywords: Prompt = field(default_factory=partial(shipped_prompt, "retag_keywords"))  # of a question

    @property
    def of_index(self) -> str:
        """Changes whenever those do that an index is built by."""
        return repr([prompt.fingerprint for prompt in (self.topics, self.merged_topics, self.relevance, self.summary)])


class GenerativeSteps:
    """Language steps by a language model; with an ``AnswerCache``, an interrupted build repeats no request.

    ``encode`` encodes ``n`` texts as ``[n, d]`` unit vectors; ``tries`` are the attempts to get a usable answer.
    """

    is_extractive = False

    def __init__(
        self,
        model: ChatModel,
        tokenizer: Tokenizer,
        encode: Encode,
        settings: ReTAGSettings,
        *,
        tries: int = 3,
        prompts: ReTAGPrompts | None = None,
    ) -> None:
        self._model, self._tokenizer, self._encode = model, tokenizer, encode
        self._settings, self._tries = settings, tries
        self._prompts = prompts or ReTAGPrompts()
        self.num_skipped = 0

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model and of its prompts."""
        return repr(("language model", self._model.fingerprint, self._prompts.of_index))

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Collect the extractor's descriptions of entities and relations."""
        passages = knowledge()
        limit = self._settings.description_tokens
        skeleton = merge_knowledge(passages, tokenizer=self._tokenizer, description_tokens=limit)
        edge_index = {pair: edge for edge, pair in enumerate(map(tuple, graph.edges.tolist()))}
        num_entities = len(graph.names)
        edges: list[list[int]] = [[] for _ in edge_index]
        for relation, (head, tail) in enumerate(skeleton.ends.tolist()):
            edges[edge_index[min(head, tail), max(head, tail)]].append(num_entities + relation)
        sources: list[list[int]] = [[] for _ in range(num_entities + len(skeleton.relation_texts))]
        for entity, passage in skeleton.entity_links.tolist():
            sources[entity].append(passage)
        for relation, passage in skeleton.relation_links.tolist():
            sources[num_entities + relation].append(passage)
        texts = [*skeleton.entity_texts, *skeleton.relation_texts]
        return Material(
            texts, count_tokens(self._tokenizer, texts), sources, [[entity] for entity in range(num_entities)], edges
        )

    def find_topics(self, corpus: Corpus, centre: Tensor) -> Topics:
        """Ask for the topics of the most prominent entities; a topic's words are those of its name."""
        settings, graph, material = self._settings, corpus.graph, corpus.material
        degree = torch.bincount(graph.edges.flatten(), minlength=len(graph.names))
        remaining = torch.argsort(-degree, stable=True).tolist() if settings.num_topics else []
        batches: list[list[str]] = []
        while len(batches) < MAX_BATCHES and (batch := material.first(remaining, settings.context_tokens)):
            batches.append([material.texts[entity] for entity in batch])
            used = set(batch)
            remaining = [entity for entity in remaining if entity not in used]
        prompts, limit = self._prompts, settings.num_topics
        names, num_skipped = mine_topics(
            self._model, batches, num_topics=limit, tries=self._tries, mine=prompts.topics, merge=prompts.merged_topics
        )
        self.num_skipped += num_skipped
        vectors = centred(self._encode(names), centre) if names else centre.new_zeros(0, len(centre))
        terms = distinctive_words([[name] for name in names], num_words=settings.num_terms)
        return Topics(names, terms, vectors, centre)

    def relevant_entities(self, corpus: Corpus, topics: Topics) -> Tensor:
        """Ask which topics each entity is clearly relevant to."""
        notes = corpus.material.texts[: len(corpus.graph.names)]
        rows, num_skipped = relate_to_topics(
            self._model, notes, topics.names, tries=self._tries, prompt=self._prompts.relevance
        )
        self.num_skipped += num_skipped
        is_relevant = torch.zeros(len(corpus.graph.names), len(topics), dtype=torch.bool)
        for entity, entity_topics in enumerate(rows):
            is_relevant[entity, entity_topics] = True
        return is_relevant

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor) -> Tensor:
        """Select the relations between a topic's entities."""
        return entities[corpus.graph.edges].all(dim=1)

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> list[list[int]]:
        """Let the model summarise each list; empty if the list is, or without a usable answer."""
        notes = [[material.texts[text] for text in texts] for texts in contexts if texts]
        limit = self._settings.summary_tokens
        written = write_summaries(
            self._model, notes, self._tokenizer, limit=limit, tries=self._tries, prompt=self._prompts.summary
        )
        answers = iter(written)
        summaries: list[list[int]] = []
        for texts in contexts:
            answer = next(answers) if texts else None
            self.num_skipped += bool(texts) and answer is None
            if answer is None:
                summaries.append([])
            else:
                (length,) = count_tokens(self._tokenizer, [answer])
                passages = {passage for text in texts for passage in material.sources[text]}
                summaries.append([material.add(answer, length, passages)])
        return summaries

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Encode the summaries."""
        vectors = torch.zeros(len(summaries), corpus.sentence_vectors.shape[1])
        rows = [row for row, texts in enumerate(summaries) if texts]
        if rows:
            vectors[rows] = self._encode([join_texts(material, summaries[row]) for row in rows])
        return vectors
