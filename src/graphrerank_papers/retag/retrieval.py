"""Retrieval of ReTAG: route questions to topics, expand them with keywords, and retrieve community summaries."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import compress, islice, zip_longest
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.core import Queries, Ranking, top_k_by_node_order
from graphrerank.core.queries import IndexEncoder, TextEncoder
from graphrerank.core.sparse_rows import row_entries
from graphrerank.corpus import CorpusGraph
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt
from graphrerank.operators.bm25 import BM25
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.text import Tokenizer, split_sentences
from graphrerank.text.languages import detect_language
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative
from graphrerank_papers.indexing import with_documents
from graphrerank_papers.knowledge.keywords import find_keywords
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings, Topics
from graphrerank_papers.retag.steps import ReTAGPrompts, ask_all, classify_questions, parse_keywords

#: Function that returns the topic of each question, or None for questions without a topic.
TopicClassifier = Callable[[Sequence[str]], Sequence[int | None]]


@dataclass(frozen=True)
class ReTAGSearchSettings:
    """Settings of the retrieval of summaries. The defaults are those of the paper.

    Attributes:
        top_p: Number of summaries per question. None returns all candidates, as in GraphRAG.
        use_topics: Whether questions are routed to topics. If False, all questions search the general graph.
        bm25_weight: Weight of the BM25 score, which is divided by its maximum over the candidates of the question.
        dense_weight: Weight of the cosine similarity of question and summary.
        keyword_weight: Weight of a keyword in BM25. A word of the question has weight 1.
    """

    top_p: int | None = 10
    use_topics: bool = True
    bm25_weight: float = 1.0
    dense_weight: float = 0.0
    keyword_weight: float = 1.0

    def __post_init__(self) -> None:
        check_counts(top_p=self.top_p)
        if min(self.bm25_weight, self.dense_weight) < 0 or self.bm25_weight + self.dense_weight == 0:
            raise UserError(
                f"`bm25_weight` and `dense_weight` must be non-negative and not both 0, got {self.bm25_weight} and "
                f"{self.dense_weight}"
            )
        check_not_negative(keyword_weight=self.keyword_weight)


class SummarySentences:
    """Sentences of the summaries of an index, with their vectors and keywords.

    Args:
        index: ReTAG index.
        encoder: Encoder of the questions.

    Attributes:
        language: Language of the sentences.
        keywords: ``W`` distinct keywords of the sentences.
        weights: Inverse document frequency (of BM25) of each keyword in each sentence that contains it, sparse
            ``[S, W]``.
        vectors: Vectors of the sentences ``[S, d]`` on the CPU.
    """

    def __init__(self, index: ReTAGIndex, encoder: TextEncoder) -> None:
        texts = list(index.sentences.texts)
        if not texts:  # summaries of a language model do not quote sentences
            split = (text[start:stop] for text in index.communities.texts for start, stop in split_sentences(text))
            texts = list(dict.fromkeys(split))
        column: dict[str, int] = {}
        self.language = detect_language(texts)
        rows = [[column.setdefault(word, len(column)) for word in find_keywords(text, self.language)] for text in texts]
        indices = np.asarray([word for row in rows for word in row], dtype=np.int64)
        num_texts = np.bincount(indices, minlength=len(column))
        idf = np.log1p((len(texts) - num_texts + 0.5) / (num_texts + 0.5))
        entries = (idf[indices], indices, np.cumsum([0, *map(len, rows)]))
        self.keywords = list(column)
        self.weights = sparse.csr_matrix(entries, shape=(len(texts), len(column)))
        self.vectors = encoder.encode(texts).cpu() if texts else torch.zeros(0, 0)


@dataclass(eq=False, repr=False, kw_only=True)
class KeywordNumbers:
    """Numbers of the keywords that expand a question.

    Attributes:
        num_keywords: Maximum number of keywords per question.
        num_sentences: Number of nearest sentences from which extractive keywords are chosen.
        num_terms: Maximum number of topic terms among extractive keywords.
    """

    num_keywords: int = 10
    num_sentences: int = 20
    num_terms: int = 2


@dataclass(eq=False)
class ExtractiveKeywords(KeywordNumbers):
    r"""Expand questions with terms of their topics and words of the nearest sentences, without a language model.

    Terms of the topics come first. Terms of several topics alternate. Then follow the words with the highest weights

    .. math:: w(t) = \mathrm{idf}(t) \sum_{s \ni t} \max(0, \cos(q, s))

    over the sentences :math:`s` of the summaries that are nearest to the question :math:`q`. Words of the question are
    excluded.

    Source: Lavrenko and Croft, "Relevance-Based Language Models", 2001 (pseudo-relevance feedback), with sentences as
    documents and cosine similarities as probabilities. *Differences from the paper:* ReTAG, 2025, section 3.3,
    generates keywords with a language model (:class:`GeneratedKeywords`).

    Attributes:
        sentences: Sentences of the summaries.
        topics: Topics of the index.
        num_keywords: Maximum number of keywords per question.
        num_sentences: Number of nearest sentences per question.
        num_terms: Maximum number of topic terms among the keywords of a question.
    """

    sentences: SummarySentences
    topics: Topics

    def __post_init__(self) -> None:
        check_counts(num_keywords=self.num_keywords, num_sentences=self.num_sentences)
        check_not_negative(num_terms=self.num_terms)

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """Return the keywords of each question.

        Args:
            queries: ``B`` questions with vectors.
            graphs: Whether each question searches the general graph and each topic, ``[B, 1 + T]`` bool.

        Returns:
            Keywords of each question, best first. Empty for a blank question.
        """
        weights = self._weights(queries.encoded.cpu())
        keywords = []
        for row, (text, is_routed) in enumerate(zip(queries.texts, graphs[:, 1:].tolist(), strict=True)):
            question_words = set(find_keywords(text, self.sentences.language))
            alternating = (term for group in zip_longest(*compress(self.topics.terms, is_routed)) for term in group)
            new_terms = (term for term in alternating if term is not None and term not in question_words)
            terms = islice(new_terms, self.num_terms)
            begin, end = weights.indptr[row : row + 2]
            words, weight = weights.indices[begin:end], weights.data[begin:end]
            ranked = (self.sentences.keywords[word] for word in words[np.lexsort((words, -weight))])
            unique = dict.fromkeys([*terms, *(word for word in ranked if word not in question_words)])
            keywords.append(list(unique)[: self.num_keywords] if text.strip() else [])
        return keywords

    def _weights(self, vectors: Tensor) -> sparse.csr_matrix:
        """Return the weights ``[B, W]`` of the words in the nearest sentences."""
        table = self.sentences.vectors
        if not len(table):
            return sparse.csr_matrix((len(vectors), 0))
        nodes, cosines = top_k_by_node_order(vectors @ table.T, min(self.num_sentences, len(table)))
        indptr = np.arange(0, nodes.numel() + 1, nodes.shape[1])
        entries = (cosines.clamp(min=0).flatten().numpy(), nodes.flatten().numpy(), indptr)
        near = sparse.csr_matrix(entries, shape=(len(vectors), len(table)))
        near.eliminate_zeros()  # sentences with a cosine similarity of at most 0 contribute no keywords
        return near @ self.sentences.weights


@dataclass(eq=False)
class GeneratedKeywords:
    """Expand questions with keywords of a language model, which receives a description of the corpus and the topics.

    Source: "ReTAG", 2025, section 3.3. The model writes keywords that the answer may contain.

    Attributes:
        model: Chat model. Wrap it in an :class:`~graphrerank.language_models.answer_cache.AnswerCache` to reuse
            answers.
        prompt: Prompt with the placeholders ``{collection}`` and ``{question}``.
        topics: Topics of the index.
        description: Short description of the corpus.
        num_keywords: Maximum number of keywords per question.
    """

    model: ChatModel
    prompt: Prompt
    topics: Topics
    _: KW_ONLY
    description: str
    num_keywords: int = 15

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """Return the keywords of each question.

        Args:
            queries: ``B`` questions.
            graphs: Whether each question searches the general graph and each topic, ``[B, 1 + T]`` bool.

        Returns:
            Keywords of each question. Empty for a blank question, or if the model gave no usable answer.
        """
        topics = zip(self.topics.names, self.topics.terms, strict=True)
        described = [f"{topic} ({', '.join(terms)})" for topic, terms in topics]
        masks = graphs[:, 1:].tolist()
        scopes = ["; ".join(compress(described, mask)) or "the whole collection" for mask in masks]
        collections = [f"{self.description} Searched in: {scope}" for scope in scopes]
        filled = [
            self.prompt.fill(collection=collection, question=text) if text.strip() else None
            for text, collection in zip(queries.texts, collections, strict=True)
        ]
        answers = ask_all(self.model, self.prompt, filled, parse_keywords, limit=self.num_keywords)
        return [(answer or [])[: self.num_keywords] for answer in answers]


KeywordFinder = ExtractiveKeywords | GeneratedKeywords


@dataclass(frozen=True)
class RetrievedSummaries:
    """Summaries retrieved for ``B`` questions.

    Attributes:
        ranking: Ranked nodes of the :class:`LevelSummaries` ``[B, K]``. If all candidates are returned, all scores are
            0.
        graphs: Whether each question searched the general graph and each topic, ``[B, 1 + T]`` bool.
        candidates: Whether each summary is a candidate of each question, ``[B, N]`` bool.
        keywords: Keywords of each question. Empty without expansion.
    """

    ranking: Ranking
    graphs: Tensor
    candidates: Tensor
    keywords: Sequence[Sequence[str]]


class LevelSummaries:
    """Summaries of the communities on one level, in all graphs of an index.

    The summaries form a corpus graph without edges. Its nodes are the communities of the level, followed by their
    parents. Parents are not retrieved, but document frequencies are counted over all nodes. The id of a node is
    ``<graph>.<level>.<community>``. For a graph with fewer levels, the finest level is used.

    Args:
        index: ReTAG index.
        level: Level of the communities. 0 is the coarsest.
        device: Device of the vectors and masks.

    Attributes:
        topics: Topics of the index, on the device.
        communities: Community of each node ``[N]`` int64.
        num_listed: Number of nodes that may be retrieved. They come first.
        graph: Corpus graph of the nodes, with their summaries and vectors.
        in_graph: Whether a question that searches each graph may retrieve each node, ``[1 + T, N]`` bool. Nodes with an
            empty summary are never retrieved.
        num_tokens: Number of tokens of each summary ``[N]`` int64.
    """

    def __init__(self, index: ReTAGIndex, level: int, *, device: str | torch.device = "cpu") -> None:
        source, topics = index.communities, index.topics
        rows = [source.at_level(graph, level) for graph in range(len(index.graphs))]
        listed = torch.cat([*rows, source.graph[:0]])
        parents = source.parent[listed]
        self.topics = replace(topics, vectors=topics.vectors.to(device), centre=topics.centre.to(device))
        self.communities = torch.cat([listed, torch.unique(parents[parents >= 0])])
        self.num_listed = len(listed)
        self.num_tokens = source.num_tokens[self.communities]
        node_of = torch.zeros(len(source), dtype=torch.int64)
        node_of[self.communities] = torch.arange(len(self.communities))
        communities = self.communities.tolist()
        graph = CorpusGraph.from_edges(
            [f"{source.graph[community]}.{source.level[community]}.{community}" for community in communities],
            [source.texts[community] for community in communities],
            torch.zeros(0, 2, dtype=torch.int64),
        )
        self.graph = graph.with_embedding(source.vectors[self.communities]).to(device)
        in_graph = torch.zeros(len(rows), len(self.communities), dtype=torch.bool)
        for number, row in enumerate(rows):
            in_graph[number, node_of[row]] = True
        texts = self.graph.all_texts
        self.in_graph = (in_graph & torch.tensor([bool(text) for text in texts], dtype=torch.bool)).to(device)
        text_index = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        self._text = torch.tensor([text_index[text] for text in texts], dtype=torch.int64, device=device)

    def __len__(self) -> int:
        return len(self.communities)

    @cached_property
    def bm25(self) -> BM25:
        """BM25 retriever over the summaries."""
        return BM25(self.graph.texts, language=self.graph.passages.language)

    def candidates(self, graphs: Tensor) -> Tensor:
        """Return the candidates of each question, ``[B, N]`` bool. Of identical summaries, only the first is included.

        Args:
            graphs: Whether each question searches each graph, ``[B, 1 + T]`` bool.
        """
        is_candidate = (graphs.float() @ self.in_graph.float()) > 0
        nodes = torch.arange(len(self), device=is_candidate.device).expand(is_candidate.shape)
        text = self._text.expand(is_candidate.shape)
        listed = nodes.masked_fill(~is_candidate, len(self))
        first_node = torch.full_like(nodes, len(self)).scatter_reduce(1, text, listed, "amin")
        return is_candidate & (first_node.gather(1, text) == nodes)


@dataclass(eq=False)
class ReTAGRetrieval:
    """Retrieve summaries of one level, for many questions at once.

    The score of a summary is the BM25 score of the question and its keywords. With ``top_p=None`` and
    ``use_topics=False``, the retrieval is that of GraphRAG, which uses all summaries of a level. A blank question
    retrieves nothing.

    Source: "ReTAG", 2025, sections 3.2.2 and 3.3. *Differences from the paper:* the cosine similarity of question and
    summary may be added to the score. Without a ``classifier``, a question is routed to all topics whose similarity
    reaches the threshold, which the paper suggests in its limitations.

    Attributes:
        summaries: Summaries of a level.
        settings: Settings of the retrieval.
        keywords: Keyword finder that expands the questions. If None, questions are not expanded.
        classifier: Function that routes each question to at most one topic. If None, questions are routed by
            similarity.
    """

    summaries: LevelSummaries
    settings: ReTAGSearchSettings
    _: KW_ONLY
    keywords: KeywordFinder | None = None
    classifier: TopicClassifier | None = None

    def __post_init__(self) -> None:
        self._is_open = self.summaries.in_graph[1:].any(1)

    @torch.inference_mode()
    def retrieve(self, queries: Queries) -> RetrievedSummaries:
        """Retrieve summaries for a batch of questions.

        Args:
            queries: ``B`` questions with vectors.

        Returns:
            Retrieved summaries.
        """
        graphs = self._route(queries)
        candidates = self.summaries.candidates(graphs)
        max_candidates = int(candidates.sum(1).max()) if len(queries) else 0
        if self.settings.top_p is None or not max_candidates:
            scores = torch.zeros(candidates.shape, device=candidates.device).masked_fill(~candidates, -torch.inf)
            ranking = Ranking(*top_k_by_node_order(scores, max(1, max_candidates)))
            return RetrievedSummaries(ranking, graphs, candidates, [[] for _ in queries.texts])
        keywords = [[] for _ in queries.texts] if self.keywords is None else self.keywords.find(queries, graphs)
        scores = self._score(queries, keywords, candidates).masked_fill(~candidates, -torch.inf)
        ranking = Ranking(*top_k_by_node_order(scores, self.settings.top_p))
        return RetrievedSummaries(ranking, graphs, candidates, keywords)

    def _route(self, queries: Queries) -> Tensor:
        """Return the graphs that each question searches, ``[B, 1 + T]`` bool. A blank question searches none."""
        topics, vectors = self.summaries.topics, queries.encoded.to(self.summaries.graph.device)
        if self.classifier is not None and self.settings.use_topics:
            numbers = [-1 if topic is None else topic for topic in self.classifier(queries.texts)]
            chosen = torch.tensor(numbers, device=vectors.device).unsqueeze(1)
            is_near = chosen == torch.arange(len(topics), device=vectors.device)
        else:
            is_near = topics.similarity(vectors) >= topics.threshold
        is_near &= self._is_open & self.settings.use_topics
        has_text = torch.tensor([bool(text.strip()) for text in queries.texts], dtype=torch.bool, device=vectors.device)
        return torch.cat([~is_near.any(1, keepdim=True), is_near], dim=1) & has_text.unsqueeze(1)

    def _score(self, queries: Queries, keywords: Sequence[Sequence[str]], candidates: Tensor) -> Tensor:
        """Return the weighted sum of BM25 score and cosine similarity of all nodes, ``[B, N]``."""
        settings, bm25 = self.settings, self.summaries.bm25
        lexical = bm25.score_all(queries.texts)
        if any(keywords) and settings.keyword_weight:
            lexical += settings.keyword_weight * bm25.score_all([" ".join(words) for words in keywords])
        lexical = lexical.to(candidates.device)
        best = lexical.masked_fill(~candidates, 0.0).amax(1, keepdim=True)
        lexical = lexical / best.clamp(min=torch.finfo(torch.float32).tiny)
        embedding = self.summaries.graph.embedding
        assert embedding is not None
        dense = queries.encoded.to(candidates.device) @ embedding.T
        return settings.bm25_weight * lexical + settings.dense_weight * dense


@dataclass(frozen=True)
class ReTAGSetup:
    """Components and settings from which the index and the keyword finder of ReTAG are built.

    Attributes:
        folder: Folder of the index.
        tokenizer: Tokenizer that measures the lengths of texts.
        extractor: Extractor of entities and relations.
        settings: Settings of the index.
        language: ``extractive``, or ``llm`` to find topics, summarise communities and expand questions with the
            language model.
        language_model: Chat model. Required by ``language="llm"`` and ``routing="language_model"``.
        prompts: Prompts of the language model.
        cache: Folder where the answers of the language model are cached. If None, they are not cached.
        routing: ``similarity`` routes a question to all topics that are similar enough; ``language_model`` routes it to
            at most one topic.
        description: Description of the corpus, for the keywords of the language model.

    Raises:
        ValueError: If a setting is unknown, or the language model is missing.
    """

    folder: str | Path
    tokenizer: Tokenizer
    extractor: KnowledgeExtractor
    settings: ReTAGSettings = field(default_factory=ReTAGSettings)
    language: str = "extractive"
    language_model: ChatModel | None = None
    prompts: ReTAGPrompts = field(default_factory=ReTAGPrompts)
    cache: str | Path | None = None
    routing: str = "similarity"
    description: str = "A collection of documents."

    def __post_init__(self) -> None:
        check_choice(("extractive", "llm"), language=self.language)
        check_choice(("similarity", "language_model"), routing=self.routing)
        if self.language_model is None and (self.language == "llm" or self.routing == "language_model"):
            raise UserError("`language_model` is required with language=llm and with routing=language_model, got None")

    def build_index(self, encoder: IndexEncoder, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Build the index of a corpus, or read it from the folder.

        Args:
            encoder: Encoder of sentences and summaries. Questions must use the same encoder.
            ids: Unique ids of the passages.
            passages: Texts of the passages.

        Returns:
            Complete index.
        """
        shared = {"tokenizer": self.tokenizer, "extractor": self.extractor, "prompts": self.prompts}
        builder = ReTAGIndexBuilder(self.folder, encoder=encoder, model=self._model, **shared)  # type: ignore[arg-type]
        return builder.build(ids, passages, self.settings)

    def keyword_finder(
        self, index: ReTAGIndex, sentences: SummarySentences, *, num_keywords: int, num_sentences: int, num_terms: int
    ) -> KeywordFinder | None:
        """Return the keyword finder that expands questions, or None if ``num_keywords`` is 0.

        Args:
            index: ReTAG index.
            sentences: Sentences of the summaries. Only used by ``extractive``.
            num_keywords: Maximum number of keywords per question. 0 disables expansion.
            num_sentences: Number of nearest sentences per question. Only used by ``extractive``.
            num_terms: Maximum number of topic terms among the keywords of a question. Only used by ``extractive``.
        """
        if not num_keywords:
            return None
        topics, count = index.topics, {"num_keywords": num_keywords}
        if self._model is not None:
            return GeneratedKeywords(self._model, self.prompts.keywords, topics, description=self.description, **count)
        return ExtractiveKeywords(sentences, topics, num_sentences=num_sentences, num_terms=num_terms, **count)

    def topic_classifier(self, index: ReTAGIndex) -> TopicClassifier | None:
        """Return the function that routes questions to topics, or None to route by similarity.

        Args:
            index: Index with the topics.
        """
        if self.routing == "similarity" or (model := self._remembered) is None:
            return None
        return partial(classify_questions, model, self.prompts.classification, list(index.topics.names))

    @property
    def _model(self) -> ChatModel | None:
        return None if self.language == "extractive" else self._remembered

    @property
    def _remembered(self) -> ChatModel | None:
        return None if self.language_model is None else remembering(self.language_model, self.cache)


@dataclass(eq=False, repr=False)
class ReTAGSearch(Step, KeywordNumbers):
    """Retrieve the documents on which the retrieved summaries are based, ranked by cosine similarity to the query.

    ReTAG itself answers from summaries and does not rank documents. :class:`ReTAGRetrieval` returns the summaries,
    which ``experiment=retag_podcast`` evaluates. The constructor builds the index, or reads it from its folder.

    Attributes:
        resources: Resources of the pipeline. The graph needs an embedding, and the text encoder a fingerprint.
        setup: Components and settings of the index.
        search: Settings of the retrieval of summaries.
        level: Level of the communities. 0 is the coarsest.
        num_keywords: Maximum number of keywords per question. 0 disables expansion.
        num_sentences: Number of nearest sentences from which extractive keywords are chosen.
        num_terms: Maximum number of topic terms among extractive keywords.
    """

    resources: Resources
    _: KW_ONLY
    setup: ReTAGSetup
    search: ReTAGSearchSettings
    level: int = 1

    def __post_init__(self) -> None:
        encoder, graph = self.resources.index_encoder, self.resources.graph
        index = self.setup.build_index(encoder, graph.node_ids, graph.all_texts)
        summaries = LevelSummaries(index, self.level, device=graph.device)
        numbers = {entry.name: getattr(self, entry.name) for entry in fields(KeywordNumbers)}
        self.retrieval = ReTAGRetrieval(
            summaries,
            self.search,
            keywords=self.setup.keyword_finder(index, SummarySentences(index, encoder), **numbers),
            classifier=self.setup.topic_classifier(index),
        )
        self._indptr = index.communities.sources.indptr.to(graph.device)
        self._documents = index.communities.sources.indices.to(graph.device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the documents of the retrieved summaries.

        Args:
            state: State of ``B`` queries with vectors.

        Returns:
            State with at most ``budget`` documents per query.
        """
        with self.resources.clock("retrieve"):
            nodes, queries = self.retrieval.retrieve(state.queries).ranking.nodes, state.queries.encoded
            row, column = torch.nonzero(nodes >= 0, as_tuple=True)
            communities = self.retrieval.summaries.communities.to(nodes.device)[nodes[row, column]]
            origin, document = row_entries(self._indptr, self._documents, communities)
            cosines = (self.resources.graph.encoded[document] * queries.to(nodes.device)[row[origin]]).sum(1)
            return with_documents(state, row[origin], document, cosines, budget=self.resources.budget)
