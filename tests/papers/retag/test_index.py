from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank_papers.retag.index import (
    Communities,
    ReTAGIndex,
    ReTAGReport,
    ReTAGSettings,
    Rows,
    Sentences,
    Subgraph,
)
from graphrerank_papers.retag.topics import Topics
from tests.support.retag_index import same


def make_index(num_topics: int = 1) -> ReTAGIndex:
    """Four entities; the general graph has a pair that was split off a community of three, and one of one."""
    graphs = [Subgraph(torch.arange(4), torch.tensor([[0, 1], [1, 2]]), torch.ones(2))]
    graphs += [Subgraph(torch.tensor([1, 2]), torch.tensor([[1, 2]]), torch.ones(1))] * num_topics
    graph = torch.tensor([0, 0, 0, *range(1, num_topics + 1)])
    communities = Communities(
        graph=graph,
        level=torch.tensor([0, 0, 1] + [0] * num_topics),
        parent=torch.tensor([-1, -1, 0] + [-1] * num_topics),
        members=Rows.of([[0, 1, 2], [3], [0, 1]] + [[1, 2]] * num_topics),
        titles=["a", "d", "ab"] + ["bc"] * num_topics,
        texts=["A met B. B met C.", "D.", "A met B."] + ["B met C."] * num_topics,
        num_tokens=torch.tensor([6, 1, 3] + [3] * num_topics),
        vectors=torch.eye(3 + num_topics),
        sentences=Rows.of([[0, 1], [2], [0]] + [[1]] * num_topics),
        sources=Rows.of([[0, 1], [1], [0]] + [[1]] * num_topics),
        named=Rows.of([[0, 1, 2], [3], [0, 1]] + [[1, 2]] * num_topics),
    )
    topic_vectors = torch.eye(3 + num_topics)[:num_topics]
    names = [f"topic {number}" for number in range(num_topics)]
    return ReTAGIndex(
        settings=ReTAGSettings(num_topics=num_topics),
        passage_ids=["p", "q"],
        entities=["A", "B", "C", "D"],
        topics=Topics(names, [["met"]] * num_topics, topic_vectors, torch.zeros(3 + num_topics), 0.5, 0.25),
        graphs=graphs,
        communities=communities,
        sentences=Sentences(["A met B.", "B met C.", "D."], torch.tensor([0, 1, 1]), torch.tensor([3, 3, 1])),
        report=ReTAGReport(2, 7, 4, 2, 1, 0),
    )


@pytest.mark.parametrize("num_topics", [0, 2])
def test_an_index_comes_back_as_it_was_saved(tmp_path: Path, num_topics: int) -> None:
    index = make_index(num_topics)
    for _ in range(2):  # the second time over what is there
        index.save(tmp_path / "index")
    assert same(ReTAGIndex.load(tmp_path / "index"), index)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="missing or damaged index"):
        ReTAGIndex.load(tmp_path / "none")
    make_index().save(tmp_path / "index")
    strings = tmp_path / "index" / "index.json"
    whole = strings.read_text(encoding="utf-8")
    for damaged, message in (
        (whole[:-9], "damaged"),
        (whole.replace('"titles"', '"names"'), "damaged"),
    ):
        strings.write_text(damaged, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            ReTAGIndex.load(tmp_path / "index")
    strings.write_text(whole, encoding="utf-8")
    (tmp_path / "index" / "index.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"index\.safetensors: damaged"):
        ReTAGIndex.load(tmp_path / "index")


def test_a_level_holds_each_entity_once() -> None:
    communities = make_index().communities
    assert communities.num_levels(0) == 2
    assert communities.at_level(0, 0).tolist() == [0, 1]
    assert communities.at_level(0, 1).tolist() == communities.at_level(0, 9).tolist() == [1, 2]
    assert communities.at_level(1, 0).tolist() == [3]
    assert communities.num_levels(2) == 0
    with pytest.raises(ValueError, match="`level` must not be negative, got -1"):
        communities.at_level(0, -1)


def test_community_graph() -> None:
    index = make_index()
    graph = index.community_graph(torch.tensor([3, 2, 0]))
    assert graph.node_ids == ["1.0.3", "0.1.2", "0.0.0"]
    assert list(graph.texts) == ["B met C.", "A met B.", "A met B. B met C."]
    assert graph.indptr.tolist() == [0, 0, 1, 2]  # parent and child alone
    assert graph.entities is not None
    _, partner = graph.neighbours(torch.tensor([0]))
    assert sorted(partner.tolist()) == [1, 2, 2]  # by B; by B and C
    assert torch.equal(graph.embedding, index.communities.vectors[[3, 2, 0]])  # type: ignore[arg-type]


def test_community_graph_of_nothing() -> None:
    graph = make_index().community_graph(torch.zeros(0, dtype=torch.int64))
    assert (graph.num_nodes, graph.num_edges) == (0, 0)


def test_topics_compare_what_is_left_without_the_centre() -> None:
    topics = replace(make_index(2).topics, centre=torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]))
    found = topics.similarity(torch.tensor([[3.0, 4.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]]))
    assert torch.allclose(found, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    assert make_index(0).topics.similarity(torch.ones(2, 3)).shape == (2, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_topics": -1}, {"coverage": 0.0}, {"coverage": 1.1}, {"num_terms": 0}, {"resolution": 0.0},
        {"max_community": 0}, {"min_component": 0}, {"context_tokens": 0}, {"summary_tokens": 0}, {"centrality": 1.5},
        {"description_tokens": 0},
    ],
)  # fmt: skip
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"`{next(iter(settings))}` must"):
        ReTAGSettings(**settings)
