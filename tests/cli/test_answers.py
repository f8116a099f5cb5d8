"""``answers=`` behind systems that need no training: report, files, and a run that is killed and goes on."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import QUERIES, WORDS
from tests.support import ROOT
from tests.support.commands import run_script

pytest.importorskip("httpx", reason="httpx is optional")


ABSTENTION = "I don't have enough information in the provided context to answer this."


def chat(content: str, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 50, "completion_tokens": 4}
    return {"model": "chat-1", "usage": usage, "choices": [{"message": {"content": content}, **more}]}


def word_of(question: str) -> str:
    """What is asked for; the judge is asked in the words of GraphER's appendix."""
    return next(word for word in WORDS if f"What is a {word}?" in question)


def answer_well(handler: Any) -> None:
    def answer(self: Any, question: str, echo: Any) -> Any:
        if "Ground Truth" in question:
            return chat("Explanation: it is the same.\n\nDecision: yes")
        word = word_of(question)
        return chat(ABSTENTION if word == "metal" else word)

    handler.answer = answer


@pytest.fixture
def arguments(endpoint: tuple[str, Any], ring: Path, mine: Path) -> list[str]:
    answer_well(endpoint[1])
    model = "answers.writer.model"
    systems = f"systems=[{mine},{ring.parent}/other.trec]"
    return [f"datasets=[{ring}]", systems, f"{model}.base_url={endpoint[0]}", f"{model}.pause=0.0"]


@pytest.fixture(autouse=True)
def _other_run(mine: Path) -> None:
    (mine.parent / "other.trec").write_text(f"q{QUERIES - 1} Q0 p0 1 1.0 x\nq0 Q0 p0 1 1.0 x\n")


PRICE = ("answers.price.input=2.0", "answers.price.output=10.0")


def test_answers_in_every_file(run, arguments: list[str], endpoint: tuple[str, Any]) -> None:
    folder = run(*arguments, "answers=judged", *PRICE)
    (dataset,) = json.loads((folder / "metrics.json").read_text())["datasets"].values()
    counts = dataset["systems"]["ring.mine"]["answers"]
    assert dataset["systems"]["ring.mine"]["EM"] == pytest.approx(5 / 6)  # all but the one about metal
    assert dataset["systems"]["ring.mine"]["Judged"] == pytest.approx(5 / 6)
    assert (counts["abstained"], counts["models"], counts["input_tokens"]) == (1, {"chat-1": 6}, 300)
    assert counts["usd"] == pytest.approx((300 * 2 + 24 * 10) / 1e6)
    assert counts["judge_usd"] == pytest.approx((250 * 2 + 20 * 10) / 1e6)
    assert {test["measure"] for test in dataset["comparisons"]} == {"nDCG@10", "PR@10", "F1", "EM", "Judged"}
    for name in ("report.md", "report.html"):
        report = (folder / name).read_text()
        assert "Answers from the packed contexts" in report
        assert "single-hop" in report
    settings = json.loads((folder / "result.json").read_text())["config"]["answers"]
    assert settings["writer"]["prompt"]["name"] == "grapher_answer"
    assert "Use ONLY the information" in settings["writer"]["prompt"]["user"]
    lines = [json.loads(line) for line in (folder / "answers" / "ring.jsonl").read_text().splitlines()]
    assert [line["answer"] for line in lines[:6]] == [word.replace("metal", "") for word in WORDS[:6]]
    assert len(lines) == 2 * QUERIES
    asked = Counter(request["messages"][-1]["content"] for request in endpoint[1].requests)
    assert set(asked.values()) == {1}


@pytest.mark.slow  # a process
def test_killed_and_resumed(arguments: list[str], endpoint: tuple[str, Any], tmp_path: Path) -> None:
    answer, started = endpoint[1].answer, []

    def answer_or_kill(self: Any, question: str, echo: Any) -> Any:
        if len(self.requests) == 4 and len(started) == 1:
            os.kill(started[0].pid, signal.SIGKILL)
        return answer(self, question, echo)

    endpoint[1].answer = answer_or_kill

    def command(name: str) -> list[str]:
        return ["evaluate.py", *arguments, "answers=endpoint", "resamples=200",
                "answers.writer.model.concurrency=1", f"hydra.run.dir={tmp_path / name}"]  # fmt: skip

    environment = {**os.environ, "GRAPHRERANK_CACHE": str(tmp_path / "cache")}
    process = [sys.executable, *command("killed")]
    started.append(subprocess.Popen(process, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL))
    assert started[0].wait() == -signal.SIGKILL
    assert len(endpoint[1].requests) == 4
    run_script(*command("again"), folder=tmp_path, cache=tmp_path / "cache")
    asked = Counter(request["messages"][-1]["content"] for request in endpoint[1].requests)
    (twice,) = [question for question, times in asked.items() if times > 1]  # the one that was never answered
    assert twice == endpoint[1].requests[3]["messages"][-1]["content"]
    run_script(*command("whole"), folder=tmp_path, cache=tmp_path / "other")
    for file in ("answers/ring.jsonl", "runs/ring.ring.mine.trec"):
        assert (tmp_path / "again" / file).read_text() == (tmp_path / "whole" / file).read_text()
    first, second = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("again", "whole"))
    assert first["datasets"] == second["datasets"]
