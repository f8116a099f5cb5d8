"""docs/ten_minutes.md: its commands, one after another, on a few pages; fewer questions and epochs than there."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support import ROOT
from tests.support.commands import run_script
from tests.support.running import running

pytestmark = pytest.mark.slow  # MiniLM and a training

PAGE = (ROOT / "docs" / "ten_minutes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINES = [line for language, block in BLOCKS if not language for line in block.splitlines()]
FEWER = {"data.drafted=1500": "data.drafted=60", "data.drafted=100": "data.drafted=40", "max_epochs=3": "max_epochs=1"}
NOTES = ("python.md", "installing.md", "glossary.md")


def test_the_page(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in NOTES:
        shutil.copy(ROOT / "docs" / name, notes)
    faq = [{"id": "gpu", "title": "GPU", "text": "Neither training nor serving needs a GPU."}]
    (notes / "faq.json").write_text(json.dumps(faq))
    query = json.loads(next(shlex.split(line)[-1] for line in LINES if line.startswith("curl")))
    served, shown = 0, {}
    for line in LINES:
        command = shlex.split(line, comments=True)
        if command[0] in ("pip", "curl"):
            continue
        assert command[0] == "graphrerank"
        arguments = [FEWER.get(argument, argument).replace("max_epochs=3", "max_epochs=1") for argument in command[1:]]
        if arguments[0] == "serve":
            assert served_results(tmp_path, arguments[1:], query)
            served += 1
        else:
            shown[line] = run(tmp_path, *arguments)
    assert served == 2
    indexed = next(output for line, output in shown.items() if " index " in line)
    assert re.search(r"^4 documents, \d+ passages, \d+ edges: my_data$", indexed, re.MULTILINE)
    diagnosed = next(output for line, output in shown.items() if "doctor my_data" in line)
    assert "On drafted questions the graph changes" in diagnosed
    judged = next(output for line, output in shown.items() if "evaluate" in line)
    assert re.search(r"my_data val: \d+ queries", judged)
    example = next(block for language, block in BLOCKS if language == "python")
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def run(folder: Path, *arguments: str) -> str:
    """Run a command of the wheel in this process, with the folder as its working folder."""
    return run_script(*arguments, folder=folder, cache=folder / "cache").stdout


def served_results(folder: Path, arguments: list[str], query: dict[str, object]) -> list[dict[str, object]]:
    with running(folder, *arguments, environment={"GRAPHRERANK_CACHE": str(folder / "cache")}) as service:
        response = httpx.post(f"{service.url}/search", json=query, timeout=60)
        assert response.status_code == 200, response.text
        found: list[dict[str, object]] = response.json()["results"]
        return found
