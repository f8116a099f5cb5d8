"""An artifact is replaced, compared and dropped while it serves."""

import json
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from graphrerank.artifacts.artifact import artifact_name, load_artifact, read_artifact_manifest
from graphrerank.artifacts.export import export_artifact
from graphrerank.serving.batching import Batcher
from graphrerank.serving.deployment.artifact_search import ArtifactSearch
from graphrerank.serving.deployment.deployed_engine import DeployedEngine
from graphrerank.serving.deployment.interleaving import MOST_OF_USER, WORSE, Comparison, team_draft
from graphrerank.serving.deployment.shadow import SHADOW_OF, ShadowRanker
from graphrerank.serving.engine import Refusal
from graphrerank.serving.engines.feedback import FeedbackEngine
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.feedback_log import FeedbackSettings, FeedbackStore
from graphrerank.serving.recorder import Recorder
from graphrerank.serving.schemas.inspection import InspectRequest
from graphrerank.serving.schemas.rerank import RerankRequest
from graphrerank.serving.schemas.search import SearchRequest
from graphrerank.serving.server import create_app
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.standard_routes import ADD_FEEDBACK, RERANK
from tests.support.client import TestClient
from tests.support.logs import PATIENCE_S, awaited_line
from tests.support.searching import searchable

TEXTS = [f"document {number} of a cat" for number in range(8)]
BODY = {"query": "a cat", "scores": [0.1 * number for number in range(8)], "edges": [[0, 1], [2, 5]]}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, make_checkpoint: Callable[..., Any]) -> list[Path]:
    folder = tmp_path_factory.mktemp("artifacts")
    made = [make_checkpoint(seed=seed, edge_features=True, num_layers=1) for seed in (0, 1)]
    return [export_artifact(each, folder / f"a{seed}", num_batches=12) for seed, each in enumerate(made)]


def names(artifacts: list[Path]) -> list[str]:
    return [artifact_name(read_artifact_manifest(folder)) for folder in artifacts]


@pytest.fixture
def make(encoder: Any) -> Callable[[Path], RerankEngine]:
    return lambda folder: RerankEngine(load_artifact(folder), encoder)


def ask(engine: Any, **more: Any) -> Any:
    return engine.answer({"a": RerankRequest.model_validate({**BODY, "documents": TEXTS, **more})})["a"]


def test_a_changed_link_or_folder_is_taken_over(tmp_path: Path, artifacts: list[Path], make: Any) -> None:
    """A batch that has begun ends with the old one; what cannot be loaded leaves it."""
    current, link = tmp_path / "current", tmp_path / "next"
    current.symlink_to(artifacts[0])
    engine = DeployedEngine(make, current, look_seconds=0.02)
    first, second = names(artifacts)
    begun = engine.live
    assert ask(engine).artifact == first
    link.symlink_to(artifacts[1])
    with awaited_line("artifact loaded"):
        link.replace(current)
    assert ask(engine).artifact == second
    assert ask(engine).answer.scores == ask(make(artifacts[1])).scores
    assert begun.answer({"a": RerankRequest.model_validate({**BODY, "documents": TEXTS})}, lambda: None)
    shutil.copytree(artifacts[0], tmp_path / "broken")
    (tmp_path / "broken" / "model.pt").write_bytes(b"broken")
    link.symlink_to(tmp_path / "broken")
    with awaited_line("artifact could not be loaded, the previous one stays in use"):
        link.replace(current)
    assert ask(engine).artifact == second
    assert engine.describe()["deployment"] == {"artifact": second}
    shutil.copytree(artifacts[0], tmp_path / "whole")
    with awaited_line("artifact loaded"):
        current.unlink()
        (tmp_path / "whole").rename(current)
    assert ask(engine).artifact == first


def test_a_search_is_ranked_by_what_was_taken_over(tmp_path: Path) -> None:
    """Against a pipeline that was built with it; what people inspect is what serves."""
    corpus = searchable([f"p{i}" for i in range(8)], TEXTS, {(0, 1): 0, (2, 5): 0}, budget=8, other="vectors")
    (tmp_path / "corpus.jsonl").touch()
    search = SearchEngine(lambda _: corpus, tmp_path)
    request = SearchRequest(query="document of a cat")
    plain = search.answer({"a": request})["a"]
    for name, is_same in (("base", True), ("attack", False)):
        engine = ArtifactSearch(search, name)  # type: ignore[arg-type]
        found = engine.answer({"a": request})["a"]
        assert (found.scores == plain.scores) is is_same
        inspected = InspectEngine(search, scorer=lambda engine=engine: engine.scorer).answer(
            {"a": InspectRequest(query="document of a cat")}
        )["a"]
        assert inspected.rankings[1].scores == found.scores
    assert search.answer({"a": request})["a"].scores == plain.scores


def test_a_team_draft_is_fair() -> None:
    """Each ranking has half of the first places and of all; shared ids come once, in an order of one of them."""
    random.seed(0)
    first, second = list("abcdef"), list("bcxyaz")
    drafts = [team_draft(first, second, 6) for _ in range(2000)]
    for draft in drafts:
        ids = [(first, second)[team][place] for team, place in draft]
        assert len(set(ids)) == 6
        assert sum(team for team, _ in draft) == 3
        for team in (0, 1):
            places = [place for of, place in draft if of == team]
            assert places == sorted(places)
    assert sum(draft[0][0] for draft in drafts) == pytest.approx(1000, abs=100)
    assert team_draft(["a", "b"], ["b"], 2) in ([(0, 0), (1, 0)], [(1, 0), (0, 0)], [(0, 0), (0, 1)])
    assert team_draft([], [], 0) == []


def write(log: FeedbackStore, won: str, lost: str, user: str | None = None, uid: str | None = None) -> None:
    event = {"event": "feedback", "request_id": uid or str(uuid4()), "user": user, "clicked": ["a"]}
    log.append({**event, "won": won, "lost": lost})


def test_a_comparison_counts_each_list_once_and_bounds_a_user(tmp_path: Path, caplog: Any) -> None:
    logs = [FeedbackStore(FeedbackSettings(str(tmp_path))) for _ in range(2)]
    comparison = Comparison(tmp_path, "old", "new")
    for _ in range(100):
        write(logs[0], "old", "new", "loud")
        write(logs[1], "old", "new", None, "one")
        write(logs[1], "old", "other")
    comparison.look()
    counted = {"artifact": "new", "against": "old", "wins": 0, "losses": MOST_OF_USER + 1}
    assert comparison.describe() == {**counted, "verdict": "comparing"}
    for user in "abc":
        write(logs[0], "old", "new", user)
    with caplog.at_level("INFO", "graphrerank.serving"):
        comparison.look()
    assert comparison.describe() == {**counted, "losses": MOST_OF_USER + 4, "verdict": WORSE}
    assert [record.message for record in caplog.records] == ["interleaved artifact judged"]
    for _ in range(50):
        write(logs[0], "new", "old")
    comparison.look()
    assert comparison.verdict == Comparison(tmp_path, "old", "new").verdict == WORSE  # after a restart too


@pytest.fixture
def make_client(
    tmp_path: Path, artifacts: list[Path], make: Any
) -> Callable[..., tuple[TestClient, FeedbackStore, Any]]:
    def create(**engines: Any) -> tuple[TestClient, FeedbackStore, Any]:
        chosen, settings = FeedbackSettings(str(tmp_path / "log")), ServiceSettings()
        log = FeedbackStore(chosen)
        rival = engines.pop("rival", None)
        live = DeployedEngine(make, artifacts[0], rival=rival, log=log.folder, look_seconds=3600)
        every = {"rerank": live, "feedback": FeedbackEngine(log), **engines}
        routes, recorder = [RERANK, ADD_FEEDBACK], Recorder(log, chosen)
        app = create_app(routes, Batcher(every, settings.limits), settings, info={}, recorder=recorder)
        return TestClient(app, base_url="http://localhost:8000"), log, live

    return create


def events_of(log: FeedbackStore) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(log.folder.glob("shown-*")) for line in path.read_text().splitlines()]


def test_an_interleaved_artifact_is_dropped_when_feedback_says_worse(
    make_client: Any, artifacts: list[Path], make: Any, caplog: Any
) -> None:
    caplog.set_level("INFO", "graphrerank.serving")
    client, log, engine = make_client(rival=artifacts[1])
    live, rival = names(artifacts)
    alone = [str(index) for index in ask(make(artifacts[0])).indices]
    lists = 0
    for _ in range(200):
        found = client.post("/v2/rerank", json={**BODY, "documents": TEXTS}).json()
        event = events_of(log)[-1]
        assert event["ids"] == [str(result["index"]) for result in found["results"]]
        if event["ranker"] == "live":
            break
        assert event["ranker"] == "interleaved"
        assert set(event["teams"]) == {live, rival}
        lists += 1
        liked = next(rank for rank, team in enumerate(event["teams"], 1) if team == live)
        assert client.post("/feedback", json={"request_id": found["id"], "clicked": [liked]}).status_code == 200
        engine._look()  # as its thread does
        assert engine._comparison.counts[live] == lists
    assert 5 < lists < 20
    assert event["ids"] == alone
    assert client.get("/info").json()["deployment"] == {
        "artifact": live,
        "interleaved": {"artifact": rival, "against": live, "wins": 0, "losses": lists, "verdict": WORSE},
    }
    assert "interleaved artifact judged" in caplog.text
    assert 'graphrerank_interleaved{lists="dropped"} 1.0' in client.get("/metrics").text


def test_an_interleaved_artifact_that_fails_costs_nothing(make_client: Any, artifacts: list[Path], make: Any) -> None:
    client, log, engine = make_client(rival=artifacts[1])
    rival = engine._rival.current[1].engine
    rival.answer = lambda jobs, check: {uid: Refusal(422, "no") for uid in jobs}
    assert client.post("/v2/rerank", json={**BODY, "documents": TEXTS}).status_code == 200

    def fail(jobs: Any, check: Any) -> None:
        raise RuntimeError("broken")

    rival.answer = fail
    assert client.post("/v2/rerank", json={**BODY, "documents": TEXTS}).status_code == 200
    assert [event["ranker"] for event in events_of(log)] == ["live", "live"]


def test_a_shadow_ranks_behind_the_answer(
    make_client: Any, artifacts: list[Path], make: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, has_ranked = ShadowRanker.rank, threading.Event()

    async def rank_and_tell(*given: Any) -> None:
        await rank(*given)
        has_ranked.set()

    monkeypatch.setattr(ShadowRanker, "rank", rank_and_tell)
    shadow = DeployedEngine(make, artifacts[1])
    client, log, _ = make_client(**{SHADOW_OF + "rerank": shadow})
    with caplog.at_level("INFO", "graphrerank.serving"), client:
        found = client.post("/v2/rerank", json={**BODY, "documents": TEXTS}).json()
        assert has_ranked.wait(PATIENCE_S)
        assert client.get("/info").json()["deployment"] == {"artifact": names(artifacts)[0]}
        failing = "broken shadow"

        def fail(jobs: Any, check: Any) -> None:
            raise RuntimeError(failing)

        shadow.answer = fail  # type: ignore[method-assign]
        assert client.post("/v2/rerank", json={**BODY, "documents": TEXTS}).status_code == 200
    live, other = events_of(log)[:2]
    assert (live["ranker"], other["ranker"]) == ("live", "shadow")
    assert live["request_id"] == other["request_id"] == found["id"]
    expected = [str(index) for index in ask(make(artifacts[1])).indices]
    assert other["ids"] == expected != live["ids"]
    (line,) = (record.fields for record in caplog.records if record.message == "shadow")
    assert (line["artifact"], line["shadow"], line["overlap"]) == (*names(artifacts), 1.0)
    assert log.find(found["id"])["ranker"] == "live"
