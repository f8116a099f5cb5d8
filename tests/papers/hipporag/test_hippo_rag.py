import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch

from graphrerank.graphs import Queries
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank_papers.hipporag.fact_graph import FactGraph
from graphrerank_papers.hipporag.hippo_rag import HippoRAGSearch
from tests.support.graphs import after_vector_search, keeps_vector_search

Build = Callable[..., Pipeline]


class Words:
    """Capitalised words are entities."""

    fingerprint = "words"

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        return [Knowledge.from_names(re.findall(r"[A-Z]\w+", text)) for text in texts]


@pytest.fixture
def pipeline(tmp_path: Path, hash_encoder: Any, statement_extractor: Any) -> Build:
    def make(passages: Sequence[str], **settings: Any) -> Pipeline:
        parts = {"folder": tmp_path, "extractor": statement_extractor, "query_extractor": Words()}
        step = partial(HippoRAGSearch, **parts, **settings)
        return after_vector_search(step, passages, hash_encoder, budget=20)

    return make


@pytest.mark.parametrize("settings", [{}, {"node_specificity": False, "restart_prob": 0.2}])
def test_against_the_description_query_by_query(
    settings: dict[str, Any], pipeline: Build, make_fact_passages: Callable[..., list[str]], hash_encoder: Any,
    fact_graph: Callable[..., FactGraph],
) -> None:  # fmt: skip
    passages = make_fact_passages(num_names=60)
    index = fact_graph(passages, synonymy_threshold=0.7)
    assert index.num_synonyms > 10
    names = hash_encoder.encode(index.facts.spellings)
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(names)))
    for (one, other), count in zip(index.facts.related.tolist(), index.facts.num_statements.tolist(), strict=True):
        graph.add_edge(one, other, weight=float(count))
    for one in graph:
        for other in range(one):
            cosine = float(names[one] @ names[other])
            if cosine >= 0.7:
                graph.add_edge(one, other, weight=max(cosine, graph.get_edge_data(one, other, {"weight": 0})["weight"]))
    holders: dict[int, set[int]] = {}
    for entity, passage in index.facts.entity_links.tolist():
        holders.setdefault(entity, set()).add(passage)
    queries = hash_encoder.queries(["who knew Anna and Berta?", "Metz", "nobody", "Xaver or Ylva or Zita"])
    system = pipeline(passages, synonymy_threshold=0.7, **settings)
    found = system.retrieve(queries).ranking
    assert keeps_vector_search(system, queries, [2])  # no entity in the query
    for row in (0, 1, 3):
        linked = {
            int((names @ hash_encoder.encode([name])[0]).argmax())
            for name in re.findall(r"[A-Z]\w+", queries.texts[row])
        }
        specific = settings.get("node_specificity", True)
        reset = {entity: 1 / len(holders[entity]) if specific else 1.0 for entity in linked}
        damping = 1 - settings.get("restart_prob", 0.5)
        mass = networkx.pagerank(graph, alpha=damping, personalization=reset, dangling=reset, tol=1e-9)
        score = [sum(mass[e] for e, held in holders.items() if passage in held) for passage in range(len(passages))]
        expected = torch.tensor(sorted((share for share in score if share > 1e-7), reverse=True)[:20])
        kept = found.scores[row][found.nodes[row] >= 0]
        torch.testing.assert_close(kept[: len(expected)], expected, atol=2e-5, rtol=0)
        own = torch.tensor([score[node] for node in found.nodes[row].tolist() if node >= 0])
        torch.testing.assert_close(kept, own, atol=2e-5, rtol=0)
        assert len(kept) > 3


def test_no_entities_and_no_queries(pipeline: Build, hash_encoder: Any) -> None:
    system = pipeline(["nothing", "nobody"])
    queries = Queries(["q"], ["Metz"], hash_encoder.encode(["Metz"]))
    assert keeps_vector_search(system, queries)
    assert system.retrieve(queries.block(0, 0)).ranking.nodes.shape == (0, 20)


def test_a_setting_out_of_range_is_refused(pipeline: Build, fact_passages: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"`restart_prob` must lie in \(0, 1\], got 0.0"):
        pipeline(fact_passages, restart_prob=0.0)
