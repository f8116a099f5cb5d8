import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch

from graphrerank_papers.raptor.summary_tree import (
    SummaryTree,
    SummaryTreeBuilder,
    SummaryTreeSettings,
    cluster_nodes,
    quote,
)
from tests.support.encoders import HashEncoder

THEMES = ["fox dog bird", "river sea lake", "stone sand clay", "king queen duke"]
PASSAGES = [f"Title {number}. {theme} {theme} word{number}. More about it." for number in range(12) for theme in THEMES]


def build(folder: Path, encoder: HashEncoder, settings: SummaryTreeSettings | None = None, **model: Any) -> SummaryTree:
    return SummaryTreeBuilder(folder, encoder=encoder, **model).build(PASSAGES, encoder.encode(PASSAGES), settings)


@pytest.fixture
def encoder() -> HashEncoder:
    return HashEncoder(dim=64, by_word=True)


def test_clusters_are_the_themes(encoder: HashEncoder) -> None:
    clusters = cluster_nodes(encoder.encode(PASSAGES), [12] * 48, SummaryTreeSettings(num_dims=3))
    assert sorted({node for cluster in clusters for node in cluster}) == list(range(48))  # each is in one at least
    for cluster in clusters:
        assert len({node % 4 for node in cluster}) == 1
    assert len(clusters) < 24


def test_long_clusters_are_divided(encoder: HashEncoder) -> None:
    settings = SummaryTreeSettings(num_dims=3, cluster_tokens=60)
    clusters = cluster_nodes(encoder.encode(PASSAGES), [12] * 48, settings)
    assert sorted({node for cluster in clusters for node in cluster}) == list(range(48))
    sizes = sorted(map(len, clusters))
    assert sizes[len(sizes) // 2] <= 5  # words // 12; a group of at most num_dims + 1 nodes is not divided
    whole = cluster_nodes(encoder.encode(["same"] * 30), [12] * 30, settings)
    assert whole == [list(range(30))]  # cannot be divided


def test_a_tree_and_its_leaves_against_networkx(tmp_path: Path, encoder: HashEncoder) -> None:
    tree = build(tmp_path, encoder, SummaryTreeSettings(num_dims=3, membership=0.001))
    assert tree.num_passages == 48
    assert sum(tree.layers) == len(tree.texts) == len(tree.children) == len(tree.vectors)
    assert len(tree.layers) >= 1
    assert tree.report().startswith("summary tree: 48 passages; summaries by layer: ")
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
    torch.testing.assert_close(tree.vectors, encoder.encode(tree.texts))
    again = build(tmp_path, encoder, SummaryTreeSettings(num_dims=3, membership=0.001))
    assert (again.children, again.texts) == (tree.children, tree.texts)


def test_a_summary_quotes_openings_up_to_the_limit(encoder: HashEncoder) -> None:
    texts = [
        "Metz. It lies on the Moselle. It is old.",
        "Metz. It lies on the Moselle. Again.",
        "Rome. It is far away.",
    ]
    vectors = encoder.encode([texts[0], texts[0], texts[2]])
    assert quote(texts, vectors, 20) == "Metz. It lies on the Moselle. Rome. It is far away."
    assert len(quote(texts, vectors, 3).split()) == 3
    assert quote(["One two three four"], vectors[:1], 2) == "One two"


def test_a_language_models_summaries_and_its_failures(tmp_path: Path, encoder: HashEncoder) -> None:
    class Writer:
        fingerprint = "writer"

        def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
            return [read("rubbish" if "queen" in text else json.dumps({"summary": "On beasts"})) for text in questions]

    tree = build(tmp_path, encoder, SummaryTreeSettings(max_layers=1, num_dims=3), language_model=Writer())
    quoted = build(tmp_path, encoder, SummaryTreeSettings(max_layers=1, num_dims=3))
    assert tree.children == quoted.children
    for text, quotation, children in zip(tree.texts, quoted.texts, tree.children, strict=True):
        assert text == (quotation if any(child % 4 == 3 for child in children) else "On beasts")


def test_small_corpora_have_no_summaries(tmp_path: Path, encoder: HashEncoder) -> None:
    for texts in ([], ["one"], ["same"] * 30):
        tree = SummaryTreeBuilder(tmp_path, encoder=encoder).build(texts, encoder.encode(texts))
        assert sum(tree.layers) <= 1
    with pytest.raises(ValueError, match=r"`membership` must lie in \(0, 1\], got 0.0"):
        SummaryTreeSettings(membership=0.0)
    with pytest.raises(ValueError, match="`summary_tokens` must be a positive integer, got 0"):
        SummaryTreeSettings(summary_tokens=0)
