"""``graphrerank judge DATA``: from typed questions to a decision of the doctor."""

from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from graphrerank.data.dataset import Dataset
from tests.support.commands import RunCommand
from tests.support.folders import DIRECTORS, write_films

SMALL = ("retriever=hybrid_expand", "retriever.top_k=8", "retriever.base_k=4", "retriever.num_seeds=4")


def test_typed_questions_become_the_test_split(
    run_command: RunCommand, small_encoder: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_films(tmp_path / "films", edges=True, judged=False, questions=False)

    def judge(server: uvicorn.Server, sockets: list[Any]) -> None:
        client = TestClient(server.config.app, base_url="http://localhost")
        header = {"x-judge-token": client.get("/state").json()["token"]}
        for number in range(len(DIRECTORS)):
            body = {"text": f"Where was the director of Film {number} born?"}
            found = client.post("/search", json=body, headers=header).json()["passages"]
            assert {"passage_id", "title", "text"} == set(found[0])
            body |= {"relevant": [f"f{number}", f"p{number}"], "shown": [passage["passage_id"] for passage in found]}
            assert client.post("/questions", json=body, headers=header).status_code == 200
        raise KeyboardInterrupt  # as uvicorn does after Ctrl+C

    monkeypatch.setattr(uvicorn.Server, "run", judge)
    done = run_command("judge", str(folder), *small_encoder, *SMALL, "port=0", "browser=false")
    assert f"Each question is saved to {folder}" in done.stdout
    assert f"12 judged questions. next: graphrerank doctor {folder}" in done.stdout
    dataset = Dataset.from_folder(folder)
    assert dataset.split("test").queries.tolist() == list(range(12))
    done = run_command("doctor", str(folder), *small_encoder, *SMALL, "resamples=200")
    assert "films all judged questions: 12 queries" in done.stdout
    last = [line for line in done.stdout.splitlines() if line.startswith("next: graphrerank ")]
    assert len(last) == 1


def test_only_a_folder_can_be_judged(run_command: RunCommand) -> None:
    done = run_command("judge", "attack", status=1)
    assert done.stderr == "`dataset` must be a data set folder, in which judgements are written, got 'attack'\n"
