"""docs/ten_minutes.md: its commands in order, on a few pages, with fewer drafted questions and epochs."""

import csv
import json
import re
import shlex
import shutil
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import pytest
import uvicorn

from tests.support import ROOT
from tests.support.commands import run_script
from tests.support.running import running

pytestmark = pytest.mark.slow  # MiniLM and a training

PAGE = (ROOT / "docs" / "ten_minutes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINES = [line for language, block in BLOCKS if not language for line in block.splitlines()]
FEWER = {"data.drafted=1500": "data.drafted=60", "trainer.max_epochs=3": "trainer.max_epochs=1"}
QUESTIONS = next(block for language, block in BLOCKS if language == "text" and block.startswith('{"_id"'))
NOTES = ("python.md", "installing.md", "glossary.md")


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_: None)  # of judge: tests/cli/test_judge.py uses its page
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in NOTES:
        shutil.copy(ROOT / "docs" / name, notes)
    faq = [{"id": "gpu", "title": "GPU", "text": "Neither training nor serving needs a GPU."}]
    (notes / "faq.json").write_text(json.dumps(faq))
    query = json.loads(next(shlex.split(line)[-1] for line in LINES if line.startswith("curl")))
    num_served, outputs = 0, {}
    for line in LINES:
        command = shlex.split(line, comments=True)
        if command[0] in ("pip", "curl"):
            continue
        assert command[0] == "graphrerank"
        arguments = [FEWER.get(argument, argument) for argument in command[1:]]
        if arguments[0] == "serve":
            assert served_results(tmp_path, arguments[1:], query)
            num_served += 1
        else:
            outputs[line] = run(tmp_path, *arguments)
        if arguments[0] == "index":
            (tmp_path / "my_data" / "queries.jsonl").write_text(QUESTIONS)
        if "hydra.run.dir=judging" in arguments:
            judge(tmp_path / "judging" / "to_judge.csv", tmp_path / "my_data" / "qrels" / "test.csv")
    assert num_served == 2
    indexed = next(output for line, output in outputs.items() if " index " in line)
    assert re.search(r"^4 documents, \d+ passages, \d+ edges: my_data$", indexed, re.MULTILINE)
    assert "0 judged questions. next: graphrerank doctor my_data" in outputs["graphrerank judge my_data"]
    for line, output in outputs.items():
        if line.startswith("graphrerank doctor my_data") and "judging" not in line:
            assert "3 questions cannot tell: judge about 15." in output
            assert "next: graphrerank judge my_data    # 12 more questions" in output
    evaluated = next(output for line, output in outputs.items() if " evaluate " in line)
    assert "my_data test: 3 queries" in evaluated
    example = next(block for language, block in BLOCKS if language == "python")
    printed = StringIO()
    with chdir(tmp_path), redirect_stdout(printed):
        exec(compile(example, "docs/ten_minutes.md", "exec"), {"__name__": "__main__"})
    assert len(printed.getvalue().splitlines()) == 3


def judge(sheet: Path, path: Path) -> None:
    """Judge the first passage of each question relevant and the others not."""
    with sheet.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    judged: set[str] = set()
    for row in rows:
        row["score"] = str(int(row["query-id"] not in judged))
        judged.add(row["query-id"])
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def run(folder: Path, *arguments: str) -> str:
    """Run a command of the wheel in this process, with the folder as its working folder."""
    return run_script(*arguments, folder=folder, cache=folder / "cache").stdout


def served_results(folder: Path, arguments: list[str], query: dict[str, object]) -> list[dict[str, object]]:
    with running(folder, *arguments, environment={"GRAPHRERANK_CACHE": str(folder / "cache")}) as service:
        response = httpx.post(f"{service.url}/search", json=query, timeout=60)
        assert response.status_code == 200, response.text
        found: list[dict[str, object]] = response.json()["results"]
        return found
