"""Steps of ReTAG that need language understanding: an extractive version, and one with a language model."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from math import log
from typing import Annotated, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, Field, StringConstraints
from torch import Tensor

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, parse_object_answer
from graphrerank.text import Tokenizer, count_tokens
from graphrerank.text.languages import detect_language
from graphrerank.utils.checks import UserError
from graphrerank_papers.knowledge.corpus_knowledge import grouped, merge_knowledge
from graphrerank_papers.knowledge.keywords import find_keywords
from graphrerank_papers.retag.entity_graph import EntityGraph
from graphrerank_papers.retag.index import ReTAGSettings, Topics
from graphrerank_papers.summaries import pick_sentences, write_summaries

#: Minimum number of distinct entity vectors per topic. A small corpus has fewer topics.
ENTITIES_PER_TOPIC = 10
#: Number of words in the name of a topic.
NAME_WORDS = 3
#: Maximum number of batches, of ``context_tokens`` each, in which the language model looks for topics.
MAX_BATCHES = 16
#: Number of notes per request that the language model relates to topics.
BATCH_NOTES = 40

Answer = TypeVar("Answer")
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Topic(BaseModel, extra="forbid", strict=True):
    name: _Text
    description: _Text


@dataclass(frozen=True)
class ReTAGPrompts:
    """Prompts of a language model that builds and searches an index. By default, the shipped prompts are used.

    Attributes:
        topics: Prompt that finds topics, with the placeholder ``{notes}``, and ``{limit}`` in the system message.
        merged_topics: Prompt that merges topics, with the placeholder ``{topics}``, and ``{limit}`` in the system
            message.
        relevance: Prompt that relates notes to topics, with the placeholders ``{topics}`` and ``{notes}``.
        summary: Prompt that summarises a community, as in :func:`~graphrerank_papers.summaries.write_summaries`.
        classification: Prompt that routes a question, with the placeholders ``{topics}`` and ``{question}``.
        keywords: Prompt that expands a question, with the placeholders ``{collection}`` and ``{question}``, and
            ``{limit}`` in the system message.
    """

    _: KW_ONLY
    topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_topics"))
    merged_topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_merged_topics"))
    relevance: Prompt = field(default_factory=partial(shipped_prompt, "retag_relevance"))
    summary: Prompt = field(default_factory=partial(shipped_prompt, "summary"))
    classification: Prompt = field(default_factory=partial(shipped_prompt, "retag_classification"))
    keywords: Prompt = field(default_factory=partial(shipped_prompt, "retag_keywords"))

    @property
    def of_index(self) -> str:
        """Fingerprint of the prompts that an index depends on."""
        return repr([prompt.fingerprint for prompt in (self.topics, self.merged_topics, self.relevance, self.summary)])


@dataclass(frozen=True)
class Material:
    """Texts about entities and relations, followed by summaries of a language model.

    Attributes:
        texts: ``n`` texts.
        num_tokens: Number of tokens of each text.
        sources: Passages on which each text is based, ascending.
        nodes: Indices of the texts about each of the ``E`` entities.
        edges: Indices of the texts about each of the ``m`` related pairs.
    """

    texts: list[str]
    num_tokens: list[int]
    sources: list[list[int]]
    nodes: Sequence[Sequence[int]]
    edges: Sequence[Sequence[int]]

    def copy(self) -> "Material":
        """Return a copy to which texts can be added without changing the original."""
        return Material([*self.texts], [*self.num_tokens], [*self.sources], self.nodes, self.edges)

    def add(self, text: str, num_tokens: int, sources: Iterable[int]) -> int:
        """Append a text.

        Args:
            text: Text to append.
            num_tokens: Number of tokens of the text.
            sources: Passages on which the text is based. Duplicates are ignored.

        Returns:
            Index of the text.
        """
        self.texts.append(text)
        self.num_tokens.append(num_tokens)
        self.sources.append(sorted(set(sources)))
        return len(self.texts) - 1

    def first(self, texts: Sequence[int], limit: int) -> list[int]:
        """Return the texts that fit the limit, chosen greedily in order. Texts that do not fit are skipped.

        Args:
            texts: Indices of texts, in order of preference.
            limit: Maximum number of tokens.
        """
        selected = []
        for text in texts:
            if self.num_tokens[text] <= limit:
                selected.append(text)
                limit -= self.num_tokens[text]
        return selected

    def join(self, texts: Sequence[int]) -> str:
        """Return texts joined by spaces.

        Args:
            texts: Indices of texts.
        """
        return " ".join(self.texts[text] for text in texts)


@dataclass(frozen=True)
class Corpus:
    """Corpus before topics are found.

    Attributes:
        graph: Entity graph.
        material: Texts on which summaries are based.
        sentence_vectors: Vectors of the sentences ``[S, d]``.
        entity_vectors: Vectors of the entities ``[E, d]``. Zero for entities that no sentence mentions.
        centre: Mean of the nonzero entity vectors ``[d]``.
    """

    graph: EntityGraph
    material: Material
    sentence_vectors: Tensor
    entity_vectors: Tensor
    centre: Tensor


def centred(vectors: Tensor, centre: Tensor) -> Tensor:
    """Subtract the centre from vectors, and normalise them.

    Args:
        vectors: Vectors ``[n, d]``.
        centre: Vector to subtract ``[d]``.

    Returns:
        Unit vectors ``[n, d]``. Zero vectors stay zero.
    """
    is_nonzero = vectors.abs().sum(dim=1, keepdim=True) > 0
    return torch.nn.functional.normalize(vectors - centre, dim=1) * is_nonzero


@dataclass(eq=False)
class ExtractiveSteps:
    """Find topics and write summaries without a language model, by clustering and sentence selection.

    Attributes:
        tokenizer: Tokenizer that measures the lengths of texts.
        settings: Settings of the index.
    """

    fingerprint = "extractive"
    is_extractive = True  # the texts of the material are sentences of the corpus, which summaries quote
    num_skipped = 0
    tokenizer: Tokenizer
    settings: ReTAGSettings

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Describe entities and relations by the first sentences that mention them, up to ``description_tokens``.

        Args:
            knowledge: Function that returns the knowledge of each passage. Not used.
            graph: Entity graph.

        Returns:
            Texts about entities and relations, which are the sentences of the graph.
        """
        num_tokens = count_tokens(self.tokenizer, graph.sentences)

        def first(sentences: Sequence[int]) -> list[int]:
            selected: list[int] = []
            remaining = self.settings.description_tokens
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

    def find_topics(self, corpus: Corpus) -> Topics:
        """Find topics by clustering the entities, and name each cluster by the distinctive words of its entity names.

        Args:
            corpus: Corpus whose topics are found.

        Returns:
            Topics, largest cluster first.
        """
        settings, graph = self.settings, corpus.graph
        entity_vectors = centred(corpus.entity_vectors, corpus.centre)
        vectors, label = cluster_entities(entity_vectors, num_topics=settings.num_topics, seed=settings.seed)
        mentions = graph.named.indices
        mentions = mentions[label[mentions] >= 0]
        groups = grouped(torch.stack([label[mentions], mentions], dim=1).tolist(), len(vectors))
        named = [[graph.names[entity] for entity in group] for group in groups]
        terms = distinctive_words(named, num_words=settings.num_terms)
        return Topics([", ".join(words[:NAME_WORDS]) for words in terms], terms, vectors, corpus.centre)

    def relevant_entities(self, corpus: Corpus, topics: Topics) -> Tensor:
        """Return the entities of each topic, ``[E, T]`` bool.

        An entity belongs to a topic if a sentence that mentions the entity is similar to the topic.

        Args:
            corpus: Corpus with the entities.
            topics: Topics with their thresholds.
        """
        return corpus.graph.entity_scores(topics.similarity(corpus.sentence_vectors)) >= topics.entity_threshold

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor) -> Tensor:
        """Return the relations of each topic, ``[m, T]`` bool.

        A relation belongs to a topic if a sentence that mentions both entities is similar to the topic. If no sentence
        mentions both, the relation belongs to the topics of both entities.

        Args:
            corpus: Corpus with the relations.
            topics: Topics with their thresholds.
            entities: Entities of each topic ``[E, T]`` bool.
        """
        graph = corpus.graph
        is_near = graph.relation_scores(topics.similarity(corpus.sentence_vectors)) >= topics.entity_threshold
        has_no_sentence = graph.together.indptr.diff() == 0
        return is_near | (has_no_sentence[:, None] & entities[graph.edges].all(dim=1))

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> list[list[int]]:
        """Summarise lists of sentences by selecting representative ones (:func:`pick_sentences`).

        Args:
            contexts: Sentences of each context.
            material: Texts of the sentences.
            corpus: Corpus with the vectors of the sentences.

        Returns:
            Sentences of each summary, in corpus order.
        """
        limit, centrality = self.settings.summary_tokens, self.settings.centrality
        summaries = []
        for sentences in contexts:
            lengths, vectors = [material.num_tokens[s] for s in sentences], corpus.sentence_vectors[list(sentences)]
            selected = pick_sentences(vectors, lengths, limit=limit, centrality=centrality)
            summaries.append([sentences[position] for position in selected])
        too_long = list(range(len(summaries)))
        while too_long:  # the joined text may have more tokens than its sentences in total
            lengths = count_tokens(self.tokenizer, [material.join(sorted(summaries[row])) for row in too_long])
            too_long = [row for row, length in zip(too_long, lengths, strict=True) if length > limit]
            for row in too_long:
                summaries[row].pop()
        return [sorted(sentences) for sentences in summaries]

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Return the normalised mean vector of each summary's sentences, ``[n, d]``.

        Args:
            summaries: Sentences of each summary. No summary may be empty.
            material: Texts of the sentences. Not used.
            corpus: Corpus with the vectors of the sentences.
        """
        means = [corpus.sentence_vectors[list(sentences)].mean(dim=0) for sentences in summaries]
        return torch.nn.functional.normalize(torch.stack(means), dim=1)


@dataclass(eq=False)
class GenerativeSteps:
    """Find topics and write summaries with a language model.

    Attributes:
        model: Chat model.
        prompts: Prompts of the chat model.
        tokenizer: Tokenizer that measures the lengths of texts.
        encode: Function that encodes ``n`` texts as unit vectors ``[n, d]``.
        settings: Settings of the index.
        num_skipped: Number of requests without a usable answer so far.
    """

    is_extractive = False
    model: ChatModel
    prompts: ReTAGPrompts
    tokenizer: Tokenizer
    encode: Callable[[Sequence[str]], Tensor]
    settings: ReTAGSettings
    num_skipped: int = 0

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model and the prompts."""
        return repr(("language model", self.model.fingerprint, self.prompts.of_index))

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Collect the descriptions of entities and relations by the extractor.

        Args:
            knowledge: Function that returns the knowledge of each passage.
            graph: Entity graph.

        Returns:
            Texts about entities and relations.
        """
        limit = self.settings.description_tokens
        merged = merge_knowledge(knowledge(), tokenizer=self.tokenizer, description_tokens=limit)
        num_entities, texts = len(graph.names), [*merged.entity_texts, *merged.relation_texts]
        edge_of_relation = graph.positions(merged.ends.sort(dim=1).values).tolist()
        edges = grouped(zip(edge_of_relation, range(num_entities, len(texts)), strict=True), len(graph.edges))
        links = torch.cat([merged.entity_links, merged.relation_links + torch.tensor([num_entities, 0])])
        nodes = [[entity] for entity in range(num_entities)]
        sources = grouped(links.tolist(), len(texts))
        return Material(texts, count_tokens(self.tokenizer, texts), sources, nodes, edges)

    def find_topics(self, corpus: Corpus) -> Topics:
        """Find topics by asking the model about the entities with the highest degrees.

        Args:
            corpus: Corpus whose topics are found.

        Returns:
            Topics, most important first. The terms of a topic are the distinctive words of its name and description.
        """
        settings, graph, material = self.settings, corpus.graph, corpus.material
        degree = torch.bincount(graph.edges.flatten(), minlength=len(graph.names))
        remaining = torch.argsort(-degree, stable=True).tolist() if settings.num_topics else []
        batches: list[list[str]] = []
        while len(batches) < MAX_BATCHES and (batch := material.first(remaining, settings.context_tokens)):
            batches.append([material.texts[entity] for entity in batch])
            used = set(batch)
            remaining = [entity for entity in remaining if entity not in used]
        names, num_skipped = mine_topics(self.model, self.prompts, batches, num_topics=settings.num_topics)
        self.num_skipped += num_skipped
        vectors = (
            centred(self.encode(names), corpus.centre) if names else corpus.centre.new_zeros(0, len(corpus.centre))
        )
        terms = distinctive_words([[name] for name in names], num_words=settings.num_terms)
        return Topics(names, terms, vectors, corpus.centre)

    def relevant_entities(self, corpus: Corpus, topics: Topics) -> Tensor:
        """Return the entities of each topic, ``[E, T]`` bool, by asking the model about each entity.

        Args:
            corpus: Corpus with the entities.
            topics: Topics of the corpus.
        """
        notes = corpus.material.texts[: len(corpus.graph.names)]
        rows, num_skipped = relate_to_topics(self.model, self.prompts.relevance, notes, topics.names)
        self.num_skipped += num_skipped
        is_relevant = torch.zeros(len(notes), len(topics), dtype=torch.bool)
        for entity, entity_topics in enumerate(rows):
            is_relevant[entity, entity_topics] = True
        return is_relevant

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor) -> Tensor:
        """Return the relations of each topic, ``[m, T]`` bool. Both entities of a relation must belong to the topic.

        Args:
            corpus: Corpus with the relations.
            topics: Topics. Not used.
            entities: Entities of each topic ``[E, T]`` bool.
        """
        return entities[corpus.graph.edges].all(dim=1)

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> list[list[int]]:
        """Summarise lists of texts with the model.

        Args:
            contexts: Text indices of each context.
            material: Texts. The summaries are added to them.
            corpus: Corpus. Not used.

        Returns:
            Text index of each summary, in a list. The list is empty for an empty context, or if the model gave no
            usable answer.
        """
        rows = [row for row, texts in enumerate(contexts) if texts]
        notes = [[material.texts[text] for text in contexts[row]] for row in rows]
        limit, prompt = self.settings.summary_tokens, self.prompts.summary
        written = write_summaries(self.model, notes, self.tokenizer, limit=limit, prompt=prompt)
        self.num_skipped += written.count(None)
        summaries: list[list[int]] = [[] for _ in contexts]
        for row, answer in zip(rows, written, strict=True):
            if answer is not None:
                (length,) = count_tokens(self.tokenizer, [answer])
                passages = [passage for text in contexts[row] for passage in material.sources[text]]
                summaries[row] = [material.add(answer, length, passages)]
        return summaries

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Return the vectors of summaries, ``[n, d]``.

        Args:
            summaries: Text indices of each summary.
            material: Texts that the summaries are based on.
            corpus: Corpus. Not used.
        """
        return self.encode([material.join(texts) for texts in summaries])


def cluster_entities(vectors: Tensor, *, num_topics: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cluster entity vectors with k-means. Zero vectors belong to no cluster.

    There are at most ``num_topics`` clusters, and at most one per ten distinct vectors. If there is a nonzero vector,
    there is at least one cluster.

    Args:
        vectors: Unit vectors or zero vectors of the entities ``[E, d]``.
        num_topics: Maximum number of clusters.
        seed: Random seed of k-means.

    Returns:
        Unit vectors of the clusters ``[T, d]``, largest cluster first, and the cluster of each entity ``[E]``, or -1.
    """
    from sklearn.cluster import KMeans

    label = torch.full((len(vectors),), -1, dtype=torch.int64)
    is_nonzero = vectors.abs().sum(dim=1) > 0 if len(vectors) else label >= 0
    rows = vectors[is_nonzero].numpy()
    num_distinct = len(np.unique(rows, axis=0))
    num_clusters = min(num_topics, max(1, num_distinct // ENTITIES_PER_TOPIC)) if num_distinct else 0
    if not num_clusters:
        return vectors.new_zeros(0, vectors.shape[1]), label
    clusters = KMeans(num_clusters, n_init=3, random_state=seed).fit(rows)
    order = np.argsort(-np.bincount(clusters.labels_, minlength=num_clusters), kind="stable")
    label[is_nonzero] = torch.from_numpy(np.argsort(order)[clusters.labels_])
    centres = torch.from_numpy(clusters.cluster_centers_[order]).float()
    return torch.nn.functional.normalize(centres, dim=1), label


def distinctive_words(groups: Sequence[Sequence[str]], *, num_words: int) -> list[list[str]]:
    r"""Find the words that distinguish each group of texts from the other groups, by class-based TF-IDF.

    .. math:: \mathrm{tf}_{w, g} \cdot \log \left(1 + \frac{A}{\mathrm{tf}_w}\right)

    where :math:`\mathrm{tf}_{w, g}` is the number of texts in group :math:`g` that contain the word :math:`w`,
    :math:`\mathrm{tf}_w` is its sum over all groups, and :math:`A` is the mean number of words per group.

    Source: Grootendorst, "BERTopic: Neural topic modeling with a class-based TF-IDF procedure", 2022, Eq. (2).

    Args:
        groups: Texts of each group.
        num_words: Maximum number of words per group.

    Returns:
        Words of each group, most distinctive first.

    Example:
        >>> distinctive_words([["Metz city", "Metz river"], ["Rome city"]], num_words=1)
        [['metz'], ['rome']]
    """
    language = detect_language([text for texts in groups for text in texts])
    counts = [Counter(word for text in texts for word in find_keywords(text, language)) for texts in groups]
    total = sum(counts, Counter[str]())
    average = sum(total.values()) / max(1, len(groups))
    words = []
    for group in counts:
        weight = {word: count * log(1 + average / total[word]) for word, count in group.items()}
        words.append(sorted(weight, key=lambda word: (-weight[word], word))[:num_words])
    return words


def covering_threshold(similarity: Tensor, *, coverage: float) -> float:
    """Return the similarity to the best topic that a given share of the texts reaches.

    Args:
        similarity: Similarity of each text to each topic ``[n, T]``.
        coverage: Share of the texts, in (0, 1].

    Returns:
        Threshold. 1 if there are no texts or no topics.

    Example:
        >>> covering_threshold(torch.tensor([[0.5, 0.25], [0.0, 0.75]]), coverage=1.0)
        0.5
    """
    if not similarity.numel():
        return 1.0
    best = similarity.max(dim=1).values.sort(descending=True).values
    return best[max(0, int(np.ceil(coverage * len(best))) - 1)].item()


def mine_topics(
    model: ChatModel, prompts: ReTAGPrompts, batches: Sequence[Sequence[str]], *, num_topics: int
) -> tuple[list[str], int]:
    """Find the topics of a corpus with a language model, by merging the topics of batches of notes.

    Source: "ReTAG", 2025, which finds topics by asking a global question about the corpus.

    Args:
        model: Chat model.
        prompts: Prompts of the model. ``topics`` and ``merged_topics`` are used.
        batches: Notes of each batch.
        num_topics: Maximum number of topics.

    Returns:
        Topics as "name: description", most important first, and the number of batches without a usable answer.

    Raises:
        ValueError: If the model gave no usable answer when it merged the topics.
    """
    read = partial(parse_topics, limit=num_topics)
    questions = [prompts.topics.fill(notes="\n".join(f"- {note}" for note in batch)) for batch in batches]
    answers = ask_all(model, prompts.topics, questions, read, limit=num_topics)
    mined = [topics for topics in answers if topics is not None]
    num_skipped = len(answers) - len(mined)
    if len(mined) < 2:
        return (mined[0] if mined else []), num_skipped
    listed = "\n".join(f"- {topic}" for topic in dict.fromkeys(topic for topics in mined for topic in topics))
    question = prompts.merged_topics.fill(topics=listed)
    (merged,) = ask_all(model, prompts.merged_topics, [question], read, limit=num_topics)
    if merged is None:
        raise UserError("the language model returned no valid list of topics in 3 attempts; use another model")
    return merged, num_skipped


def relate_to_topics(
    model: ChatModel, prompt: Prompt, notes: Sequence[str], topics: Sequence[str]
) -> tuple[list[list[int]], int]:
    """Find the topics that notes are relevant to, with a language model.

    Args:
        model: Chat model.
        prompt: Prompt with the placeholders ``{topics}`` and ``{notes}``.
        notes: Notes, which are sent in batches of :data:`BATCH_NOTES`.
        topics: Names of the topics.

    Returns:
        Topic indices of each note, ascending, and the number of batches without a usable answer. The notes of these
        batches have no topics.
    """
    if not topics:
        return [[] for _ in notes], 0
    batches = [notes[start : start + BATCH_NOTES] for start in range(0, len(notes), BATCH_NOTES)]

    def check(index: int, answer: Sequence[Sequence[int]]) -> None:
        if len(answer) != len(batches[index]):
            raise UserError(f"`relevant` must have one list per note ({len(batches[index])}), got {len(answer)}")

    questions = [prompt.fill(topics=_numbered(topics), notes=_numbered(batch)) for batch in batches]
    answers = ask_all(model, prompt, questions, partial(parse_relevant, num_topics=len(topics)), check=check)
    relevant = [row for batch, answer in zip(batches, answers, strict=True) for row in (answer or [[] for _ in batch])]
    return relevant, answers.count(None)


def classify_questions(
    model: ChatModel, prompt: Prompt, topics: Sequence[str], questions: Sequence[str]
) -> list[int | None]:
    """Route questions to topics with a language model.

    Source: "ReTAG", 2025, section 3.2.2. Each question is routed to one topic or to the general summaries.

    Args:
        model: Chat model.
        prompt: Prompt with the placeholders ``{topics}`` and ``{question}``.
        topics: Names of the topics.
        questions: Questions. Blank questions are not sent to the model.

    Returns:
        Index of each question's topic. None if no topic fits, the question is blank, or the model gave no usable
        answer.
    """
    if not topics:
        return [None for _ in questions]
    listed, read = _numbered(topics), partial(parse_topic, num_topics=len(topics))
    filled = [prompt.fill(topics=listed, question=text) if text.strip() else None for text in questions]
    return [number - 1 if number else None for number in ask_all(model, prompt, filled, read)]


def parse_topic(content: str, *, num_topics: int) -> int:
    """Parse an answer that must be a JSON object with the number of a ``topic``.

    Args:
        content: Answer of a language model.
        num_topics: Number of topics.

    Returns:
        Number of the topic, 1-based. 0 means no topic.

    Raises:
        ValueError: If the answer has another form.
    """
    number: int = parse_object_answer(content, topic=Annotated[int, Field(ge=0, le=num_topics)]).topic
    return number


def parse_topics(content: str, *, limit: int) -> list[str]:
    """Parse an answer that must be a JSON object with ``topics``, each with a name and a description.

    Args:
        content: Answer of a language model.
        limit: Maximum number of topics. At least one is required.

    Returns:
        Topics as "name: description", without duplicates.

    Raises:
        ValueError: If the answer has another form.
    """
    topics = parse_object_answer(content, topics=Annotated[list[_Topic], Field(min_length=1, max_length=limit)]).topics
    return list(dict.fromkeys(f"{topic.name}: {topic.description}" for topic in topics))


def parse_relevant(content: str, *, num_topics: int) -> list[list[int]]:
    """Parse an answer that must be a JSON object with a list of ``relevant`` topic numbers per note.

    Args:
        content: Answer of a language model. Its topic numbers are 1-based.
        num_topics: Number of topics.

    Returns:
        Topic indices of each note, 0-based, ascending.

    Raises:
        ValueError: If the answer has another form.

    Example:
        >>> parse_relevant('{"relevant": [[2, 1], []]}', num_topics=2)
        [[0, 1], []]
    """
    rows = parse_object_answer(content, relevant=list[list[Annotated[int, Field(ge=1, le=num_topics)]]])
    return [sorted({number - 1 for number in row}) for row in rows.relevant]


def parse_keywords(content: str) -> list[str]:
    """Parse an answer that must be a JSON object with a list of ``keywords``.

    Args:
        content: Answer of a language model.

    Returns:
        Keywords, without duplicates.

    Raises:
        ValueError: If the answer has another form, or a keyword is blank.
    """
    return list(dict.fromkeys(parse_object_answer(content, keywords=list[_Text]).keywords))


def ask_all(
    model: ChatModel,
    prompt: Prompt,
    questions: Sequence[str | None],
    parse: Callable[[str], Answer],
    *,
    check: Callable[[int, Answer], None] | None = None,
    **settings: int,
) -> list[Answer | None]:
    """Send questions to a language model, and parse its answers.

    Args:
        model: Chat model.
        prompt: Prompt whose system message is sent with each question.
        questions: Messages to send. A question that is None is skipped.
        parse: Function that parses an answer. It raises a ValueError for an answer that is not usable.
        check: Function that checks a parsed answer. Its first argument is the index of the question among those that
            are not None. It raises a ValueError for an answer that is not usable. If None, answers are not checked.
        **settings: Values of the placeholders in the system message.

    Returns:
        Parsed answer to each question. None if the question was skipped, or the model gave no usable answer.
    """
    rows, texts = [row for row, text in enumerate(questions) if text is not None], list(filter(None, questions))
    system = prompt.instructions(**settings)
    replies = ask_strictly(model, texts, system=system, parse=parse, check=check, form=prompt.form)
    answers = dict(zip(rows, replies, strict=True))
    return [answers.get(row) for row in range(len(questions))]


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
