from pathlib import Path

from graphrerank.cli.http_service import fastest_format, model_info
from graphrerank.graphs.edge_types import EDGE_TYPES, edge_type_of
from graphrerank.models import parse_manifest
from graphrerank.models.manifest import read_manifest
from tests.support import ROOT


def test_machine_code_is_served_where_there_is_any(tmp_path: Path) -> None:
    content = read_manifest(ROOT / "src" / "graphrerank" / "pretrained" / "attack").content
    files = {"model.pt": "0" * 64, "model.aot.pt2": "0" * 64}
    both = parse_manifest({**content, "artifact": {**content.get("artifact", {}), "sha256": files}}, "somewhere")
    plain = parse_manifest(
        {**content, "artifact": {**content.get("artifact", {}), "sha256": {"model.pt": "0" * 64}}}, "x"
    )
    assert fastest_format(both, "cpu") == "aot"
    assert fastest_format(both, "cuda") is None
    assert fastest_format(plain, "cpu") is None


def test_what_is_said_of_types_of_edges() -> None:
    content = read_manifest(ROOT / "src" / "graphrerank" / "pretrained" / "attack").content
    typed = {**content, "model": {**content["model"], "arguments": {"num_edge_types": 5}}}
    for manifest, are_read in ((parse_manifest(content, "a"), False), (parse_manifest(typed, "b"), True)):
        info = model_info(manifest)
        assert info["name"] == content["name"]
        assert info["edge_types"]["are_read"] is are_read
        names = info["edge_types"]["names"]
        assert list(names) == ["reference", "entity", "adjacency", "similarity", "other"]
        assert {EDGE_TYPES[edge_type_of(name)] for name in names["reference"]} == {"reference"}
        assert names["other"] == ["other"]
