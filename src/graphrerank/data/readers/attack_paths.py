"""Questions about the MITRE ATT&CK knowledge graph whose answers lie along its edges.

A sentence of a threat report, and what an analyst asks next. The sentence is that of a ``uses`` relation between an
actor or a piece of software and a technique; the relation is held out, and the answers are reached from its ends:

==============================================  =======================================================================
question                                        relevant
==============================================  =======================================================================
Which mitigations prevent this?                 the technique, and the mitigations joined to it
Who uses this software?                         the software, and the groups and campaigns joined to it
With which of their software do they do this?   the actor, the technique, and the software joined to both
==============================================  =======================================================================

Nodes are those of :func:`~graphrerank.data.readers.attack.load_attack`; edges are all relations but those between the
ends of a question. Splits go by the node from which the answers are reached, and no step from a question in test to its
answers is a step of a question in training.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphrerank.checks import UserError
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.readers.attack import (
    MIN_QUERY_CHARACTERS,
    SPLIT_SHARES,
    STRUCTURE_TYPES,
    attack_graph,
    clean_description,
    read_attack,
    split_objects,
)

MITIGATIONS = "Which mitigations prevent this?"
ACTORS = "Who uses this software?"
SOFTWARE = "With which of their software do they do this?"
MAX_ANSWERS = 4  # so that all relevant nodes fit into the top five or six

_ACTOR_TYPES, _SOFTWARE_TYPES = frozenset({"intrusion-set", "campaign"}), frozenset({"malware", "tool"})


@dataclass(frozen=True)
class PathQuestion:
    """A question, the relation that it was made of, and the way to its answers."""

    id: str  # of the relation
    sentence: str  # of the relation
    question: str  # the question about the sentence
    starts: tuple[int, ...]  # the relation's nodes from which the answers are reached; the first decides the split
    answers: tuple[int, ...]

    @property
    def shared(self) -> frozenset[Any]:
        """The sentence and the edges from ends to answers, which questions of two splits must not share."""
        return frozenset((self.sentence, *(frozenset((s, answer)) for s in self.starts for answer in self.answers)))


def load_attack_paths(path: str | Path | None = None, *, edge_share: float = 0.5, split_seed: int = 0) -> Dataset:
    """Read ATT&CK and ask questions about held-out relations whose answers lie along its edges.

    Arguments are those of :func:`~graphrerank.data.readers.attack.load_attack`; ``edge_share`` is that of the ``uses``
    relations to techniques.
    """
    if not 0 < edge_share < 1:
        raise UserError(f"`edge_share` must lie between 0 and 1, got {edge_share}")
    nodes, relations = read_attack(path)
    node_of = {o["id"]: i for i, o in enumerate(nodes)}
    types = [o["type"] for o in nodes]
    rng = np.random.default_rng(split_seed)

    behaviour = [r for r in relations if r["relation"] == "uses" and types[node_of[r["target"]]] == "attack-pattern"]
    held_out = [behaviour[i] for i in sorted(rng.permutation(len(behaviour))[round(edge_share * len(behaviour)) :])]
    held_pairs = {_ends(r, node_of) for r in held_out}
    kept = [r for r in relations if r["relation"] in STRUCTURE_TYPES | {"uses"} and _ends(r, node_of) not in held_pairs]
    edges = [(node_of[r["source"]], node_of[r["target"]]) for r in kept]
    graph = attack_graph(nodes, edges)

    neighbours: list[set[int]] = [set() for _ in nodes]
    for source, target in edges:
        neighbours[source].add(target)
        neighbours[target].add(source)
    documents = "\n".join(graph.texts)
    questions = []
    for r in held_out:
        possible = _possible(r, node_of, types, neighbours)
        if possible and len(possible[0].sentence) >= MIN_QUERY_CHARACTERS and possible[0].sentence not in documents:
            questions.append(possible[rng.integers(len(possible))])

    split_of = split_objects([o["id"] for o in nodes], rng)
    questions_of: dict[str, list[PathQuestion]] = {}
    taken: set[Any] = set()  # sentences and steps of later splits
    for split in reversed(SPLIT_SHARES):
        of_split = [q for q in questions if split_of[nodes[q.starts[0]]["id"]] == split and not taken & q.shared]
        taken.update(*(q.shared for q in of_split))
        questions_of = {split: of_split} | questions_of
    listed = [question for rows in questions_of.values() for question in rows]
    number = {question.id: i for i, question in enumerate(listed)}
    splits = {
        name: Qrels.of(
            (number[question.id], node, 1.0) for question in rows for node in (*question.starts, *question.answers)
        )
        for name, rows in questions_of.items()
    }
    texts = [f"{question.sentence} {question.question}" for question in listed]
    return Dataset("attack_paths", graph, [question.id for question in listed], texts, splits, drafted=True)


def _ends(relation: dict[str, Any], node_of: dict[str, int]) -> frozenset[int]:
    return frozenset((node_of[relation["source"]], node_of[relation["target"]]))


def _possible(
    relation: dict[str, Any], node_of: dict[str, int], types: list[str], neighbours: list[set[int]]
) -> list[PathQuestion]:
    """List the questions about a relation that have between one and ``MAX_ANSWERS`` answers."""
    source, target = node_of[relation["source"]], node_of[relation["target"]]
    sentence = clean_description(relation["text"])

    def joined(end: int, kinds: frozenset[str]) -> set[int]:
        return {n for n in neighbours[end] if types[n] in kinds}

    users = joined(source, _ACTOR_TYPES) if types[source] in _SOFTWARE_TYPES else set()
    software = joined(source, _SOFTWARE_TYPES) & neighbours[target] if types[source] in _ACTOR_TYPES else set()
    found = (
        (MITIGATIONS, (target,), joined(target, frozenset({"course-of-action"}))),
        (ACTORS, (source,), users),
        (SOFTWARE, (source, target), software),
    )
    return [
        PathQuestion(relation["id"], sentence, question, starts, tuple(sorted(answers)))
        for question, starts, answers in found
        if 1 <= len(answers) <= MAX_ANSWERS
    ]
