from typing import Any

import pytest

from graphrerank.graphs.model_inputs import QUERIES
from graphrerank.models.manifest import parse_manifest
from graphrerank_papers.ea_graphrag.adapter_manifest import AdapterManifest
from tests.support.manifests import make_manifest

ADAPTER = {"num_features": 9, "num_selected": 4}


def test_the_entry_point_gives_the_kind_of_manifest() -> None:
    adapter = parse_manifest(make_manifest("complexity_adapter", ADAPTER), "here")
    assert isinstance(adapter, AdapterManifest)
    assert (adapter.inputs, adapter.input_shapes) == (QUERIES, {"features": "[n, 9]"})
    assert (adapter.num_features, adapter.thresholds.low, adapter.thresholds.high) == (9, -1.0, 2.0)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"thresholds": {"low": 0.5, "high": 0.5}}, "`thresholds`: `low` must be below `high`"),
        ({"thresholds": {"low": float("nan"), "high": 0.5}}, "`low` must be below `high`, both finite"),
        ({"syntax": {"name": "dependency", "fingerprint": "s"}}, r"needs an entry `syntax\.feature_names`"),
        ({"questions": {"cats": [5]}}, r"`questions\.cats\.0`: Input should be a valid string"),
    ],
)
def test_a_broken_entry_is_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_manifest(make_manifest("complexity_adapter", ADAPTER, **entries), "here")
