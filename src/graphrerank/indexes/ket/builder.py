"""Building KET-RAG's index: chunks and their graph, the skeleton of the core chunks, the text-keyword graph."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.files import write_text
from graphrerank.indexes.chunks import Chunks, TokenStream
from graphrerank.indexes.encode import IndexEncoder
from graphrerank.indexes.ket.chunk_graph import ChunkGraph, build_chunk_graph, core_chunks
from graphrerank.indexes.ket.costs import Tokens
from graphrerank.indexes.ket.index import KETIndex, KETSettings, Texts
from graphrerank.indexes.ket.keyword_graph import KeywordGraph, build_keyword_graph, keyword_sentences
from graphrerank.indexes.ket.report import KETReport
from graphrerank.indexes.ket.skeleton import Skeleton, build_skeleton, rewire
from graphrerank.indexes.stages import Made, Stages
from graphrerank.knowledge import KnowledgeCache, KnowledgeExtractor, LanguageModelKnowledgeExtractor
from graphrerank.text import Tokenizer, count_tokens, find_keywords

FORMAT = 1  # of the files: a change of what a stage holds must change it
LINE_END = "\n"  # behind every text of a context; counted with it


class KETIndexBuilder:
    """Builds an index stage by stage; what was built before is read from the folder.

    Source: KET-RAG, Algorithm 3. Stages are chunks, the chunks' graph, sub-chunks, the core chunks' knowledge and the
    text-keyword graph, each whole or not there (:class:`Stages`): a build that was stopped goes on where it was, and
    ends with the same files. Indexes that differ in some settings share the stages that do not depend on them.

    For a corpus that grew, stages are made again, but an ``encoder`` and an ``extractor`` that remember texts (a
    ``VectorCache``, a ``KnowledgeCache``) are asked for the new ones alone, and the index is that of a first build.

    Args:
        folder: Where the stages lie.
        tokenizer: What a token is.
        encoder: Of chunks, sentences and entities; queries must be encoded alike.
        extractor: Tells entities and relations; None for indexes without a skeleton.
        prompts: What a language model is asked for each text, for the report: each counts, and the text once with each.
            None: the prompt of a ``LanguageModelKnowledgeExtractor``, and none of any other.
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

        Args:
            documents: ``D`` texts.
            settings: What to make; the defaults when None.

        Raises:
            ValueError: If a skeleton is wanted and there is no extractor, a model gives what does not fit, or a file
                of the folder is damaged.
        """
        models = (self._tokenizer, self._encoder, self._extractor, self._prompts)
        return _Build(self._stages, *models, documents, settings or KETSettings()).index()


def prompts_of(extractor: KnowledgeExtractor | None) -> tuple[str, ...]:
    """Tell what an extractor asks a language model for each text; nothing where it asks none."""
    inner = extractor.extractor if isinstance(extractor, KnowledgeCache) else extractor
    return (inner.prompt,) if isinstance(inner, LanguageModelKnowledgeExtractor) else ()


class _Build:
    """One build: its stages' keys and what they hold."""

    def __init__(
        self,
        stages: Stages,
        tokenizer: Tokenizer,
        encoder: IndexEncoder,
        extractor: KnowledgeExtractor | None,
        prompts: tuple[str, ...],
        documents: Sequence[str],
        settings: KETSettings,
    ) -> None:
        self._settings = settings
        self._prompts = prompts if settings.core_share > 0 else ()
        if self._settings.core_share > 0 and extractor is None:
            raise ValueError(f"`extractor` must be given for `core_share` {self._settings.core_share}, got none")
        self._stages, self._tokenizer, self._encoder, self._extractor = stages, tokenizer, encoder, extractor
        self._documents = documents
        sha = hashlib.sha256()
        for text in documents:
            sha.update(len(text).to_bytes(8, "little") + text.encode("utf-8", "surrogatepass"))
        self._corpus = (FORMAT, sha.hexdigest(), tokenizer.fingerprint)

    @cached_property
    def _stream(self) -> TokenStream:
        return TokenStream(self._documents, self._tokenizer)

    def index(self) -> KETIndex:
        """Make what is missing, and put all together."""
        settings = self._settings
        chunk_key, chunks, chunk_texts, tokens = self._cut(0)
        graph_key, graph = self._graph(chunk_key, chunks, chunk_texts)
        core = torch.zeros(0, dtype=torch.int64)
        if settings.core_share > 0:
            core = core_chunks(graph, share=settings.core_share, selection=settings.core_selection, seed=settings.seed)
        sub_key, sub_chunks, sub_chunk_texts = chunk_key, chunks, chunk_texts
        if settings.num_splits:
            sub_key, sub_chunks, sub_chunk_texts, spent = self._cut(settings.num_splits)
            tokens = tokens + spent
        skeleton, entity_texts, relation_tokens, keyword_graph = None, None, None, None
        keys = {"chunks": chunk_key, "graph": graph_key, "sub_chunks": sub_key}
        if settings.core_share > 0:
            keys["skeleton"], skeleton, entity_texts, relation_tokens, spent = self._skeleton(
                chunk_key, chunks, core, sub_key, sub_chunks
            )
            tokens = tokens + spent
        if settings.has_keywords:
            keys["keywords"], keyword_graph, spent = self._keywords(sub_key, sub_chunk_texts.texts)
            tokens = tokens + spent
        report = KETReport(
            documents=len(self._documents),
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
            num_prompts=len(self._prompts),
            sent=tokens,
        )
        manifest = {"format": FORMAT, "settings": asdict(settings), "stages": keys, "report": asdict(report)}
        self._write_manifest(manifest)
        return KETIndex(
            settings=settings,
            num_documents=len(self._documents),
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
        settings = self._settings
        depends = (*self._corpus, self._encoder.fingerprint, settings.chunk_tokens, settings.join, num_splits)

        def make() -> Made:
            chunks = self._stream.cut(settings.chunk_tokens, join=settings.join, num_splits=num_splits)
            arrays = {"indptr": chunks.indptr, "documents": chunks.documents, "parent": chunks.parent}
            arrays |= {"num_tokens": self._lengths(chunks.texts), "vectors": self._encode(chunks.texts)}
            return arrays, {"texts": list(chunks.texts)}

        key = self._stages.key("chunks", *depends)
        names = ("indptr", "documents", "parent", "num_tokens", "vectors")
        arrays, content = self._stages.get(key, names, make)
        texts = content["texts"]
        chunks = Chunks(texts, arrays["indptr"], arrays["documents"], arrays["parent"])
        found = Texts(texts, arrays["num_tokens"], arrays["vectors"])
        return key, chunks, found, Tokens(encoder=int(found.num_tokens.sum()))

    def _graph(self, chunk_key: str, chunks: Chunks, texts: Texts) -> tuple[str, ChunkGraph]:
        def make() -> Made:
            words = [find_keywords(text) for text in chunks.texts]
            graph = build_chunk_graph(words, texts.vectors, num_neighbours=self._settings.num_neighbours)
            return {"lexical": graph.lexical, "semantic": graph.semantic}, {}

        key = self._stages.key("graph", chunk_key, self._settings.num_neighbours)
        arrays, _ = self._stages.get(key, ("lexical", "semantic"), make)
        return key, ChunkGraph(arrays["lexical"], arrays["semantic"])

    def _skeleton(
        self, chunk_key: str, chunks: Chunks, core: Tensor, sub_key: str, sub_chunks: Chunks
    ) -> tuple[str, Skeleton, Texts, Tensor, Tokens]:
        extractor, limit = self._extractor, self._settings.description_tokens
        assert extractor is not None

        def make() -> Made:
            asked = [chunks.texts[chunk] for chunk in core.tolist()]
            knowledge = extractor.extract(asked)
            written = [
                " ".join(asdict(entry).values())
                for told in knowledge
                for entries in (told.entities, told.relations)
                for entry in entries
            ]
            skeleton = build_skeleton(knowledge, core.tolist(), self._tokenizer, description_tokens=limit)
            skeleton = rewire(skeleton, sub_chunks)
            arrays = {
                "ends": skeleton.ends,
                "entity_links": skeleton.entity_links,
                "relation_links": skeleton.relation_links,
                "entity_tokens": self._lengths(skeleton.entity_texts),
                "entity_vectors": self._encode(skeleton.entity_texts),
                "relation_tokens": self._lengths(skeleton.relation_texts),
            }
            asks = len(self._prompts)
            read = asks * int(self._lengths(asked).sum()) + self._prompt_tokens * len(asked)
            wrote = sum(count_tokens(self._tokenizer, written))
            texts = {
                "names": list(skeleton.names),
                "entities": list(skeleton.entity_texts),
                "relations": list(skeleton.relation_texts),
            }
            return arrays, {**texts, "read": read, "wrote": wrote if asks else 0}

        core_hash = hashlib.sha256(core.numpy().tobytes()).hexdigest()
        models = (self._encoder.fingerprint, extractor.fingerprint)
        key = self._stages.key("skeleton", chunk_key, sub_key, core_hash, limit, self._prompts, *models)
        names = ("ends", "entity_links", "relation_links", "entity_tokens", "entity_vectors", "relation_tokens")
        arrays, content = self._stages.get(key, names, make)
        links = (arrays["ends"], arrays["entity_links"], arrays["relation_links"])
        skeleton = Skeleton(content["names"], content["entities"], content["relations"], *links)
        entities = Texts(skeleton.entity_texts, arrays["entity_tokens"], arrays["entity_vectors"])
        spent = Tokens(content["read"], content["wrote"], int(entities.num_tokens.sum()))
        return key, skeleton, entities, arrays["relation_tokens"], spent

    def _keywords(self, sub_key: str, texts: Sequence[str]) -> tuple[str, KeywordGraph, Tokens]:
        def make() -> Made:
            graph = build_keyword_graph(texts, self._encode)
            sentences, _, _ = keyword_sentences(texts)
            arrays = {"row": graph.row, "vectors": graph.vectors, "indptr": graph.indptr, "indices": graph.indices}
            return arrays, {"keywords": list(graph.keywords), "read": int(self._lengths(sentences).sum())}

        key = self._stages.key("keywords", sub_key, self._encoder.fingerprint)
        arrays, content = self._stages.get(key, ("row", "vectors", "indptr", "indices"), make)
        return key, KeywordGraph(content["keywords"], **arrays), Tokens(encoder=content["read"])

    def _lengths(self, texts: Sequence[str]) -> Tensor:
        counts = count_tokens(self._tokenizer, [text + LINE_END for text in texts])
        return torch.tensor(counts, dtype=torch.int64)

    def _encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts, each different one once."""
        number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        vectors = self._encoder.encode(list(number)).float() if number else torch.zeros(0, 0)
        if vectors.dim() != 2 or len(vectors) != len(number) or not torch.isfinite(vectors).all():
            raise ValueError(
                f"`encoder` must give finite [{len(number)}, d] vectors, got a tensor of shape {list(vectors.shape)}"
            )
        return vectors[torch.tensor([number[text] for text in texts], dtype=torch.int64)]

    @property
    def _prompt_tokens(self) -> int:
        return sum(count_tokens(self._tokenizer, list(self._prompts)))

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        key = self._stages.key("ket", *manifest["stages"].values(), repr(self._settings))
        write_text(self._stages.folder / f"{key}.json", json.dumps(manifest, indent=2) + "\n")
