"""The language steps of ReTAG: extractive ones, and those by a language model, with its prompts."""

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

ENTITIES_PER_TOPIC = 10  # a smaller corpus has fewer topics
NAME_WORDS = 3  # in the name of a topic
MAX_BATCHES = 16  # of ``context_tokens`` each, read by the language model to find topics
BATCH_NOTES = 40  # related to topics in one request

Answer = TypeVar("Answer")
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Topic(BaseModel, extra="forbid", strict=True):
    name: _Text
    description: _Text


@dataclass(frozen=True)
class ReTAGPrompts:
    """The prompts of a language model that builds and searches a ReTAG index."""

    _: KW_ONLY
    # placeholders; the system messages of `topics`, `merged_topics` and `keywords` have `{limit}`
    topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_topics"))  # `{notes}`
    merged_topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_merged_topics"))  # `{topics}`
    relevance: Prompt = field(default_factory=partial(shipped_prompt, "retag_relevance"))  # `{topics}`, `{notes}`
    summary: Prompt = field(default_factory=partial(shipped_prompt, "summary"))  # see `write_summaries`
    classification: Prompt = field(
        default_factory=partial(shipped_prompt, "retag_classification")
    )  # `{topics}`, `{question}`
    keywords: Prompt = field(default_factory=partial(shipped_prompt, "retag_keywords"))  # `{collection}`, `{question}`

    @property
    def of_index(self) -> str:
        """Changes whenever those do that an index is built by."""
        return repr([prompt.fingerprint for prompt in (self.topics, self.merged_topics, self.relevance, self.summary)])


@dataclass(frozen=True)
class Material:
    """Texts that describe entities and relations, followed by summaries that a language model wrote."""

    texts: list[str]  # `n` texts
    num_tokens: list[int]
    sources: list[list[int]]  # passages of each, ascending
    nodes: Sequence[Sequence[int]]  # indices of the texts about each of `E` entities
    edges: Sequence[Sequence[int]]  # indices of the texts about each of `m` related pairs

    def copy(self) -> "Material":
        """Copy the lists to which :meth:`add` appends."""
        return Material([*self.texts], [*self.num_tokens], [*self.sources], self.nodes, self.edges)

    def add(self, text: str, num_tokens: int, sources: Iterable[int]) -> int:
        """Append a text and return its index."""
        self.texts.append(text)
        self.num_tokens.append(num_tokens)
        self.sources.append(sorted(set(sources)))
        return len(self.texts) - 1

    def first(self, texts: Sequence[int], limit: int) -> list[int]:
        """Select texts greedily in order, skipping those that exceed the rest of ``limit`` tokens."""
        selected = []
        for text in texts:
            if self.num_tokens[text] <= limit:
                selected.append(text)
                limit -= self.num_tokens[text]
        return selected

    def join(self, texts: Sequence[int]) -> str:
        """Join texts by spaces."""
        return " ".join(self.texts[text] for text in texts)


@dataclass(frozen=True)
class Corpus:
    """A corpus before topics are found."""

    graph: EntityGraph
    material: Material  # texts that summaries are made from
    sentence_vectors: Tensor  # `[S, d]`
    entity_vectors: Tensor  # `[E, d]`
    centre: Tensor  # `[d]`, the mean of the entities' vectors


def centred(vectors: Tensor, centre: Tensor) -> Tensor:
    """Subtract the centre and normalise; zero vectors stay zero."""
    is_nonzero = vectors.abs().sum(dim=1, keepdim=True) > 0
    return torch.nn.functional.normalize(vectors - centre, dim=1) * is_nonzero


@dataclass(eq=False)
class ExtractiveSteps:
    """Language steps by clustering, vector similarity, and selection of sentences."""

    fingerprint = "extractive"
    is_extractive = True  # summaries consist of sentences of the corpus, which are the material's texts
    num_skipped = 0
    tokenizer: Tokenizer
    settings: ReTAGSettings

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Describe entities and relations by the first sentences that name them, up to ``description_tokens``."""
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
        """Cluster the entities, and name each cluster by words of its entities' names, weighted by mentions."""
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
        """Select the entities of each topic, ``[E, T]`` bool: those named by a sentence near it."""
        return corpus.graph.entity_scores(topics.similarity(corpus.sentence_vectors)) >= topics.entity_threshold

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor) -> Tensor:
        """Select the relations of each topic, ``[m, T]`` bool: those with both ends named by a sentence near it.

        If no sentence of the corpus names both ends, the topic's entities must include them.
        """
        graph = corpus.graph
        is_near = graph.relation_scores(topics.similarity(corpus.sentence_vectors)) >= topics.entity_threshold
        has_no_sentence = graph.together.indptr.diff() == 0
        return is_near | (has_no_sentence[:, None] & entities[graph.edges].all(dim=1))

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> list[list[int]]:
        """Select representative sentences of each list, in corpus order."""
        limit, centrality = self.settings.summary_tokens, self.settings.centrality
        summaries = []
        for sentences in contexts:
            lengths, vectors = [material.num_tokens[s] for s in sentences], corpus.sentence_vectors[list(sentences)]
            selected = pick_sentences(vectors, lengths, limit=limit, centrality=centrality)
            summaries.append([sentences[position] for position in selected])
        too_long = list(range(len(summaries)))
        while too_long:  # joined sentences may have more tokens than the sum of their lengths
            lengths = count_tokens(self.tokenizer, [material.join(sorted(summaries[row])) for row in too_long])
            too_long = [row for row, length in zip(too_long, lengths, strict=True) if length > limit]
            for row in too_long:
                summaries[row].pop()
        return [sorted(sentences) for sentences in summaries]

    def vectors(self, summaries: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> Tensor:
        """Return the normalised mean vector of each summary's sentences, ``[n, d]``; none is empty."""
        means = [corpus.sentence_vectors[list(sentences)].mean(dim=0) for sentences in summaries]
        return torch.nn.functional.normalize(torch.stack(means), dim=1)


@dataclass(eq=False)
class GenerativeSteps:
    """Language steps by a language model; with an ``AnswerCache``, an interrupted build repeats no request."""

    is_extractive = False
    model: ChatModel
    prompts: ReTAGPrompts
    tokenizer: Tokenizer
    encode: Callable[[Sequence[str]], Tensor]  # `n` texts as `[n, d]` unit vectors
    settings: ReTAGSettings
    num_skipped: int = 0  # answers that remained unusable

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model and of its prompts."""
        return repr(("language model", self.model.fingerprint, self.prompts.of_index))

    def material(self, knowledge: Callable[[], Sequence[Knowledge]], graph: EntityGraph) -> Material:
        """Collect the extractor's descriptions of entities and relations."""
        limit = self.settings.description_tokens
        merged = merge_knowledge(knowledge(), tokenizer=self.tokenizer, description_tokens=limit)
        num_entities, texts = len(graph.names), [*merged.entity_texts, *merged.relation_texts]
        of_relation = graph.positions(merged.ends.sort(dim=1).values).tolist()
        edges = grouped(zip(of_relation, range(num_entities, len(texts)), strict=True), len(graph.edges))
        links = torch.cat([merged.entity_links, merged.relation_links + torch.tensor([num_entities, 0])])
        nodes = [[entity] for entity in range(num_entities)]
        sources = grouped(links.tolist(), len(texts))
        return Material(texts, count_tokens(self.tokenizer, texts), sources, nodes, edges)

    def find_topics(self, corpus: Corpus) -> Topics:
        """Ask for the topics of the most prominent entities; a topic's words are those of its name."""
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
        """Ask which topics each entity is clearly relevant to: ``[E, T]`` bool."""
        notes = corpus.material.texts[: len(corpus.graph.names)]
        rows, num_skipped = relate_to_topics(self.model, self.prompts.relevance, notes, topics.names)
        self.num_skipped += num_skipped
        is_relevant = torch.zeros(len(notes), len(topics), dtype=torch.bool)
        for entity, entity_topics in enumerate(rows):
            is_relevant[entity, entity_topics] = True
        return is_relevant

    def relevant_relations(self, corpus: Corpus, topics: Topics, entities: Tensor) -> Tensor:
        """Select the relations between a topic's entities, ``[m, T]`` bool."""
        return entities[corpus.graph.edges].all(dim=1)

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material, corpus: Corpus) -> list[list[int]]:
        """Summarise each list by a text that is added to the material; empty if it is, or without a usable answer."""
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
        """Encode the summaries, ``[n, d]``."""
        return self.encode([material.join(texts) for texts in summaries])


def cluster_entities(vectors: Tensor, *, num_topics: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cluster ``[E, d]`` unit vectors by k-means, the largest cluster first; a zero vector is in no cluster.

    There are at most ``num_topics`` clusters, and at most one per ten distinct vectors, but at least one.

    Returns:
        ``[T, d]`` unit vectors, and the cluster ``[E]`` of each entity, -1 for none.
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
    r"""Find the words that distinguish each group of texts from the others, by class-based TF-IDF.

    .. math:: \mathrm{tf}_{w, g} \cdot \log \left(1 + \frac{A}{\mathrm{tf}_w}\right)

    with :math:`\mathrm{tf}` the number of texts that contain a word, and :math:`A` its mean sum over a group's words.

    Source: "BERTopic: Neural topic modeling with a class-based TF-IDF procedure", 2022, Eq. (2).
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
    """Return the similarity that a share ``coverage`` of the texts reach with their nearest topic.

    ``similarity`` is ``[n, T]``; 1 without texts or topics.
    """
    if not similarity.numel():
        return 1.0
    best = similarity.max(dim=1).values.sort(descending=True).values
    return best[max(0, int(np.ceil(coverage * len(best))) - 1)].item()


def mine_topics(
    model: ChatModel, prompts: ReTAGPrompts, batches: Sequence[Sequence[str]], *, num_topics: int
) -> tuple[list[str], int]:
    """Find at most ``num_topics`` topics of a collection by merging those of each batch of notes.

    Source: ReTAG, 2025, which mines topics by a global question over the corpus. Returns each topic as "name:
    description", the most important first; and the number of batches without a usable answer.
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
        raise UserError("the language model gave no usable list of topics in 3 tries; choose another one")
    return merged, num_skipped


def relate_to_topics(
    model: ChatModel, prompt: Prompt, notes: Sequence[str], topics: Sequence[str]
) -> tuple[list[list[int]], int]:
    """Return ascending topic indices of each note, and the number of batches skipped, whose notes have no topic."""
    if not topics:
        return [[] for _ in notes], 0
    batches = [notes[start : start + BATCH_NOTES] for start in range(0, len(notes), BATCH_NOTES)]

    def check(index: int, answer: Sequence[Sequence[int]]) -> None:
        if len(answer) != len(batches[index]):
            raise UserError(f"`relevant` must have as many lists as notes, {len(batches[index])}, got {len(answer)}")

    questions = [prompt.fill(topics=_numbered(topics), notes=_numbered(batch)) for batch in batches]
    answers = ask_all(model, prompt, questions, partial(parse_relevant, num_topics=len(topics)), check=check)
    relevant = [row for batch, answer in zip(batches, answers, strict=True) for row in (answer or [[] for _ in batch])]
    return relevant, answers.count(None)


def classify_questions(
    model: ChatModel, prompt: Prompt, topics: Sequence[str], questions: Sequence[str]
) -> list[int | None]:
    """Choose the topic of each question; None for none, without a usable answer, and for a blank question.

    Source: ReTAG, section 3.2.2: a language model routes a question to one topic, or to the general summaries.
    """
    if not topics:
        return [None for _ in questions]
    listed, read = _numbered(topics), partial(parse_topic, num_topics=len(topics))
    filled = [prompt.fill(topics=listed, question=text) if text.strip() else None for text in questions]
    return [number - 1 if number else None for number in ask_all(model, prompt, filled, read)]


def parse_topic(content: str, *, num_topics: int) -> int:
    """Parse the number of a topic from 1, 0 for none, strictly."""
    number: int = parse_object_answer(content, topic=Annotated[int, Field(ge=0, le=num_topics)]).topic
    return number


def parse_topics(content: str, *, limit: int) -> list[str]:
    """Parse a list of 1 to ``limit`` topics, strictly: each as "name: description"."""
    topics = parse_object_answer(content, topics=Annotated[list[_Topic], Field(min_length=1, max_length=limit)]).topics
    return list(dict.fromkeys(f"{topic.name}: {topic.description}" for topic in topics))


def parse_relevant(content: str, *, num_topics: int) -> list[list[int]]:
    """Parse the topics of each note, strictly: ascending indices."""
    rows = parse_object_answer(content, relevant=list[list[Annotated[int, Field(ge=1, le=num_topics)]]])
    return [sorted({number - 1 for number in row}) for row in rows.relevant]


def parse_keywords(content: str) -> list[str]:
    """Parse a list of keywords, strictly: texts that are not blank; duplicates are dropped."""
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
    """Ask questions; None for a question that is None or has no usable answer."""
    rows, texts = [row for row, text in enumerate(questions) if text is not None], list(filter(None, questions))
    system = prompt.instructions(**settings)
    replies = ask_strictly(model, texts, system=system, parse=parse, check=check, form=prompt.form)
    answers = dict(zip(rows, replies, strict=True))
    return [answers.get(row) for row in range(len(questions))]


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
