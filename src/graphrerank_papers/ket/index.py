"""Index of KET-RAG: its settings, its in-memory form, and the builder that creates it or reads it from disk."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.core.queries import IndexEncoder
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor, PromptedExtractor
from graphrerank.text import Tokenizer, count_tokens, normalize_entity, split_sentences
from graphrerank.text.languages import detect_language
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative, check_share
from graphrerank_papers.indexing import Stages, encode_texts
from graphrerank_papers.ket.chunks import SELECTIONS, ChunkGraph, Chunks, TokenStream, build_chunk_graph, core_chunks
from graphrerank_papers.knowledge.corpus_knowledge import CorpusKnowledge, grouped, merge_knowledge, pair_tensor
from graphrerank_papers.knowledge.keywords import find_keywords

#: Line end after every text of a context. It is included in the number of tokens of the text.
LINE_END = "\n"
#: Prices of GPT-4o-mini and text-embedding-3-small, the models of the paper, in US dollars per million tokens.
MODEL_INPUT_PRICE, MODEL_OUTPUT_PRICE, ENCODER_PRICE = 0.15, 0.60, 0.02


@dataclass(frozen=True)
class KETSettings:
    r"""Settings of an index.

    Attributes:
        chunk_tokens: Number of tokens per chunk, :math:`\ell`.
        join: Whether a chunk may span documents, as in the experiments of the paper.
        num_neighbours: Number of neighbours per chunk, :math:`K`. Must be even.
        core_share: Share of core chunks, from which knowledge is extracted, :math:`\beta`, in [0, 1]. With 0, there is
            no knowledge graph.
        core_selection: Selection of the core chunks: ``pagerank`` or ``random``.
        seed: Random seed of the selection. Only used by ``random``.
        num_splits: Number of times that a chunk is halved, :math:`\tau`.
        has_keywords: Whether to build the text-keyword graph.
        description_tokens: Maximum number of tokens in the description of an entity or a relation.
    """

    chunk_tokens: int = 1200
    join: bool = True
    num_neighbours: int = 2
    core_share: float = 0.8
    core_selection: str = "pagerank"
    seed: int = 0
    num_splits: int = 3
    has_keywords: bool = True
    description_tokens: int = 100

    def __post_init__(self) -> None:
        check_counts(chunk_tokens=self.chunk_tokens, description_tokens=self.description_tokens)
        if self.num_neighbours < 2 or self.num_neighbours % 2:
            raise UserError(f"`num_neighbours` must be a positive even number, got {self.num_neighbours}")
        check_share(core_share=self.core_share)
        check_choice(SELECTIONS, core_selection=self.core_selection)
        check_not_negative(num_splits=self.num_splits)


@dataclass(frozen=True)
class KeywordGraph:
    """Bipartite graph of keywords and sub-chunks, with keyword vectors.

    Keywords that occur in the same sentences share a row. This saves space because about half of the keywords of a
    corpus occur in a single sentence.

    Attributes:
        keywords: ``W`` keywords, in order of first occurrence.
        row: Row of each keyword ``[W]`` int64. Rows are numbered in order of first occurrence.
        vectors: Keyword vectors ``[G, d]`` float32: the normalised mean vector of the sentences with the keyword.
        indptr: Row pointers ``[G + 1]`` int64. The keywords of row ``i`` occur in the sub-chunks
            ``indices[indptr[i]:indptr[i + 1]]``.
        indices: Sub-chunk indices ``[M]`` int64, ascending within a row.
    """

    keywords: Sequence[str]
    row: Tensor
    vectors: Tensor
    indptr: Tensor
    indices: Tensor


@dataclass(frozen=True)
class Tokens:
    """Number of tokens that models process.

    Attributes:
        model_input: Number of input tokens of the language model.
        model_output: Number of output tokens of the language model.
        encoder: Number of input tokens of the text encoder.
    """

    model_input: int = 0
    model_output: int = 0
    encoder: int = 0

    @property
    def dollars(self) -> float:
        """Cost of the tokens in US dollars, at the prices of the paper's models."""
        language_model = self.model_input * MODEL_INPUT_PRICE + self.model_output * MODEL_OUTPUT_PRICE
        return (language_model + self.encoder * ENCODER_PRICE) / 1e6


@dataclass(frozen=True)
class Skeleton:
    """Knowledge graph skeleton, extracted from the core chunks.

    Attributes:
        knowledge: ``E`` entities and ``R`` relations, linked to sub-chunks.
        entity_tokens: Number of tokens of each entity's text ``[E]`` int64.
        entity_vectors: Vectors of the entities' texts ``[E, d]`` float32.
        relation_tokens: Number of tokens of each relation's text ``[R]`` int64.
    """

    knowledge: CorpusKnowledge
    entity_tokens: Tensor
    entity_vectors: Tensor
    relation_tokens: Tensor


@dataclass(frozen=True)
class KETIndex:
    """Index in memory.

    Attributes:
        settings: Settings of the index.
        num_documents: Number of documents of the corpus.
        chunks: ``n`` chunks of the documents.
        chunk_graph: Nearest-neighbour graph of the chunks.
        core: Indices of the core chunks, int64, ascending.
        sub_chunks: ``m`` sub-chunks. Equal to ``chunks`` without splits.
        skeleton: Knowledge graph skeleton, or None without core chunks.
        keyword_graph: Text-keyword graph, or None if it was not built.
        sent: Number of tokens that the models processed. Includes requests whose results came from a cache.
    """

    settings: KETSettings
    num_documents: int
    chunks: Chunks
    chunk_graph: ChunkGraph
    core: Tensor
    sub_chunks: Chunks
    skeleton: Skeleton | None
    keyword_graph: KeywordGraph | None
    sent: Tokens

    @property
    def sizes(self) -> dict[str, int]:
        """Number of documents, tokens, nodes and edges of each kind."""
        knowledge = None if self.skeleton is None else self.skeleton.knowledge
        keywords = self.keyword_graph
        return {
            "documents": self.num_documents,
            "tokens": int(self.chunks.num_tokens.sum()),
            "chunks": len(self.chunks),
            "core chunks": len(self.core),
            "sub-chunks": len(self.sub_chunks),
            "entities": 0 if knowledge is None else len(knowledge.names),
            "relations": 0 if knowledge is None else len(knowledge.facts),
            "keywords": 0 if keywords is None else len(keywords.keywords),
            "edges of chunks": len(self.chunk_graph.edges),
            "edges of keywords": 0 if keywords is None else int(keywords.indptr.diff()[keywords.row].sum()),
        }


@dataclass(eq=False, repr=False)
class KETIndexBuilder:
    """Build an index in stages. Completed stages are read from the folder, so an interrupted build can be resumed.

    Source: "KET-RAG", 2025, Algorithm 3. Indexes with different settings share the stages that do not depend on these
    settings (:class:`~graphrerank_papers.indexing.Stages`).

    Attributes:
        folder: Folder of the stages.
        tokenizer: Tokenizer that measures the lengths of texts.
        encoder: Encoder of chunks, entities and sentences.
        extractor: Extractor of entities and relations. May be None only if ``core_share`` is 0.
    """

    folder: str | Path
    _: KW_ONLY
    tokenizer: Tokenizer
    encoder: IndexEncoder
    extractor: KnowledgeExtractor | None = None

    def __post_init__(self) -> None:
        self._stages = Stages(self.folder)

    def build(self, documents: Sequence[str], settings: KETSettings | None = None) -> KETIndex:
        """Build the index of a corpus, or read it from the folder.

        Args:
            documents: Texts of the documents.
            settings: Settings of the index. If None, the defaults of :class:`KETSettings` are used.

        Returns:
            Complete index.

        Raises:
            ValueError: If ``core_share`` is positive and there is no ``extractor``.
        """
        settings = settings or KETSettings()
        if settings.core_share > 0 and self.extractor is None:
            raise UserError(f"`extractor` is required with `core_share` {settings.core_share}, got None")
        corpus, stream = hash_texts(documents).hex(), cache(lambda: TokenStream(documents, self.tokenizer))
        chunk_key, chunks = self._cut(corpus, stream, settings, num_splits=0)

        def join() -> ChunkGraph:
            language = detect_language(chunks.texts)
            keywords = [find_keywords(text, language) for text in chunks.texts]
            return build_chunk_graph(keywords, chunks.vectors, num_neighbours=settings.num_neighbours)

        graph = self._stages.get(self._stages.key("graph", chunk_key, settings.num_neighbours), ChunkGraph, join)
        sub_key, sub_chunks, num_encoded = chunk_key, chunks, int(chunks.num_tokens.sum())
        if settings.num_splits:
            sub_key, sub_chunks = self._cut(corpus, stream, settings, num_splits=settings.num_splits)
            num_encoded += int(sub_chunks.num_tokens.sum())
        core, sent = torch.zeros(0, dtype=torch.int64), Tokens()
        skeleton, keyword_graph = None, None
        if settings.core_share > 0 and self.extractor is not None:
            core = core_chunks(graph, share=settings.core_share, selection=settings.core_selection, seed=settings.seed)
            keys, limit = f"{chunk_key} {sub_key}", settings.description_tokens
            skeleton, sent = self._skeleton(self.extractor, keys, chunks, core, sub_chunks, limit)
        if settings.has_keywords:
            keyword_graph, num_read = self._keywords(sub_key, sub_chunks.texts)
            num_encoded += num_read
        sent = replace(sent, encoder=sent.encoder + num_encoded)
        return KETIndex(settings, len(documents), chunks, graph, core, sub_chunks, skeleton, keyword_graph, sent)

    def _cut(
        self, corpus: str, stream: Callable[[], TokenStream], settings: KETSettings, *, num_splits: int
    ) -> tuple[str, Chunks]:
        def make() -> Chunks:
            chunks = stream().cut(settings.chunk_tokens, join=settings.join, num_splits=num_splits)
            return replace(chunks, num_tokens=self._lengths(chunks.texts), vectors=self._encode(chunks.texts))

        models = (self.tokenizer.fingerprint, self.encoder.fingerprint)
        key = self._stages.key("encoded_chunks", corpus, *models, settings.chunk_tokens, settings.join, num_splits)
        return key, self._stages.get(key, Chunks, make)

    def _skeleton(
        self, extractor: KnowledgeExtractor, keys: str, chunks: Chunks, core: Tensor, sub_chunks: Chunks, limit: int
    ) -> tuple[Skeleton, Tokens]:
        """Return the skeleton, and the number of tokens that its models processed."""
        inner = extractor.extractor if isinstance(extractor, KnowledgeCache) else extractor
        prompts = tuple(inner.prompts) if isinstance(inner, PromptedExtractor) else ()

        def make() -> tuple[Skeleton, Tokens]:
            core_texts = [chunks.texts[chunk] for chunk in core.tolist()]
            extracted = extractor.extract(core_texts)
            texts: dict[str, Any] = {"tokenizer": self.tokenizer, "description_tokens": limit}
            knowledge = merge_knowledge(extracted, passages=core.tolist(), **texts)
            entity_tokens, vectors = self._lengths(knowledge.entity_texts), self._encode(knowledge.entity_texts)
            answers = [" ".join(vars(x).values()) for each in extracted for x in (*each.entities, *each.relations)]
            prompt_tokens = sum(count_tokens(self.tokenizer, prompts))
            sent = Tokens(
                len(prompts) * int(self._lengths(core_texts).sum()) + prompt_tokens * len(core_texts),
                sum(count_tokens(self.tokenizer, answers)) if prompts else 0,
                int(entity_tokens.sum()),
            )
            relation_tokens = self._lengths(knowledge.relation_texts)
            return Skeleton(rewire(knowledge, sub_chunks), entity_tokens, vectors, relation_tokens), sent

        core_hash = hashlib.sha256(core.numpy().tobytes()).hexdigest()
        models = (self.encoder.fingerprint, extractor.fingerprint)
        key = self._stages.key("core_knowledge", keys, core_hash, limit, prompts, *models)
        return self._stages.get(key, tuple[Skeleton, Tokens], make)

    def _keywords(self, sub_key: str, texts: Sequence[str]) -> tuple[KeywordGraph, int]:
        """Return the text-keyword graph, and the number of tokens that the encoder processed."""

        def make() -> tuple[KeywordGraph, int]:
            sentences, owners, keywords = keyword_sentences(texts)
            graph = build_keyword_graph(owners, keywords, self._encode(sentences))
            return graph, int(self._lengths(sentences).sum())

        key = self._stages.key("keywords", sub_key, self.encoder.fingerprint)
        return self._stages.get(key, tuple[KeywordGraph, int], make)

    def _lengths(self, texts: Sequence[str]) -> Tensor:
        counts = count_tokens(self.tokenizer, [text + LINE_END for text in texts])
        return torch.tensor(counts, dtype=torch.int64)

    def _encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts, each distinct text only once."""
        index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        vectors = encode_texts(self.encoder, list(index)) if index else torch.zeros(0, 0)
        return vectors[torch.tensor([index[text] for text in texts], dtype=torch.int64)]


def rewire(knowledge: CorpusKnowledge, sub_chunks: Chunks) -> CorpusKnowledge:
    """Replace the links from entities and relations to chunks by links to sub-chunks.

    Source: "KET-RAG", 2025, section 5.1, "edges rewired accordingly". The paper does not say which sub-chunks of a
    chunk are linked. Here, an entity is linked to the sub-chunks that contain its name, and a relation to the
    sub-chunks that contain most of the names of its head and tail. If no sub-chunk contains a name, all sub-chunks of
    the chunk are linked.

    Args:
        knowledge: Entities and relations that are linked to chunks.
        sub_chunks: Sub-chunks of these chunks.

    Returns:
        Same entities and relations, linked to sub-chunks.
    """
    parents = sub_chunks.parent.tolist()
    sub_chunks_of = grouped(zip(parents, range(len(parents)), strict=True), max(parents, default=-1) + 1)
    texts = [f" {normalize_entity(text)} " for text in sub_chunks.texts]

    def relinked(links: Tensor, names_of: Callable[[int], Sequence[str]]) -> Tensor:
        pairs = []
        for index, chunk in links.tolist():
            names, candidates = names_of(index), sub_chunks_of[chunk]
            counts = [sum(f" {name} " in texts[sub_chunk] for name in names) for sub_chunk in candidates]
            scored = zip(candidates, counts, strict=True)
            pairs += [(index, sub_chunk) for sub_chunk, count in scored if count == max(counts)]
        return pair_tensor(pairs)

    names, ends = knowledge.names, knowledge.ends.tolist()
    return replace(
        knowledge,
        entity_links=relinked(knowledge.entity_links, lambda entity: [names[entity]]),
        relation_links=relinked(knowledge.relation_links, lambda relation: [names[end] for end in ends[relation]]),
    )


def keyword_sentences(texts: Sequence[str]) -> tuple[list[str], list[int], list[list[str]]]:
    """Split texts into sentences, and find the keywords of each sentence. Sentences without a keyword are ignored.

    Args:
        texts: Texts of the sub-chunks.

    Returns:
        Sentences, index of each sentence's text, and keywords of each sentence.

    Example:
        >>> keyword_sentences(["He did. Metz fell.", "Rome burnt."])
        (['Metz fell.', 'Rome burnt.'], [0, 1], [['metz', 'fell'], ['rome', 'burnt']])
    """
    language = detect_language(texts)
    sentences = ((i, text[slice(*span)]) for i, text in enumerate(texts) for span in split_sentences(text, language))
    rows = [(sentence, i, words) for i, sentence in sentences if (words := find_keywords(sentence, language))]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def build_keyword_graph(
    text_indices: Sequence[int], sentence_keywords: Sequence[Sequence[str]], vectors: Tensor
) -> KeywordGraph:
    """Link each keyword to the sub-chunks that contain it, and average the vectors of its sentences.

    Source: "KET-RAG", 2025, Algorithm 3, lines 11 to 15, and section 5.1. The means are normalised, so that dot
    products with normalised queries are cosines.

    Args:
        text_indices: Sub-chunk of each of the ``S`` sentences.
        sentence_keywords: Keywords of each sentence.
        vectors: Vectors of the sentences ``[S, d]``.

    Returns:
        Text-keyword graph.
    """
    sentences_of: dict[str, list[int]] = {}
    for sentence, keywords in enumerate(sentence_keywords):
        for keyword in keywords:
            sentences_of.setdefault(keyword, []).append(sentence)
    row_of: dict[tuple[int, ...], int] = {}  # row of each set of sentences
    row = [row_of.setdefault(tuple(sentences), len(row_of)) for sentences in sentences_of.values()]
    sentence_ptr = np.cumsum([0, *map(len, row_of)])
    row_sentences = np.asarray([sentence for sentences in row_of for sentence in sentences], dtype=np.int64)
    shares = np.repeat(1 / np.maximum(np.diff(sentence_ptr), 1), np.diff(sentence_ptr)).astype(np.float32)
    averaging = sparse.csr_matrix((shares, row_sentences, sentence_ptr), shape=(len(row_of), len(vectors)))
    sub_chunks = [sorted({text_indices[sentence] for sentence in sentences}) for sentences in row_of]
    return KeywordGraph(
        keywords=list(sentences_of),
        row=torch.tensor(row, dtype=torch.int64),
        vectors=torch.nn.functional.normalize(torch.from_numpy(averaging @ vectors.numpy()), dim=1),
        indptr=torch.from_numpy(np.cumsum([0, *map(len, sub_chunks)])),
        indices=torch.tensor([chunk for chunks in sub_chunks for chunk in chunks], dtype=torch.int64),
    )
