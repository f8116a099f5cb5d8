"""ReTAG's language steps with a language model."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphrerank.indexes.ket.skeleton import build_skeleton
from graphrerank.indexes.retag.entity_graph import EntityGraph
from graphrerank.indexes.retag.index import ReTAGSettings
from graphrerank.indexes.retag.language import Corpus, FoundTopics, centred, join_texts
from graphrerank.indexes.retag.summary_material import Material
from graphrerank.indexes.retag.topic_mining import telling_words
from graphrerank.indexes.retag.topics import Topics
from graphrerank.knowledge import Knowledge
from graphrerank.language_models import ChatModel
from graphrerank.language_models.summaries import write_summaries
from graphrerank.language_models.topics import mine_topics, relate_to_topics
from graphrerank.text import Tokenizer, count_tokens

Encode = Callable[[Sequence[str]], Tensor]

MINED_BATCHES = 16  # that a language model reads to find topics; each of ``context_tokens``


class ModelLanguage:
    """With a language model, put an ``AnswerCache`` around it: nothing is paid for twice, a stopped build goes on.

    Args:
        model: Whom to ask.
        tokenizer: What a token is.
        encode: Gives ``[n, d]`` unit vectors of texts.
        settings: Of the index.
        tries: How often to ask for a usable answer.
    """

    picked = False

    def __init__(
        self, model: ChatModel, tokenizer: Tokenizer, encode: Encode, settings: ReTAGSettings, *, tries: int = 3
    ) -> None:
        self._model, self._tokenizer, self._encode = model, tokenizer, encode
        self._settings, self._tries = settings, tries
        self.skipped = 0

    @property
    def fingerprint(self) -> str:
        """The model's."""
        return repr(("language model", self._model.fingerprint))

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Take the extractor's descriptions of entities and relations."""
        told = knowledge()
        limit = self._settings.description_tokens
        skeleton = build_skeleton(told, range(len(told)), self._tokenizer, description_tokens=limit)
        number = {pair: edge for edge, pair in enumerate(map(tuple, graph.edges.tolist()))}
        num_entities = len(graph.names)
        edges: list[list[int]] = [[] for _ in number]
        for relation, (head, tail) in enumerate(skeleton.ends.tolist()):
            edges[number[min(head, tail), max(head, tail)]].append(num_entities + relation)
        sources: list[list[int]] = [[] for _ in range(num_entities + len(skeleton.relation_texts))]
        for entity, passage in skeleton.entity_links.tolist():
            sources[entity].append(passage)
        for relation, passage in skeleton.relation_links.tolist():
            sources[num_entities + relation].append(passage)
        texts = [*skeleton.entity_texts, *skeleton.relation_texts]
        return Material(
            texts, count_tokens(self._tokenizer, texts), sources, [[entity] for entity in range(num_entities)], edges
        )

    def find_topics(self, corpus: Corpus, centre: Tensor) -> FoundTopics:
        """Ask for the topics of the most prominent entities; their words are those of what is relevant to them."""
        settings, graph, material = self._settings, corpus.graph, corpus.material
        degree = torch.bincount(graph.edges.flatten(), minlength=len(graph.names))
        waiting = torch.argsort(-degree, stable=True).tolist() if settings.num_topics else []
        batches: list[list[str]] = []
        while waiting and len(batches) < MINED_BATCHES:
            taken = material.first(waiting, settings.context_tokens)
            if not taken:
                break
            batches.append([material.texts[number] for number in taken])
            kept = set(taken)
            waiting = [entity for entity in waiting if entity not in kept]
        names, skipped = mine_topics(self._model, batches, num_topics=settings.num_topics, tries=self._tries)
        self.skipped += skipped
        vectors = centred(self._encode(names), centre) if names else centre.new_zeros(0, len(centre))
        return FoundTopics(names, telling_words([[name] for name in names], num_words=settings.num_terms), vectors)

    def relevant_entities(
        self,
        corpus: Corpus,
        topics: Topics,
        *,
        first_passage: int,
        first_entity: int,
    ) -> Tensor:
        """Ask which topics each entity is clearly relevant to."""
        notes = corpus.material.texts[first_entity : len(corpus.graph.names)]
        rows, skipped = relate_to_topics(self._model, notes, topics.names, tries=self._tries)
        self.skipped += skipped
        found = torch.zeros(len(corpus.graph.names), len(topics), dtype=torch.bool)
        for entity, numbers in enumerate(rows, first_entity):
            found[entity, numbers] = True
        return found

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor, *, first_passage: int) -> Tensor:
        """Take the relations between a topic's entities."""
        return entities[corpus.graph.edges].all(dim=1)

    def summarizer(self, corpus: Corpus) -> "ModelLanguage":
        """Ask the model."""
        return self

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material) -> list[list[int]]:
        """Let the model sum each list up; none where there is nothing to sum up, or no usable answer."""
        asked = [numbers for numbers in contexts if numbers]
        notes = [[material.texts[number] for number in numbers] for numbers in asked]
        limit = self._settings.summary_tokens
        answers = iter(write_summaries(self._model, notes, self._tokenizer, limit=limit, tries=self._tries))
        found: list[list[int]] = []
        for numbers in contexts:
            text = next(answers) if numbers else None
            self.skipped += bool(numbers) and text is None
            if text is None:
                found.append([])
            else:
                (length,) = count_tokens(self._tokenizer, [text])
                passages = {passage for number in numbers for passage in material.sources[number]}
                found.append([material.add(text, length, passages)])
        return found

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Encode what the model wrote."""
        found = torch.zeros(len(summaries), corpus.sentence_vectors.shape[1])
        told = [place for place, numbers in enumerate(summaries) if numbers]
        if told:
            found[told] = self._encode([join_texts(material, summaries[place]) for place in told])
        return found
