"""Every cell of docs/notebook.md, in order, in one namespace."""

from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.pages import blocks_of

PAGE = ROOT / "docs" / "notebook.md"
assert PAGE.name == "notebook.md"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHRERANK_CACHE", str(tmp_path / "cache"))
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(PAGE):
        exec(compile(block.code, str(block), "exec"), names)
    assert {"base", "mine"} <= set(map(str, names["result"].to_pandas().to_string().split()))  # type: ignore[attr-defined]
    assert (tmp_path / "my_reranker" / "model.safetensors").is_file()
    assert (tmp_path / "report" / "report.html").is_file()
    assert "PR@10" in capsys.readouterr().out
