"""ReTAG's language steps with a language model."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import torch
from torch import Tensor

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.text import Tokenizer, count_tokens
from graphrerank_papers.indexing.summaries import write_summaries
from graphrerank_papers.ket.skeleton import build_skeleton
from graphrerank_papers.retag.entity_graph import EntityGraph
from graphrerank_papers.retag.index import ReTAGSettings
from graphrerank_papers.retag.language_model_topics import mine_topics, relate_to_topics
from graphrerank_papers.retag.language_steps import Corpus, centred, join_texts
from graphrerank_papers.retag.summary_material import Material
from graphrerank_papers.retag.topic_mining import distinctive_words
from graphrerank_papers.retag.topics import Topics

Encode = Callable[[Sequence[str]], Tensor]

MAX_BATCHES = 16  # of ``context_tokens`` each, read by the language model to find topics


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
        skeleton = build_skeleton(passages, range(len(passages)), self._tokenizer, description_tokens=limit)
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

    def relevant_entities(self, corpus: Corpus, topics: Topics, *, first_passage: int, first_entity: int) -> Tensor:
        """Ask which topics each entity is clearly relevant to."""
        notes = corpus.material.texts[first_entity : len(corpus.graph.names)]
        rows, num_skipped = relate_to_topics(
            self._model, notes, topics.names, tries=self._tries, prompt=self._prompts.relevance
        )
        self.num_skipped += num_skipped
        is_relevant = torch.zeros(len(corpus.graph.names), len(topics), dtype=torch.bool)
        for entity, entity_topics in enumerate(rows, first_entity):
            is_relevant[entity, entity_topics] = True
        return is_relevant

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor, *, first_passage: int) -> Tensor:
        """Select the relations between a topic's entities."""
        return entities[corpus.graph.edges].all(dim=1)

    def summarizer(self, corpus: Corpus) -> "GenerativeSteps":
        """Return this object, which summarises by the model."""
        return self

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material) -> list[list[int]]:
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
