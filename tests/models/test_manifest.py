"""What a manifest may hold: each entry is checked once, when it is read, and refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphrerank.calibration.logistic import Calibration
from graphrerank.core.model_inputs import PAIRS, SCORES, VECTORS, token_states
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.models.manifest import MANIFEST, parse_manifest, read_manifest, write_manifest
from tests.support.manifests import make_manifest

READS_VECTORS = {"name": "gatv2_reranker", "arguments": {"features": "full"}}
ENCODER = {"choice": "minilm", "name": "small", "fingerprint": "e" * 64, "dim": 6}


@pytest.mark.parametrize("name", sorted(path.parent.name for path in PRETRAINED.glob(f"*/{MANIFEST}")))
def test_what_ships_says_what_its_file_says(name: str) -> None:
    content = json.loads((PRETRAINED / name / MANIFEST).read_text(encoding="utf-8"))
    manifest = read_manifest(PRETRAINED / name)
    assert manifest.content == content
    entries = manifest.model_dump(mode="json", include={"name", "operators", "encoder", "artifact", "retriever"})
    assert all(content[key] == content[key] | entry for key, entry in entries.items() if isinstance(entry, dict))
    assert manifest.calibration.slope == content["calibration"]["slope"]
    reads_types = bool(content["model"]["arguments"].get("num_edge_types"))
    assert (manifest.inputs, manifest.embedding_dim) == (SCORES.with_edge_types() if reads_types else SCORES, 0)


def test_what_a_model_reads() -> None:
    pairs = parse_manifest(make_manifest("granker_head", {}), "here")
    assert (pairs.inputs, pairs.embedding_dim) == (PAIRS, 0)
    layers = parse_manifest(make_manifest("granker_layers", {"train_last_layers": 2}), "here")
    assert layers.inputs == token_states(2)
    entries = {"encoder": ENCODER, "pair_encoder": None}
    vectors = parse_manifest(make_manifest("gatv2_reranker", {"features": "paper"}, **entries), "here")
    assert (vectors.inputs, vectors.embedding_dim) == (VECTORS, 6)


def test_entries_come_and_go(tmp_path: Path) -> None:
    manifest = parse_manifest(make_manifest("granker_head", {}, note="kept"), "here")
    logistic = {"method": "logistic", "slope": 2.0, "intercept": 0.0}
    changed = manifest.with_entries(calibration=logistic)
    assert changed.calibration == Calibration(slope=2.0, intercept=0.0)
    assert changed.without("calibration") == manifest == parse_manifest(manifest.content, "here")
    write_manifest(tmp_path, changed.content)
    assert read_manifest(tmp_path).content == changed.content
    assert read_manifest(tmp_path).content["note"] == "kept"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"name": 5}, "the manifest's `name`: Input should be a valid string, got '5'"),
        ({"retriever": {"choice": "dense"}}, r"the manifest needs an entry `retriever\.feature_names`, found none"),
        ({"data": {}, "operators": []}, r"needs an entry `data\.fingerprint`, found none; the manifest's `operators`"),
        (
            {"operators": {"gcs": 0.5}},
            r"`operators` of the manifest must contain exactly gcs and ppr, got \{'gcs': 0.5\}",
        ),
        ({"operators": {"gcs": 1e-9, "ppr": 0.5}}, r"`operators\.gcs`: .* greater than or equal to 0\.001, got"),
        ({"encoder": {**ENCODER, "dim": 2**40}}, r"`encoder\.dim`: .* less than or equal to 1048576"),
        ({"pair_encoder": None}, "the manifest needs an entry `pair_encoder`, because the model uses it"),
        ({"model": READS_VECTORS}, "the manifest needs an entry `encoder`, because the model uses it"),
        ({"calibration": {"method": "magic"}}, r"`calibration\.method`: Input should be 'logistic', got 'magic'"),
        (
            {"model": {"name": "granker_layers"}},
            "arguments in the manifest do not fit granker_layers: .*'train_last_layers'",
        ),
        ({"fine_tuned": {"folder": "../a", "fingerprint": "f"}}, r"`fine_tuned\.folder`: must be a plain name"),
        ({"artifact": {"sha256": {"../../secret": "f" * 64}}}, "must be a plain name, .* got '../../secret'"),
        ({"model": {"name": "gatv2_reranker", "arguments": {"num_layers": 1e9}}}, r"`num_layers` must lie in \["),
        ({"encoder": {**ENCODER, "arguments": {"batch_size": 1e8}}}, r"`batch_size` must lie in \["),
        ({"config": json.loads('{"a":' * 33 + "1" + "}" * 33)}, "at most 32 levels"),
    ],
)
def test_a_broken_entry_is_refused_by_file_and_name(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^here/manifest\.json: .*{message}"):
        parse_manifest(make_manifest("granker_head", {}, **entries), "here/manifest.json")


def test_a_manifest_without_the_validation_split_is_refused_where_it_is_needed() -> None:
    manifest = parse_manifest(make_manifest("granker_head", {}), "here")
    with pytest.raises(ValueError, match=r"here: the manifest needs an entry `config\.batches\.val_split`"):
        _ = manifest.val_split
    split = manifest.with_entries(config={"batches": {"val_split": "val"}, "seed": 3})
    assert split.val_split == "val"
