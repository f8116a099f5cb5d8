"""Manifests as training writes them."""

from typing import Any


def make_manifest(model: str, arguments: dict[str, Any], /, **entries: Any) -> dict[str, Any]:
    """A manifest of a model's name and arguments, with some entries replaced."""
    manifest: dict[str, Any] = {"name": "test-model", "model": {"name": model, "arguments": arguments}}
    if model == "complexity_adapter":
        names = [f"feature {place}" for place in range(arguments["num_features"])]
        manifest |= {
            "features": names[: arguments["num_selected"]],
            "syntax": {"name": "dependency", "fingerprint": "s" * 64, "feature_names": names},
            "thresholds": {"low": -1.0, "high": 2.0},
        }
    else:
        manifest |= {
            "features": ["pair_vector", "degree"],
            "data": {"choice": "cats", "fingerprint": "c" * 64},
            "operators": {"gcs": 0.5, "ppr": 0.5},
            "retriever": {"choice": "hybrid", "feature_names": ["base_score"]},
            "pair_encoder": {"fingerprint": "p" * 64, "dim": 8},
        }
    return manifest | entries
