import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data.vector_cache import VectorCache
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.text import WordTokenizer, count_tokens
from graphrerank_papers.ket.chunks import Chunks
from graphrerank_papers.ket.index import KETIndexBuilder, KETSettings, Tokens, rewire
from graphrerank_papers.ket.retrieval import KETRetrieval
from graphrerank_papers.knowledge.corpus_knowledge import merge_knowledge
from graphrerank_papers.knowledge.language_model import LanguageModelKnowledgeExtractor

MakeDocuments = Callable[..., list[str]]
SETTINGS = KETSettings(chunk_tokens=24, num_splits=1, core_share=0.5)


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.fixture
def parts(hash_encoder: Any, name_extractor: Any) -> dict[str, Any]:
    return {"tokenizer": WordTokenizer(), "encoder": hash_encoder, "extractor": name_extractor}


@pytest.fixture
def builder(tmp_path: Path, parts: dict[str, Any]) -> KETIndexBuilder:
    return KETIndexBuilder(tmp_path / "ket", **parts)


def test_a_second_build_asks_no_model_and_settings_share_stages(
    builder: KETIndexBuilder, hash_encoder: Any, name_extractor: Any, make_documents: MakeDocuments, tmp_path: Path
) -> None:
    documents = make_documents(12)
    first = builder.build(documents, SETTINGS)
    before, asked, extracted = content(tmp_path / "ket"), len(hash_encoder.asked), len(name_extractor.asked)
    second = builder.build(documents, SETTINGS)
    assert (len(hash_encoder.asked), len(name_extractor.asked)) == (asked, extracted)
    assert content(tmp_path / "ket") == before
    assert (second.sizes, second.sent) == (first.sizes, first.sent)
    assert KETRetrieval(second)(torch.eye(6)).texts == KETRetrieval(first)(torch.eye(6)).texts
    builder.build(documents, replace(SETTINGS, num_neighbours=4, core_share=0.0))
    assert len(hash_encoder.asked) == asked
    builder.build(documents, replace(SETTINGS, core_share=1.0))
    assert len(name_extractor.asked) == extracted + 12
    assert "word" in "".join(hash_encoder.asked[asked:])  # of the entities that are new


def test_goes_on_where_it_was_stopped(
    tmp_path: Path, parts: dict[str, Any], make_documents: MakeDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, calls, stops_at = make_documents(12), 0, -1

    def build(folder: str) -> dict[str, bytes]:
        KETIndexBuilder(tmp_path / folder, **parts).build(documents, SETTINGS)
        return content(tmp_path / folder)

    def stopping(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == stops_at + 1:
                raise KeyboardInterrupt
            return call(*args, **kwargs)

        return counted

    unbroken = build("unbroken")
    for name, method in (("encoder", "encode"), ("extractor", "extract")):
        monkeypatch.setattr(parts[name], method, stopping(getattr(parts[name], method)))
    for name in ("save_tensors", "write_checked_json"):
        monkeypatch.setattr(
            f"graphrerank_papers.indexing.{name}", stopping(getattr(sys.modules["graphrerank_papers.indexing"], name))
        )
    for stops_at in range(12):
        calls, folder = 0, tmp_path / f"broken{stops_at}"
        with pytest.raises(KeyboardInterrupt):
            build(folder.name)
        assert set(content(folder)) < set(unbroken) if folder.exists() else stops_at <= 1
        assert build(folder.name) == unbroken


def test_a_corpus_that_grows_is_a_first_build(
    tmp_path: Path, parts: dict[str, Any], hash_encoder: Any, make_documents: MakeDocuments
) -> None:
    documents, cached = make_documents(16), VectorCache(hash_encoder, tmp_path / "vectors")
    remembering = KETIndexBuilder(tmp_path / "grown", **{**parts, "encoder": cached})
    remembering.build(documents[:12], SETTINGS)
    asked = len(hash_encoder.asked)
    grown = remembering.build(documents, SETTINGS)
    new = len(hash_encoder.asked) - asked
    assert new < len(set(hash_encoder.asked)) / 2
    at_once = KETIndexBuilder(tmp_path / "at_once", **parts).build(documents, SETTINGS)
    assert (grown.sizes, grown.sent) == (at_once.sizes, at_once.sent)
    files = content(tmp_path / "grown")
    assert all(files[name] == data for name, data in content(tmp_path / "at_once").items())


def test_sizes_and_what_was_sent(
    tmp_path: Path, builder: KETIndexBuilder, hash_encoder: Any, name_extractor: Any
) -> None:
    texts = [f"Metz{i} saw Nancy{i} and Trier{i} there beside river{i}." for i in range(10)]  # 8 tokens, each different
    name_extractor.prompts = ("List the entities of this text.", "List the relations.")
    builder.extractor = KnowledgeCache(name_extractor, tmp_path / "knowledge")
    index = builder.build(texts, KETSettings(chunk_tokens=8, num_splits=1, core_share=0.5))
    sent, words = index.sent, WordTokenizer()
    sizes = {"documents": 10, "tokens": 80, "chunks": 10, "core chunks": 5, "sub-chunks": 20, "entities": 15}
    sizes |= {"relations": 10, "keywords": 4 * 10 + 2, "edges of keywords": 6 * 10}
    assert sizes.items() <= index.sizes.items()
    assert sent.encoder == sum(count_tokens(words, hash_encoder.asked))
    prompts = sum(count_tokens(words, name_extractor.prompts))
    assert sent.model_input == sum(2 * count + prompts for count in count_tokens(words, name_extractor.asked))
    told = name_extractor.extract(list(name_extractor.asked))
    written = [" ".join(vars(x).values()) for knowledge in told for x in (*knowledge.entities, *knowledge.relations)]
    assert sent.model_output == sum(count_tokens(words, written))


def test_prompts_of_a_language_model(scripted_model: Any) -> None:
    model, triples = scripted_model(lambda system, question: {}), shipped_prompt("ea_graphrag_triples")
    asking = LanguageModelKnowledgeExtractor(model, prompt=Prompt("p", "{text}", system="List them."))
    assert asking.prompts == ("List them.",)
    twice = LanguageModelKnowledgeExtractor(model, prompt=Prompt("e", "Names: {text}"), relations=triples)
    assert twice.prompts == ("Names:", triples.wording)


def test_without_a_language_model_nothing_is_asked(
    tmp_path: Path, hash_encoder: Any, make_documents: MakeDocuments
) -> None:
    builder = KETIndexBuilder(tmp_path, tokenizer=WordTokenizer(), encoder=hash_encoder)
    index = builder.build(make_documents(3), replace(SETTINGS, core_share=0.0, has_keywords=False, num_splits=0))
    assert index.sent == Tokens(encoder=index.sizes["tokens"])
    assert (index.skeleton, index.keyword_graph, len(index.core), index.sizes["keywords"]) == (None, None, 0, 0)
    with pytest.raises(ValueError, match=r"`extractor` is required with `core_share` 0.5, got None"):
        builder.build(make_documents(3), SETTINGS)
    with pytest.raises(ValueError, match="`num_neighbours` must be a positive even number, got 3"):
        KETSettings(num_neighbours=3)


@pytest.mark.parametrize("documents", [[], [""], ["Metz."], ["Metz.", "", "the of."]])
def test_small_corpora(documents: Sequence[str], builder: KETIndexBuilder) -> None:
    index = builder.build(documents, SETTINGS)
    found = KETRetrieval(index)(torch.ones(2, 6))
    assert found.texts[0] == found.texts[1]
    assert ("Metz" in found.texts[0]) == ("Metz." in documents)
    assert found.ranking.nodes.shape[0] == 2


def test_links_go_to_the_sub_chunks_with_the_most_of_the_names() -> None:
    entities = (Entity("Metz", "CITY", ""), Entity("Trier", "CITY", ""))
    knowledge = Knowledge(entities, (Relation("Metz", "near", "Trier", "Metz lies near Trier."),))
    merged = merge_knowledge([knowledge])
    assert merged.entity_links.tolist() == [[0, 0], [1, 0]]
    sub_chunks = Chunks(
        ["Metz lies on the Moselle", "as Trier does", "Metz and Trier"],
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([0, 0, 0]),
        torch.tensor([0, 0, 0]),
    )
    halved = rewire(merged, sub_chunks)
    assert halved.entity_links.tolist() == [[0, 0], [0, 2], [1, 1], [1, 2]]
    assert halved.relation_links.tolist() == [[0, 2]]
