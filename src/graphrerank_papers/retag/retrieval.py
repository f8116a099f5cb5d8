"""ReTAG's retrieval: topics, keywords and summaries of a question among those of one level; the pipeline's step."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
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

TopicClassifier = Callable[[Sequence[str]], Sequence[int | None]]  # the topic of each question, or None


@dataclass(frozen=True)
class ReTAGSearchSettings:
    """Settings of the retrieval of summaries; the defaults are the paper's."""

    top_p: int | None = 10  # number of summaries per question; None for all, as in GraphRAG
    use_topics: bool = True  # whether questions are routed to topics; if not, all are searched in the general graph
    bm25_weight: float = 1.0  # weight of BM25, divided by the question's maximum over its candidates
    dense_weight: float = 0.0  # weight of the cosine of question and summary
    keyword_weight: float = 1.0  # weight of a keyword in BM25, relative to a word of the question

    def __post_init__(self) -> None:
        check_counts(top_p=self.top_p)
        if min(self.bm25_weight, self.dense_weight) < 0 or self.bm25_weight + self.dense_weight == 0:
            raise UserError(
                f"`bm25_weight` and `dense_weight` must not be negative nor both 0, got {self.bm25_weight} and "
                f"{self.dense_weight}"
            )
        check_not_negative(keyword_weight=self.keyword_weight)


class SummarySentences:
    """The sentences of an index's summaries: ``vectors`` ``[S, d]`` on the CPU, and ``keywords``, ``W`` words.

    ``weights`` ``[S, W]`` sparse are the BM25 inverse document frequencies of each sentence's words.
    """

    def __init__(self, index: ReTAGIndex, encoder: TextEncoder) -> None:
        texts = list(index.sentences.texts)
        if not texts:  # a language model wrote the summaries
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


@dataclass(eq=False)
class ExtractiveKeywords:
    r"""Keywords from the terms of a question's topics and from the sentences nearest to it, without a language model.

    Terms of the topics come first, those of several topics alternating, then words by

    .. math:: w(t) = \mathrm{idf}(t) \sum_{s \ni t} \max(0, \cos(q, s))

    over the nearest sentences :math:`s` of the summaries. Words of the question itself are left out.

    Source: ReTAG, section 3.3, asks a language model (:class:`GeneratedKeywords`). The weight is that of pseudo-
    relevance feedback, Lavrenko and Croft, "Relevance-Based Language Models", 2001, with sentences as documents and
    cosines as probabilities.
    """

    sentences: SummarySentences
    topics: Topics
    _: KW_ONLY
    num_keywords: int = 10  # maximum of a question
    num_sentences: int = 20  # nearest ones
    num_terms: int = 2  # maximum of terms of topics among the keywords

    def __post_init__(self) -> None:
        check_counts(num_keywords=self.num_keywords, num_sentences=self.num_sentences)
        check_not_negative(num_terms=self.num_terms)

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """Return the keywords of ``B`` queries, searched in graphs ``[B, 1 + T]`` bool; none for a blank one."""
        weights = self._weights(queries.encoded.cpu())
        keywords = []
        for row, (text, inside) in enumerate(zip(queries.texts, graphs[:, 1:].tolist(), strict=True)):
            known = set(find_keywords(text, self.sentences.language))
            by_turns = (term for turn in zip_longest(*compress(self.topics.terms, inside)) for term in turn)
            terms = islice((term for term in by_turns if term is not None and term not in known), self.num_terms)
            begin, end = weights.indptr[row : row + 2]
            words, weight = weights.indices[begin:end], weights.data[begin:end]
            ranked = (self.sentences.keywords[word] for word in words[np.lexsort((words, -weight))])
            unique = dict.fromkeys([*terms, *(word for word in ranked if word not in known)])
            keywords.append(list(unique)[: self.num_keywords] if text.strip() else [])
        return keywords

    def _weights(self, vectors: Tensor) -> sparse.csr_matrix:
        """Return the weights of the words of the nearest sentences, ``[B, W]``."""
        table = self.sentences.vectors
        if not len(table):
            return sparse.csr_matrix((len(vectors), 0))
        nodes, cosines = top_k_by_node_order(vectors @ table.T, min(self.num_sentences, len(table)))
        indptr = np.arange(0, nodes.numel() + 1, nodes.shape[1])
        entries = (cosines.clamp(min=0).flatten().numpy(), nodes.flatten().numpy(), indptr)
        near = sparse.csr_matrix(entries, shape=(len(vectors), len(table)))
        near.eliminate_zeros()  # dissimilar sentences contribute no keyword
        return near @ self.sentences.weights


@dataclass(eq=False)
class GeneratedKeywords:
    """Keywords by a language model that knows a short description of the collection and the question's topics.

    Source: ReTAG, section 3.3: keywords that the answer may contain, from the question and that description.
    """

    model: ChatModel  # best wrapped in an `AnswerCache`
    prompt: Prompt
    topics: Topics
    _: KW_ONLY
    description: str
    num_keywords: int = 15  # maximum of a question

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """Return the keywords of ``B`` queries; none for a blank one, or without a usable answer."""
        topics = zip(self.topics.names, self.topics.terms, strict=True)
        described = [f"{topic} ({', '.join(terms)})" for topic, terms in topics]
        scopes = ["; ".join(compress(described, inside)) or "the whole collection" for inside in graphs[:, 1:].tolist()]
        collections = [f"{self.description} Searched in: {scope}" for scope in scopes]
        pairs = zip(queries.texts, collections, strict=True)
        filled = [self.prompt.fill(collection=of, question=text) if text.strip() else None for text, of in pairs]
        answers = ask_all(self.model, self.prompt, filled, parse_keywords, limit=self.num_keywords)
        return [(answer or [])[: self.num_keywords] for answer in answers]


KeywordFinder = ExtractiveKeywords | GeneratedKeywords


@dataclass(frozen=True)
class RetrievedSummaries:
    """Summaries retrieved for ``B`` questions."""

    ranking: Ranking  # `[B, K]` nodes of the `LevelSummaries`, best first; all scores are 0 if all are retrieved
    graphs: Tensor  # `[B, 1 + T]` bool, where each was searched: in the general graph or in topics
    candidates: Tensor  # `[B, N]` bool, the summaries that could be retrieved
    keywords: Sequence[Sequence[str]]  # keywords of each question; none without expansion


class LevelSummaries:
    """Summaries of the communities of a level (0 is the coarsest), in all graphs of an index.

    The nodes of the corpus graph, which has no edges, are these communities, by index, followed by their parents. These
    are not retrieved, but term frequencies are counted over all nodes. Ids are ``<graph>.<level>.<community>``. A graph
    with fewer levels contributes its finest.

    Attributes:
        communities: ``[N]`` int64, each node's index among the communities; the first ``num_listed`` may be retrieved.
        graph: The nodes with their summaries and vectors.
        in_graph: ``[1 + T, N]`` bool, nodes that each graph may retrieve; never those with an empty summary.
        num_tokens: ``[N]`` int64, of the summaries.
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
        """Lexical search over the summaries."""
        return BM25(self.graph.texts, language=self.graph.passages.language)

    def candidates(self, graphs: Tensor) -> Tensor:
        """Return which summaries graphs ``[B, 1 + T]`` bool may retrieve, ``[B, N]`` bool; of equal texts the first."""
        is_candidate = (graphs.float() @ self.in_graph.float()) > 0
        nodes = torch.arange(len(self), device=is_candidate.device).expand(is_candidate.shape)
        text = self._text.expand(is_candidate.shape)
        listed = nodes.masked_fill(~is_candidate, len(self))
        first_node = torch.full_like(nodes, len(self)).scatter_reduce(1, text, listed, "amin")
        return is_candidate & (first_node.gather(1, text) == nodes)


@dataclass(eq=False)
class ReTAGRetrieval:
    """Retrieve summaries of a level, for many questions at once.

    Source: ReTAG, sections 3.2.2 and 3.3. Scores are BM25 of question and keywords. *Where we differ:* the cosine of
    question and summary may be added.
    With ``top_p=None`` and ``use_topics=False`` this is GraphRAG, which reads all summaries of a level. A blank
    question retrieves nothing. Without a ``classifier``, a question goes to every topic that is near enough, as the
    paper suggests under limitations.
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
        """Retrieve summaries for ``B`` questions, which must have vectors."""
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
        """Choose graphs, ``[B, 1 + T]`` bool: the general one or some topics with a summary; none if blank."""
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
        """Return the sum of BM25 and cosine of all nodes, by their weights, ``[B, N]``."""
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
    """Settings from which ReTAG's index and keyword finder are built."""

    folder: str | Path  # of indexes
    tokenizer: Tokenizer  # measures texts
    extractor: KnowledgeExtractor  # of entities and relations
    settings: ReTAGSettings = field(default_factory=ReTAGSettings)  # of the index
    # `extractive`, or `llm` for a language model that finds topics, summarises communities and expands questions
    language: str = "extractive"
    language_model: ChatModel | None = None
    prompts: ReTAGPrompts = field(default_factory=ReTAGPrompts)  # of the language model
    cache: str | Path | None = None  # folder of its cached answers; None for no cache
    # how a question finds its topics: by `similarity`, several perhaps; or by the `language_model`, one or none
    routing: str = "similarity"
    description: str = "A collection of documents."  # of the corpus, for the language model's keywords

    def __post_init__(self) -> None:
        check_choice(("extractive", "llm"), language=self.language)
        check_choice(("similarity", "language_model"), routing=self.routing)
        if self.language_model is None and (self.language == "llm" or self.routing == "language_model"):
            raise UserError("`language_model` must be given for language=llm and for routing=language_model, got none")

    def build_index(self, encoder: IndexEncoder, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Build the index of ``P`` passages with ids, or read it; questions need the same encoder."""
        shared = {"tokenizer": self.tokenizer, "extractor": self.extractor, "prompts": self.prompts}
        builder = ReTAGIndexBuilder(self.folder, encoder=encoder, model=self._model, **shared)  # type: ignore[arg-type]
        return builder.build(ids, passages, self.settings)

    def keyword_finder(
        self, index: ReTAGIndex, sentences: SummarySentences, *, num_keywords: int, num_sentences: int, num_terms: int
    ) -> KeywordFinder | None:
        """Return the finder that expands questions; None if ``num_keywords`` is 0.

        Only ``extractive`` uses the sentences of the index's summaries, ``num_sentences`` and ``num_terms``.
        """
        if not num_keywords:
            return None
        topics, count = index.topics, {"num_keywords": num_keywords}
        if self._model is not None:
            return GeneratedKeywords(self._model, self.prompts.keywords, topics, description=self.description, **count)
        return ExtractiveKeywords(sentences, topics, num_sentences=num_sentences, num_terms=num_terms, **count)

    def topic_classifier(self, index: ReTAGIndex) -> TopicClassifier | None:
        """Return what chooses the topic of questions; None for similarity."""
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
class ReTAGSearch(Step):
    """Retrieve the documents that the retrieved summaries were made from, ranked by their cosine with the query.

    ReTAG answers from summaries and ranks no documents; :class:`ReTAGRetrieval` returns the summaries, which
    ``experiment=retag_podcast`` evaluates. The constructor builds the index, or reads it from its folder.

    ``level`` of the communities is 0 for the coarsest. At most ``num_keywords`` expand a question, 0 for none.
    """

    resources: Resources
    _: KW_ONLY
    setup: ReTAGSetup
    search: ReTAGSearchSettings
    level: int = 1
    num_keywords: int = 10
    num_sentences: int = 20
    num_terms: int = 2

    def __post_init__(self) -> None:
        encoder, graph = self.resources.index_encoder, self.resources.graph
        index = self.setup.build_index(encoder, graph.node_ids, graph.all_texts)
        summaries = LevelSummaries(index, self.level, device=graph.device)
        numbers = {name: getattr(self, name) for name in ("num_keywords", "num_sentences", "num_terms")}
        self.retrieval = ReTAGRetrieval(
            summaries,
            self.search,
            keywords=self.setup.keyword_finder(index, SummarySentences(index, encoder), **numbers),
            classifier=self.setup.topic_classifier(index),
        )
        self._indptr = index.communities.sources.indptr.to(graph.device)
        self._documents = index.communities.sources.indices.to(graph.device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the documents of the retrieved summaries."""
        with self.resources.clock("retrieve"):
            nodes, queries = self.retrieval.retrieve(state.queries).ranking.nodes, state.queries.encoded
            row, column = torch.nonzero(nodes >= 0, as_tuple=True)
            communities = self.retrieval.summaries.communities.to(nodes.device)[nodes[row, column]]
            origin, document = row_entries(self._indptr, self._documents, communities)
            cosines = (self.resources.graph.encoded[document] * queries.to(nodes.device)[row[origin]]).sum(1)
            return with_documents(state, row[origin], document, cosines, budget=self.resources.budget)
