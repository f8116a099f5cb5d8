"""Building KET-RAG's index: chunks and their graph, the skeleton of the core chunks, the text-keyword graph."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.files import write_text
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.text import Tokenizer, count_tokens
from graphrerank.text.languages import detect_language
from graphrerank_papers.indexing.encode import IndexEncoder, encode_texts
from graphrerank_papers.indexing.stages import StageData, Stages
from graphrerank_papers.ket.chunk_graph import ChunkGraph, build_chunk_graph, core_chunks
from graphrerank_papers.ket.chunks import Chunks, TokenStream
from graphrerank_papers.ket.costs import Tokens
from graphrerank_papers.ket.index import KETIndex, KETSettings, Texts
from graphrerank_papers.ket.keyword_graph import KeywordGraph, build_keyword_graph, keyword_sentences
from graphrerank_papers.ket.report import KETReport
from graphrerank_papers.ket.skeleton import Skeleton, build_skeleton, rewire
from graphrerank_papers.knowledge.keywords import find_keywords
from graphrerank_papers.knowledge.language_model_extractor import LanguageModelKnowledgeExtractor
from graphrerank_papers.knowledge.two_stage_extractor import TwoStageKnowledgeExtractor

FORMAT = 1  # increment when the content of a stage changes
LINE_END = "\n"  # follows every text of a context and is counted with it


class KETIndexBuilder:
    """Builds an index stage by stage, reading finished stages from the folder.

    Source: KET-RAG, Algorithm 3. An interrupted build resumes and writes the same files (:class:`Stages`). Indexes that
    differ in some settings share the stages that do not depend on them. When a corpus grows, an ``encoder`` and an
    ``extractor`` with a cache (``VectorCache``, ``KnowledgeCache``) process the new texts only, and the index equals
    that of a first build.

    Args:
        encoder: Encoder of chunks, sentences and entities; queries need the same one.
        extractor: Extractor of entities and relations; None for indexes without a skeleton.
        prompts: Prompts sent with each text to a language model, for the report. None: the prompt of a
            ``LanguageModelKnowledgeExtractor``, and none for any other extractor.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tokenizer: Tokenizer,
        encoder: IndexEncoder,
        extractor: KnowledgeExtractor | None = None,
        prompts: Sequence[str] | None = None,
    ) -> None:
        self._stages = Stages(folder)
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._extractor = extractor
        self._prompts = prompts_of(extractor) if prompts is None else tuple(prompts)

    def build(self, documents: Sequence[str], settings: KETSettings | None = None) -> KETIndex:
        """Build the index of a corpus, or read it.

        Raises:
            ValueError: If a skeleton is requested without an extractor, a model's output does not fit, or a file of the
                folder is damaged.
        """
        settings = settings or KETSettings()
        if settings.core_share > 0 and self._extractor is None:
            raise ValueError(f"`extractor` must be given for `core_share` {settings.core_share}, got none")
        prompts = self._prompts if settings.core_share > 0 else ()
        return _Build(
            self._stages, self._tokenizer, self._encoder, self._extractor, prompts, documents, settings
        ).index()


def prompts_of(extractor: KnowledgeExtractor | None) -> tuple[str, ...]:
    """Return the prompts that an extractor sends to a language model with each text."""
    inner = extractor.extractor if isinstance(extractor, KnowledgeCache) else extractor
    return inner.prompts if isinstance(inner, LanguageModelKnowledgeExtractor | TwoStageKnowledgeExtractor) else ()


@dataclass
class _Build:
    """The stages of one index."""

    stages: Stages
    tokenizer: Tokenizer
    encoder: IndexEncoder
    extractor: KnowledgeExtractor | None
    prompts: tuple[str, ...]
    documents: Sequence[str]
    settings: KETSettings

    @cached_property
    def _stream(self) -> TokenStream:
        return TokenStream(self.documents, self.tokenizer)

    @cached_property
    def _corpus_hash(self) -> str:
        return hash_texts(self.documents).hex()

    def index(self) -> KETIndex:
        settings = self.settings
        chunk_key, chunks, chunk_texts, tokens = self._cut(0)
        graph_key, graph = self._graph(chunk_key, chunks, chunk_texts)
        sub_key, sub_chunks, sub_chunk_texts = chunk_key, chunks, chunk_texts
        if settings.num_splits:
            sub_key, sub_chunks, sub_chunk_texts, sent = self._cut(settings.num_splits)
            tokens = tokens + sent
        core = torch.zeros(0, dtype=torch.int64)
        skeleton, entity_texts, relation_tokens, keyword_graph = None, None, None, None
        keys = {"chunks": chunk_key, "graph": graph_key, "sub_chunks": sub_key}
        if settings.core_share > 0:
            core = core_chunks(graph, share=settings.core_share, selection=settings.core_selection, seed=settings.seed)
            keys["skeleton"], skeleton, entity_texts, relation_tokens, sent = self._skeleton(
                chunk_key, chunks, core, sub_key, sub_chunks
            )
            tokens = tokens + sent
        if settings.has_keywords:
            keys["keywords"], keyword_graph, sent = self._keywords(sub_key, sub_chunk_texts.texts)
            tokens = tokens + sent
        report = KETReport(
            documents=len(self.documents),
            corpus_tokens=int(chunk_texts.num_tokens.sum()),
            chunks=len(chunks),
            chunk_edges=len(graph.edges),
            core_chunks=len(core),
            core_tokens=int(chunk_texts.num_tokens[core].sum()),
            sub_chunks=len(sub_chunks),
            entities=0 if skeleton is None else len(skeleton.entity_texts),
            relations=0 if skeleton is None else len(skeleton.relation_texts),
            skeleton_edges=0 if skeleton is None else len(skeleton.entity_links) + len(skeleton.relation_links),
            description_tokens=0 if entity_texts is None else int(entity_texts.num_tokens.sum()),
            relation_tokens=0 if relation_tokens is None else int(relation_tokens.sum()),
            keywords=0 if keyword_graph is None else len(keyword_graph.keywords),
            keyword_edges=0 if keyword_graph is None else keyword_graph.num_edges,
            prompt_tokens=self._prompt_tokens,
            num_prompts=len(self.prompts),
            sent=tokens,
        )
        manifest = {"format": FORMAT, "settings": asdict(settings), "stages": keys, "report": asdict(report)}
        manifest_key = self.stages.key("ket", *keys.values(), repr(settings))
        write_text(self.stages.folder / f"{manifest_key}.json", json.dumps(manifest, indent=2) + "\n")
        return KETIndex(
            settings=settings,
            num_documents=len(self.documents),
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

    def _cut(self, num_splits: int) -> tuple[str, Chunks, Texts, Tokens]:
        settings = self.settings

        def make() -> StageData:
            chunks = self._stream.cut(settings.chunk_tokens, join=settings.join, num_splits=num_splits)
            arrays = {"indptr": chunks.indptr, "documents": chunks.documents, "parent": chunks.parent}
            arrays |= {"num_tokens": self._lengths(chunks.texts), "vectors": self._encode(chunks.texts)}
            return arrays, {"texts": list(chunks.texts)}

        corpus = (FORMAT, self._corpus_hash, self.tokenizer.fingerprint, self.encoder.fingerprint)
        key = self.stages.key("chunks", *corpus, settings.chunk_tokens, settings.join, num_splits)
        arrays, content = self.stages.get(key, ("indptr", "documents", "parent", "num_tokens", "vectors"), make)
        texts = Texts(content["texts"], arrays.pop("num_tokens"), arrays.pop("vectors"))
        return key, Chunks(texts.texts, **arrays), texts, Tokens(encoder=int(texts.num_tokens.sum()))

    def _graph(self, chunk_key: str, chunks: Chunks, texts: Texts) -> tuple[str, ChunkGraph]:
        def make() -> StageData:
            language = detect_language(chunks.texts)
            keywords = [find_keywords(text, language) for text in chunks.texts]
            graph = build_chunk_graph(keywords, texts.vectors, num_neighbours=self.settings.num_neighbours)
            return {"lexical": graph.lexical, "semantic": graph.semantic}, {}

        key = self.stages.key("graph", chunk_key, self.settings.num_neighbours)
        arrays, _ = self.stages.get(key, ("lexical", "semantic"), make)
        return key, ChunkGraph(**arrays)

    def _skeleton(
        self, chunk_key: str, chunks: Chunks, core: Tensor, sub_key: str, sub_chunks: Chunks
    ) -> tuple[str, Skeleton, Texts, Tensor, Tokens]:
        extractor, limit = self.extractor, self.settings.description_tokens
        assert extractor is not None

        def make() -> StageData:
            core_texts = [chunks.texts[chunk] for chunk in core.tolist()]
            knowledge = extractor.extract(core_texts)
            skeleton = build_skeleton(knowledge, core.tolist(), self.tokenizer, description_tokens=limit)
            skeleton = rewire(skeleton, sub_chunks)
            arrays = {
                "ends": skeleton.ends,
                "entity_links": skeleton.entity_links,
                "relation_links": skeleton.relation_links,
                "entity_tokens": self._lengths(skeleton.entity_texts),
                "entity_vectors": self._encode(skeleton.entity_texts),
                "relation_tokens": self._lengths(skeleton.relation_texts),
            }
            answers = [
                " ".join(asdict(entry).values())
                for chunk_knowledge in knowledge
                for entries in (chunk_knowledge.entities, chunk_knowledge.relations)
                for entry in entries
            ]
            num_prompts = len(self.prompts)
            content = {
                "names": list(skeleton.names),
                "entities": list(skeleton.entity_texts),
                "relations": list(skeleton.relation_texts),
                "read": num_prompts * int(self._lengths(core_texts).sum()) + self._prompt_tokens * len(core_texts),
                "wrote": sum(count_tokens(self.tokenizer, answers)) if num_prompts else 0,
            }
            return arrays, content

        core_hash = hashlib.sha256(core.numpy().tobytes()).hexdigest()
        models = (self.encoder.fingerprint, extractor.fingerprint)
        key = self.stages.key("skeleton", chunk_key, sub_key, core_hash, limit, self.prompts, *models)
        names = ("ends", "entity_links", "relation_links", "entity_tokens", "entity_vectors", "relation_tokens")
        arrays, content = self.stages.get(key, names, make)
        links = (arrays["ends"], arrays["entity_links"], arrays["relation_links"])
        skeleton = Skeleton(content["names"], content["entities"], content["relations"], *links)
        entities = Texts(skeleton.entity_texts, arrays["entity_tokens"], arrays["entity_vectors"])
        sent = Tokens(content["read"], content["wrote"], int(entities.num_tokens.sum()))
        return key, skeleton, entities, arrays["relation_tokens"], sent

    def _keywords(self, sub_key: str, texts: Sequence[str]) -> tuple[str, KeywordGraph, Tokens]:
        def make() -> StageData:
            graph = build_keyword_graph(texts, self._encode)
            sentences, _, _ = keyword_sentences(texts)
            arrays = {"row": graph.row, "vectors": graph.vectors, "indptr": graph.indptr, "indices": graph.indices}
            return arrays, {"keywords": list(graph.keywords), "read": int(self._lengths(sentences).sum())}

        key = self.stages.key("keywords", sub_key, self.encoder.fingerprint)
        arrays, content = self.stages.get(key, ("row", "vectors", "indptr", "indices"), make)
        return key, KeywordGraph(content["keywords"], **arrays), Tokens(encoder=content["read"])

    def _lengths(self, texts: Sequence[str]) -> Tensor:
        counts = count_tokens(self.tokenizer, [text + LINE_END for text in texts])
        return torch.tensor(counts, dtype=torch.int64)

    def _encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts, duplicates once."""
        index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        vectors = encode_texts(self.encoder, list(index)) if index else torch.zeros(0, 0)
        return vectors[torch.tensor([index[text] for text in texts], dtype=torch.int64)]

    @property
    def _prompt_tokens(self) -> int:
        return sum(count_tokens(self.tokenizer, list(self.prompts)))
