from pathlib import Path

from graphrerank.cli.http_service import fastest_format
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
