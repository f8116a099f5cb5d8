import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphrerank import GraphReranker
from graphrerank.models.checkpoint import PRETRAINED, Checkpoint
from graphrerank.models.manifest import parse_manifest
from graphrerank.rerank.model_card import model_card

HUB_ID = "someone/reranker"


def test_the_card_has_the_entries_of_the_manifest_and_measures_of_runs(tmp_path: Path) -> None:
    manifest = json.loads((PRETRAINED / "attack" / "manifest.json").read_text())
    manifest["calibration"] = {
        "method": "logistic",
        "slope": 1.0,
        "intercept": 0.0,
        "fitted": {"datasets": ["attack"], "split": "val", "pairs": 900, "ece": 0.01234},
    }
    manifest |= {"command": "graphrerank train seed=2", "parameters": {"all": 12345, "trained": 12345}}
    systems = {"attack": {"PR@5": 0.6449, "PR@5/multi": 0.1, "nDCG@10": 0.827, "interval": {}, "tied_share": 0.0}}
    toy = {"split": "test", "queries": 2062, "systems": systems}
    (tmp_path / "metrics.json").write_text(json.dumps({"datasets": {"toy": toy}}))
    card = model_card(parse_manifest(manifest, "attack"), HUB_ID, license_name="apache-2.0", runs=[tmp_path])
    for expected in (
        '---\nlicense: "apache-2.0"\nlibrary_name: graphrerank\n',
        f"GraphReranker.from_pretrained('{HUB_ID}')",
        "`gatv2_reranker` of graphrerank, with 12,345 parameters",
        "It reads no vectors",
        *(f"- `{name}`" for name in manifest["features"]),
        "- attack, fingerprint `e0907122f705`",
        "graphrerank train seed=2",
        "| data set/split | PR@10 | PR@10/multi |",
        "| attack/test | 0.7003 | 0.7003 | 0.5597 |",
        "| logistic | val | 900 | 0.01234 |",
        "### toy\n\n2,062 queries of test",
        "| attack | 64.5 | 82.7 |",
        "Weights: apache-2.0.",
        f"torch {manifest['versions']['torch']}",
    ):
        assert expected in card
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(ValueError, match=r"metrics.json: expected the measures of a run of graphrerank evaluate"):
        model_card(parse_manifest(manifest, "attack"), HUB_ID, runs=[tmp_path])


def test_the_card_of_a_model_that_reads_vectors(make_checkpoint: Callable[..., Checkpoint]) -> None:
    card = model_card(make_checkpoint(features="paper").reranker, HUB_ID)
    assert "query_vector=query_vector, vectors=vectors" in card
    assert "The checkpoint has no measures." in card
    assert "No licence was stated" in card
    assert not any(absent in card for absent in ("license:", "edge_types", "## Calibration"))


def test_save_writes_the_card(tmp_path: Path) -> None:
    folder = GraphReranker.from_pretrained("base").save(tmp_path / "mine", license_name="mit")
    assert {file.name for file in folder.iterdir()} == {"README.md", "manifest.json", "model.safetensors"}
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"GraphReranker.from_pretrained('{folder}')" in card
    assert "# mine\n" in card
    assert GraphReranker.from_pretrained(folder).feature_names
