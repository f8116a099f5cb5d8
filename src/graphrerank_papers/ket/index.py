"""KET-RAG's index: its settings, the index in memory, and the builder that reads or writes it."""

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
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text import Tokenizer, count_tokens, normalize_entity, split_sentences
from graphrerank.text.languages import detect_language
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative, check_share
from graphrerank_papers.indexing import Stages, encode_texts
from graphrerank_papers.ket.chunks import SELECTIONS, ChunkGraph, Chunks, TokenStream, build_chunk_graph, core_chunks
from graphrerank_papers.knowledge.corpus_knowledge import CorpusKnowledge, grouped, merge_knowledge, pair_tensor
from graphrerank_papers.knowledge.keywords import find_keywords

LINE_END = "\n"  # follows every text of a context and is counted with it
# US dollars per million tokens of GPT-4o-mini and of text-embedding-3-small, KET-RAG's models
MODEL_INPUT_PRICE, MODEL_OUTPUT_PRICE, ENCODER_PRICE = 0.15, 0.60, 0.02


@dataclass(frozen=True)
class KETSettings:
    """Settings of an index."""

    chunk_tokens: int = 1200  # l: tokens per chunk
    join: bool = True  # whether a chunk may span documents, as in KET-RAG's experiments
    num_neighbours: int = 2  # K, even
    core_share: float = 0.8  # beta in [0, 1]: share of chunks whose knowledge is extracted; 0: no skeleton
    core_selection: str = "pagerank"  # or `random`
    seed: int = 0  # of a random selection
    num_splits: int = 3  # tau: number of times a chunk is halved
    has_keywords: bool = True  # whether there is a text-keyword graph
    description_tokens: int = 100  # maximum number of tokens that describe an entity or a relation

    def __post_init__(self) -> None:
        check_counts(chunk_tokens=self.chunk_tokens, description_tokens=self.description_tokens)
        if self.num_neighbours < 2 or self.num_neighbours % 2:
            raise UserError(f"`num_neighbours` must be a positive even number, got {self.num_neighbours}")
        check_share(core_share=self.core_share)
        check_choice(SELECTIONS, core_selection=self.core_selection)
        check_not_negative(num_splits=self.num_splits)


@dataclass(frozen=True)
class KeywordGraph:
    """Keywords, their vectors and their sub-chunks.

    Keywords that occur in the same sentences share a row: about half of a corpus's words occur in a single one.
    """

    keywords: Sequence[str]  # `W` strings, in order of first occurrence
    row: Tensor  # `[W]` int64, each keyword's row, in order of first occurrence
    vectors: Tensor  # `[G, d]` float32, the normalised mean vector of the sentences that contain the keyword
    indptr: Tensor  # `[G + 1]` int64; keywords of row `i` occur in the sub-chunks `indices[indptr[i]:indptr[i + 1]]`
    indices: Tensor  # `[M]` int64 sub-chunk indices, ascending within a row


@dataclass(frozen=True)
class Tokens:
    """Tokens sent to models and written by them."""

    model_input: int = 0  # read by the language model
    model_output: int = 0  # written by it
    encoder: int = 0  # read by the encoder

    @property
    def dollars(self) -> float:
        """The cost of the tokens in US dollars, at the prices of the paper's models."""
        language_model = self.model_input * MODEL_INPUT_PRICE + self.model_output * MODEL_OUTPUT_PRICE
        return (language_model + self.encoder * ENCODER_PRICE) / 1e6


@dataclass(frozen=True)
class Skeleton:
    """Knowledge of the core chunks."""

    knowledge: CorpusKnowledge  # `E` entities and `R` relations, linked to sub-chunks
    entity_tokens: Tensor  # `[E]` int64, lengths of the entities' texts
    entity_vectors: Tensor  # `[E, d]` float32
    relation_tokens: Tensor  # `[R]` int64, lengths of the relations' texts


@dataclass(frozen=True)
class KETIndex:
    """An index in memory."""

    settings: KETSettings
    num_documents: int
    chunks: Chunks  # `n` chunks, as cut from the documents
    chunk_graph: ChunkGraph  # their neighbours
    core: Tensor  # indices of the core chunks, ascending
    sub_chunks: Chunks  # `m` sub-chunks; the chunks if nothing is halved
    skeleton: Skeleton | None  # None without core chunks
    keyword_graph: KeywordGraph | None  # None if it was not built
    sent: Tokens  # tokens that the models read and wrote, including those whose results were cached

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of nodes, edges and tokens by name."""
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
    """Builds an index stage by stage, reading finished stages from the folder.

    Source: KET-RAG, Algorithm 3. An interrupted build resumes and writes the same files (:class:`Stages`). Indexes that
    differ in some settings share the stages that do not depend on them. Without a skeleton there is no ``extractor``.
    """

    folder: str | Path
    _: KW_ONLY
    tokenizer: Tokenizer
    encoder: IndexEncoder
    extractor: KnowledgeExtractor | None = None

    def __post_init__(self) -> None:
        self._stages = Stages(self.folder)

    def build(self, documents: Sequence[str], settings: KETSettings | None = None) -> KETIndex:
        """Build the index of a corpus, or read it."""
        settings = settings or KETSettings()
        if settings.core_share > 0 and self.extractor is None:
            raise UserError(f"`extractor` must be given for `core_share` {settings.core_share}, got none")
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
        """Return the skeleton, and the tokens that its models read and wrote."""
        inner = extractor.extractor if isinstance(extractor, KnowledgeCache) else extractor
        prompts = tuple(getattr(inner, "prompts", ()))  # sent to a language model with each text

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
        """Return the text-keyword graph, and how many tokens the encoder read for it."""

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
        """Encode texts, duplicates once."""
        index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        vectors = encode_texts(self.encoder, list(index)) if index else torch.zeros(0, 0)
        return vectors[torch.tensor([index[text] for text in texts], dtype=torch.int64)]


def rewire(knowledge: CorpusKnowledge, sub_chunks: Chunks) -> CorpusKnowledge:
    """Link entities and relations to sub-chunks instead of the chunks that these were cut from.

    Source: KET-RAG, section 5.1, "edges rewired accordingly". The paper does not say to which sub-chunks of a chunk: we
    take those with the most of the names, which are the entity's, or those of the relation's two ends.
    """
    parents = sub_chunks.parent.tolist()
    sub_chunks_of = grouped(zip(parents, range(len(parents)), strict=True), max(parents, default=-1) + 1)
    texts = [f" {normalize_entity(text)} " for text in sub_chunks.texts]

    def relinked(links: Tensor, names_of: Callable[[int], Sequence[str]]) -> Tensor:
        pairs = []
        for index, chunk in links.tolist():
            names, own = names_of(index), sub_chunks_of[chunk]
            counts = [sum(f" {name} " in texts[sub_chunk] for name in names) for sub_chunk in own]
            pairs += [(index, sub_chunk) for sub_chunk, held in zip(own, counts, strict=True) if held == max(counts)]
        return pair_tensor(pairs)

    names, ends = knowledge.names, knowledge.ends.tolist()
    return replace(
        knowledge,
        entity_links=relinked(knowledge.entity_links, lambda entity: [names[entity]]),
        relation_links=relinked(knowledge.relation_links, lambda relation: [names[end] for end in ends[relation]]),
    )


def keyword_sentences(texts: Sequence[str]) -> tuple[list[str], list[int], list[list[str]]]:
    """Split texts into sentences with a keyword; return them, and the text index and the keywords of each."""
    language = detect_language(texts)
    found = ((i, text[slice(*span)]) for i, text in enumerate(texts) for span in split_sentences(text, language))
    rows = [(sentence, i, words) for i, sentence in found if (words := find_keywords(sentence, language))]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def build_keyword_graph(
    text_indices: Sequence[int], sentence_keywords: Sequence[Sequence[str]], vectors: Tensor
) -> KeywordGraph:
    """Link each keyword to the sub-chunks that contain it, and average the vectors of its sentences.

    Source: KET-RAG, Algorithm 3, lines 11 to 15, and section 5.1. Means are normalised, for retrieval by cosine.
    """
    keyword_places: dict[str, list[int]] = {}
    for sentence, keywords in enumerate(sentence_keywords):
        for keyword in keywords:
            keyword_places.setdefault(keyword, []).append(sentence)
    row_of: dict[tuple[int, ...], int] = {}  # row of each set of sentences
    row = [row_of.setdefault(tuple(places), len(row_of)) for places in keyword_places.values()]
    sentence_ptr = np.cumsum([0, *map(len, row_of)])
    row_sentences = np.asarray([sentence for places in row_of for sentence in places], dtype=np.int64)
    shares = np.repeat(1 / np.maximum(np.diff(sentence_ptr), 1), np.diff(sentence_ptr)).astype(np.float32)
    averaging = sparse.csr_matrix((shares, row_sentences, sentence_ptr), shape=(len(row_of), len(vectors)))
    sub_chunks = [sorted({text_indices[sentence] for sentence in places}) for places in row_of]
    return KeywordGraph(
        keywords=list(keyword_places),
        row=torch.tensor(row, dtype=torch.int64),
        vectors=torch.nn.functional.normalize(torch.from_numpy(averaging @ vectors.numpy()), dim=1),
        indptr=torch.from_numpy(np.cumsum([0, *map(len, sub_chunks)])),
        indices=torch.tensor([chunk for chunks in sub_chunks for chunk in chunks], dtype=torch.int64),
    )
