"""KET-RAG's index: its settings, the index in memory, and the builder that reads or writes it."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.checks import check_choice, check_counts, check_not_negative, check_share
from graphrerank.graphs.queries import IndexEncoder
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text import Tokenizer, count_tokens
from graphrerank.text.languages import detect_language
from graphrerank_papers.indexing.stages import Stages, encode_texts
from graphrerank_papers.ket.chunk_graph import SELECTIONS, ChunkGraph, build_chunk_graph, core_chunks
from graphrerank_papers.ket.chunks import Chunks, TokenStream
from graphrerank_papers.ket.keyword_graph import KeywordGraph, build_keyword_graph, keyword_sentences
from graphrerank_papers.ket.report import KETReport, Tokens
from graphrerank_papers.ket.skeleton import Skeleton, build_skeleton, rewire
from graphrerank_papers.knowledge.keywords import find_keywords

LINE_END = "\n"  # follows every text of a context and is counted with it


@dataclass(frozen=True)
class KETSettings:
    r"""Settings of an index.

    Attributes:
        chunk_tokens: :math:`\ell`, tokens per chunk.
        join: Whether a chunk may span documents, as in KET-RAG's experiments.
        num_neighbours: :math:`K`, even.
        core_share: :math:`\beta` in [0, 1], the share of chunks whose knowledge is extracted; 0: no skeleton.
        core_selection: ``pagerank`` or ``random``.
        seed: Seed of a random selection.
        num_splits: :math:`\tau`, number of times a chunk is halved.
        has_keywords: Whether there is a text-keyword graph.
        description_tokens: Maximum number of tokens that describe an entity or a relation.
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
            raise ValueError(f"`num_neighbours` must be a positive even number, got {self.num_neighbours}")
        check_share(core_share=self.core_share)
        check_choice(SELECTIONS, core_selection=self.core_selection)
        check_not_negative(num_splits=self.num_splits)


@dataclass(frozen=True)
class Texts:
    """Texts that can go into a context."""

    texts: Sequence[str]  # `n` strings
    num_tokens: Tensor  # `[n]` int64, of each text with the line end that follows it
    vectors: Tensor  # `[n, d]` float32


@dataclass(frozen=True)
class KETIndex:
    """An index in memory."""

    settings: KETSettings
    chunks: Chunks  # `n` chunks, as cut from the documents
    chunk_texts: Texts  # their texts, lengths and vectors
    chunk_graph: ChunkGraph  # their neighbours
    core: Tensor  # indices of the core chunks, ascending
    sub_chunks: Chunks  # `m` sub-chunks; the chunks if nothing is halved
    sub_chunk_texts: Texts  # their texts, lengths and vectors
    # entities and relations of the core chunks, linked to sub-chunks; None without core chunks
    skeleton: Skeleton | None
    entity_texts: Texts | None  # `E` entities' texts, lengths and vectors; None without skeleton
    relation_tokens: Tensor | None  # `[R]` int64, lengths of the relations' texts; None without skeleton
    keyword_graph: KeywordGraph | None  # None if it was not built
    report: KETReport  # sizes and costs


class KETIndexBuilder:
    """Builds an index stage by stage, reading finished stages from the folder.

    Source: KET-RAG, Algorithm 3. An interrupted build resumes and writes the same files (:class:`Stages`). Indexes that
    differ in some settings share the stages that do not depend on them. When a corpus grows, an ``encoder`` and an
    ``extractor`` with a cache (``VectorCache``, ``KnowledgeCache``) process the new texts only, and the index equals
    that of a first build.

    Args:
        encoder: Encoder of chunks, sentences and entities; queries need the same one.
        extractor: Extractor of entities and relations; None for indexes without a skeleton. Its ``prompts``, if it has
            any, are those that it sends with each text to a language model.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tokenizer: Tokenizer,
        encoder: IndexEncoder,
        extractor: KnowledgeExtractor | None = None,
    ) -> None:
        self._stages = Stages(folder)
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._extractor = extractor

    def build(self, documents: Sequence[str], settings: KETSettings | None = None) -> KETIndex:
        """Build the index of a corpus, or read it.

        Raises:
            ValueError: If a skeleton is requested without an extractor, a model's output does not fit, or a file of the
                folder is damaged.
        """
        settings = settings or KETSettings()
        if settings.core_share > 0 and self._extractor is None:
            raise ValueError(f"`extractor` must be given for `core_share` {settings.core_share}, got none")
        corpus, stream = hash_texts(documents).hex(), cache(lambda: TokenStream(documents, self._tokenizer))
        chunk_key, chunks, chunk_texts = self._cut(corpus, stream, settings, num_splits=0)
        sent = Tokens(encoder=int(chunk_texts.num_tokens.sum()))
        graph = self._graph(chunk_key, chunk_texts, settings.num_neighbours)
        sub_key, sub_chunks, sub_chunk_texts = chunk_key, chunks, chunk_texts
        if settings.num_splits:
            sub_key, sub_chunks, sub_chunk_texts = self._cut(corpus, stream, settings, num_splits=settings.num_splits)
            sent += Tokens(encoder=int(sub_chunk_texts.num_tokens.sum()))
        core = torch.zeros(0, dtype=torch.int64)
        prompts: tuple[str, ...] = ()
        skeleton, entity_texts, relation_tokens, keyword_graph = None, None, None, None
        if settings.core_share > 0 and self._extractor is not None:
            core = core_chunks(graph, share=settings.core_share, selection=settings.core_selection, seed=settings.seed)
            prompts = prompts_of(self._extractor)
            skeleton, entity_texts, relation_tokens, asked = self._skeleton(
                self._extractor, f"{chunk_key} {sub_key}", chunks, core, sub_chunks, settings.description_tokens
            )
            sent += asked
        if settings.has_keywords:
            keyword_graph, read = self._keywords(sub_key, sub_chunk_texts.texts)
            sent += Tokens(encoder=read)
        described = (entity_texts.num_tokens, relation_tokens) if entity_texts and relation_tokens is not None else ()
        report = KETReport(
            documents=len(documents),
            corpus_tokens=int(chunk_texts.num_tokens.sum()),
            chunks=len(chunks),
            chunk_edges=len(graph.edges),
            core_chunks=len(core),
            core_tokens=int(chunk_texts.num_tokens[core].sum()),
            sub_chunks=len(sub_chunks),
            entities=0 if skeleton is None else len(skeleton.entity_texts),
            relations=0 if skeleton is None else len(skeleton.relation_texts),
            skeleton_edges=0 if skeleton is None else len(skeleton.entity_links) + len(skeleton.relation_links),
            description_tokens=sum(int(lengths.sum()) for lengths in described),
            keywords=0 if keyword_graph is None else len(keyword_graph.keywords),
            keyword_edges=0 if keyword_graph is None else keyword_graph.num_edges,
            prompt_tokens=sum(count_tokens(self._tokenizer, prompts)),
            num_prompts=len(prompts),
            sent=sent,
        )
        return KETIndex(
            settings=settings,
            chunks=chunks,
            chunk_texts=chunk_texts,
            chunk_graph=graph,
            core=core,
            sub_chunks=sub_chunks,
            sub_chunk_texts=sub_chunk_texts,
            skeleton=skeleton,
            entity_texts=entity_texts,
            relation_tokens=relation_tokens,
            keyword_graph=keyword_graph,
            report=report,
        )

    def _cut(
        self, corpus: str, stream: Callable[[], TokenStream], settings: KETSettings, *, num_splits: int
    ) -> tuple[str, Chunks, Texts]:
        def make() -> tuple[Chunks, Tensor, Tensor]:
            chunks = stream().cut(settings.chunk_tokens, join=settings.join, num_splits=num_splits)
            return chunks, self._lengths(chunks.texts), self._encode(chunks.texts)

        models = (self._tokenizer.fingerprint, self._encoder.fingerprint)
        key = self._stages.key("chunks", corpus, *models, settings.chunk_tokens, settings.join, num_splits)
        chunks, num_tokens, vectors = self._stages.get(key, tuple[Chunks, Tensor, Tensor], make)
        return key, chunks, Texts(chunks.texts, num_tokens, vectors)

    def _graph(self, chunk_key: str, chunks: Texts, num_neighbours: int) -> ChunkGraph:
        def make() -> ChunkGraph:
            language = detect_language(chunks.texts)
            keywords = [find_keywords(text, language) for text in chunks.texts]
            return build_chunk_graph(keywords, chunks.vectors, num_neighbours=num_neighbours)

        return self._stages.get(self._stages.key("graph", chunk_key, num_neighbours), ChunkGraph, make)

    def _skeleton(
        self, extractor: KnowledgeExtractor, keys: str, chunks: Chunks, core: Tensor, sub_chunks: Chunks, limit: int
    ) -> tuple[Skeleton, Texts, Tensor, Tokens]:
        prompts = prompts_of(extractor)

        def make() -> tuple[Skeleton, Tensor, Tensor, Tensor, Tokens]:
            core_texts = [chunks.texts[chunk] for chunk in core.tolist()]
            knowledge = extractor.extract(core_texts)
            skeleton = build_skeleton(knowledge, core.tolist(), self._tokenizer, description_tokens=limit)
            skeleton = rewire(skeleton, sub_chunks)
            entity_tokens, vectors = self._lengths(skeleton.entity_texts), self._encode(skeleton.entity_texts)
            answers = [
                " ".join(asdict(entry).values())
                for chunk_knowledge in knowledge
                for entries in (chunk_knowledge.entities, chunk_knowledge.relations)
                for entry in entries
            ]
            prompt_tokens = sum(count_tokens(self._tokenizer, prompts))
            asked = Tokens(
                len(prompts) * int(self._lengths(core_texts).sum()) + prompt_tokens * len(core_texts),
                sum(count_tokens(self._tokenizer, answers)) if prompts else 0,
                int(entity_tokens.sum()),
            )
            return skeleton, entity_tokens, vectors, self._lengths(skeleton.relation_texts), asked

        core_hash = hashlib.sha256(core.numpy().tobytes()).hexdigest()
        models = (self._encoder.fingerprint, extractor.fingerprint)
        key = self._stages.key("skeleton", keys, core_hash, limit, prompts, *models)
        skeleton, entity_tokens, vectors, relation_tokens, asked = self._stages.get(
            key, tuple[Skeleton, Tensor, Tensor, Tensor, Tokens], make
        )
        return skeleton, Texts(skeleton.entity_texts, entity_tokens, vectors), relation_tokens, asked

    def _keywords(self, sub_key: str, texts: Sequence[str]) -> tuple[KeywordGraph, int]:
        """Return the text-keyword graph, and how many tokens the encoder read for it."""

        def make() -> tuple[KeywordGraph, int]:
            sentences, _, _ = keyword_sentences(texts)
            return build_keyword_graph(texts, self._encode), int(self._lengths(sentences).sum())

        key = self._stages.key("keywords", sub_key, self._encoder.fingerprint)
        return self._stages.get(key, tuple[KeywordGraph, int], make)

    def _lengths(self, texts: Sequence[str]) -> Tensor:
        counts = count_tokens(self._tokenizer, [text + LINE_END for text in texts])
        return torch.tensor(counts, dtype=torch.int64)

    def _encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts, duplicates once."""
        index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        vectors = encode_texts(self._encoder, list(index)) if index else torch.zeros(0, 0)
        return vectors[torch.tensor([index[text] for text in texts], dtype=torch.int64)]


def prompts_of(extractor: KnowledgeExtractor) -> tuple[str, ...]:
    """Return the prompts that an extractor sends to a language model with each text."""
    inner = extractor.extractor if isinstance(extractor, KnowledgeCache) else extractor
    return tuple(getattr(inner, "prompts", ()))
