from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch

from graphrerank.core import Queries
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank_papers import raptor
from graphrerank_papers.raptor import RAPTORSearch, SummaryTree, build_summary_tree, cluster_nodes, quote
from tests.support.encoders import HashEncoder
from tests.support.graphs import after_vector_search, keeps_vector_search

THEMES = ["fox dog bird", "river sea lake", "stone sand clay", "king queen duke"]
PASSAGES = [f"Title {number}. {theme} {theme} word{number}. More about it." for number in range(12) for theme in THEMES]


ENCODER = HashEncoder(dim=64, by_word=True)
QUERIES = ["fox and sea", "a queen of sand", "word7", "stone word3"]
Build = Callable[..., Pipeline]


@pytest.fixture(autouse=True)
def small_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raptor, "NUM_DIMS", 3)


def build(folder: Path, texts: Sequence[str] = PASSAGES, **model: Any) -> SummaryTree:
    return build_summary_tree(texts, ENCODER.encode(texts), folder=folder, encoder=ENCODER, **model)


def test_clusters_are_the_themes_and_long_ones_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = ENCODER.encode(PASSAGES)
    short = cluster_nodes(vectors, [12] * 48)
    monkeypatch.setattr(raptor, "CLUSTER_TOKENS", 60)
    divided = cluster_nodes(vectors, [12] * 48)
    for clusters in (short, divided):
        assert sorted({node for cluster in clusters for node in cluster}) == list(range(48))  # each is in one at least
    assert all(len({node % 4 for node in cluster}) == 1 for cluster in short)
    assert len(short) < 24
    sizes = sorted(map(len, divided))
    assert sizes[len(sizes) // 2] <= 5  # words // 12; a group of at most num_dims + 1 nodes is not divided
    whole = cluster_nodes(ENCODER.encode(["same"] * 30), [12] * 30)
    assert whole == [list(range(30))]  # cannot be divided


def test_a_tree_and_its_leaves_against_networkx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raptor, "MEMBERSHIP", 0.001)
    tree = build(tmp_path)
    assert tree.num_passages == 48
    assert sum(tree.layers) == len(tree.texts) == len(tree.children) == len(tree.vectors)
    assert len(tree.layers) >= 1
    graph = networkx.DiGraph([(48 + s, child) for s, children in enumerate(tree.children) for child in children])
    bounds = [0, 48]
    for count in tree.layers:
        bounds.append(bounds[-1] + count)
    for summary, leaves in enumerate(tree.leaves):
        assert leaves == sorted(node for node in networkx.descendants(graph, 48 + summary) if node < 48)
        layer = next(i for i in range(2, len(bounds)) if 48 + summary < bounds[i])
        assert all(bounds[layer - 2] <= child < bounds[layer - 1] for child in tree.children[summary])
    for node in range(48):
        assert graph.in_degree(node) >= 1
    torch.testing.assert_close(tree.vectors, ENCODER.encode(tree.texts))
    again = build(tmp_path)
    assert (again.children, again.texts) == (tree.children, tree.texts)


def test_a_summary_quotes_openings_up_to_the_limit() -> None:
    metz, rome = "Metz. It lies on the Moselle.", "Rome. It is far away."
    texts, vectors = [f"{metz} It is old.", f"{metz} Again.", rome], ENCODER.encode([metz, metz, rome])
    assert quote(texts, vectors, 20) == f"{metz} {rome}"
    assert len(quote(texts, vectors, 3).split()) == 3
    assert quote(["One two three four"], vectors[:1], 2) == "One two"


def test_a_language_models_summaries_and_its_failures(
    tmp_path: Path, scripted_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raptor, "MAX_LAYERS", 1)
    writer = scripted_model(lambda _, text: "rubbish" if "queen" in text else {"summary": "On beasts"})
    tree = build(tmp_path, language_model=writer)
    quoted = build(tmp_path)
    assert tree.children == quoted.children
    for text, quotation, children in zip(tree.texts, quoted.texts, tree.children, strict=True):
        assert text == (quotation if any(child % 4 == 3 for child in children) else "On beasts")


def test_small_corpora_have_no_summaries(tmp_path: Path) -> None:
    for texts in ([], ["one"], ["same"] * 30):
        tree = build(tmp_path, texts)
        assert sum(tree.layers) <= 1


@pytest.fixture
def pipeline(tmp_path: Path) -> Build:
    def make(**settings: Any) -> Pipeline:
        step = partial(RAPTORSearch, folder=tmp_path, **settings)
        return after_vector_search(step, PASSAGES, ENCODER, budget=20)

    return make


def by_hand(tree: SummaryTree, query: str, *, search: str, branches: int) -> list[int]:
    """Section 3 for one query, as it is written."""
    vector = ENCODER.encode([query])[0]
    texts = [*PASSAGES, *tree.texts]
    score = [float(ENCODER.encode([text])[0] @ vector) for text in texts]
    best = lambda nodes: sorted(nodes, key=lambda node: (-round(score[node], 6), node))  # noqa: E731
    if search == "collapsed":
        listed: list[int] = []
        for node in best(range(len(texts))):
            leaves, open_nodes = set(), [node]
            while open_nodes:
                own = open_nodes.pop()
                if own < len(PASSAGES):
                    leaves.add(own)
                else:
                    open_nodes += tree.children[own - len(PASSAGES)]
            listed += best(leaves)
        return list(dict.fromkeys(listed))[:20]
    first = len(texts) - tree.layers[-1]
    layer = list(range(first, len(texts)))
    while layer[0] >= len(PASSAGES):
        layer = sorted({child for node in best(layer)[:branches] for child in tree.children[node - len(PASSAGES)]})
    return best(layer)[:20]


@pytest.mark.parametrize(("search", "branches"), [("collapsed", 10), ("tree", 1), ("tree", 2)])
def test_against_the_description_query_by_query(search: str, branches: int, pipeline: Build, tmp_path: Path) -> None:
    tree = build(tmp_path)
    found = pipeline(search=search, num_branches=branches).retrieve(ENCODER.queries(QUERIES)).ranking.nodes
    assert tree.layers[0] > 2
    differs = 0
    for row, query in enumerate(QUERIES):
        expected = by_hand(tree, query, search=search, branches=branches)
        assert [node for node in found[row].tolist() if node >= 0] == expected
        dense = torch.argsort(-(ENCODER.encode(PASSAGES) @ ENCODER.encode([query])[0]), stable=True)[:20].tolist()
        differs += expected != dense
    assert differs >= 2


def test_a_query_without_a_vector_keeps_its_ranking(pipeline: Build) -> None:
    assert keeps_vector_search(pipeline(), Queries(["q"], [""], torch.zeros(1, 64)))


def test_settings_out_of_range_are_refused(pipeline: Build) -> None:
    with pytest.raises(ValueError, match=r"`search` must be one of \['collapsed', 'tree'\], got 'flat'"):
        pipeline(search="flat")
