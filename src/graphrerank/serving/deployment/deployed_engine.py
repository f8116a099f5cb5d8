"""Engine of the artifact that serves, which is replaced without interruption and compared with another one."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from graphrerank.artifacts.artifact import artifact_name, model_info, read_artifact_manifest
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.feedback.log import INTERLEAVED_EVENT
from graphrerank.models.manifest import Manifest
from graphrerank.serving import metrics
from graphrerank.serving.deployment.interleaving import WORSE, Comparison, team_draft
from graphrerank.serving.engine import Check, Engine, Refusal
from graphrerank.serving.hot_reload import WatchedFolder
from graphrerank.serving.json_log import log
from graphrerank.serving.recorder import Answered


class _Deployed(NamedTuple):
    """An artifact that is loaded."""

    name: str
    engine: Engine[Any]
    manifest: Manifest


class DeployedEngine(Engine[Any]):
    """Answers by the artifact of a folder, and by the one that replaces it (:class:`WatchedFolder`).

    Batches that have begun end with the old one. A ``rival``, of a folder that may be replaced
    likewise, is interleaved with it until the feedback in the folder ``log`` says that it is worse.
    """

    def __init__(
        self,
        make: Callable[[Path], Engine[Any]],
        folder: Path,
        *,
        rival: Path | None = None,
        log: Path | None = None,
        look_seconds: float = 2.0,
    ) -> None:
        self._make, self._log = make, log
        self._live = WatchedFolder(folder, self._load, "artifact", look_seconds=look_seconds)
        self._rival: WatchedFolder[_Deployed] | None = None
        self._comparison: Comparison | None = None
        if rival is not None:
            self._rival = WatchedFolder(rival, self._load, "interleaved artifact", look_seconds=look_seconds)
            self._look()
            Thread(target=self._keep_looking, args=[look_seconds], daemon=True).start()

    def _load(self, folder: Path) -> _Deployed:
        folder = folder.resolve()  # a link may change meanwhile
        manifest = read_artifact_manifest(folder)
        engine = self._make(folder)
        engine.warm_up()
        return _Deployed(artifact_name(manifest), engine, manifest)

    @property
    def live(self) -> Any:
        """The engine of the artifact that serves now."""
        return self._live.current[1].engine

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """The encoder of what it answers."""
        return self.live.encoder

    def answer(self, jobs: Mapping[str, Any], check: Check = lambda: None) -> dict[str, Answered | Refusal]:
        """Answer a batch of jobs, by id."""
        live, comparison = self._live.current[1], self._comparison
        corpus = live.engine.corpus
        answers: dict[str, Answered | Refusal] = {
            uid: answer if isinstance(answer, Refusal) else Answered(answer, live.name, corpus)
            for uid, answer in live.engine.answer(jobs, check).items()
        }
        if self._rival is None or comparison is None or comparison.verdict == WORSE:
            return answers
        rival = self._rival.current[1]
        if (live.name, rival.name) != (comparison.live, comparison.rival):  # one of them was replaced just now
            return answers
        try:
            others = rival.engine.answer(jobs, check)
        except TimeoutError:
            raise
        except Exception as error:
            log("interleaved artifact failed", level=logging.ERROR, error=error, artifact=rival.name)
            return answers
        names = (live.name, rival.name)
        for uid, answered in answers.items():
            other = others.get(uid)
            if isinstance(answered, Answered) and other is not None and not isinstance(other, Refusal):
                picks = team_draft(answered.answer.ids, other.ids, len(answered.answer.ids))
                answer, teams = answered.answer.picked(other, picks), [names[team] for team, _ in picks]
                answers[uid] = Answered(answer, live.name, corpus, INTERLEAVED_EVENT, teams, names)
        return answers

    def probes(self) -> list[Any]:
        """Return the jobs that are measured of the engine that serves now."""
        return list(self.live.probes())

    def describe(self) -> dict[str, Any]:
        """Return the model's part of ``GET /info``, and how the comparison stands."""
        live, comparison = self._live.current[1], self._comparison
        compared = {} if comparison is None else {"interleaved": comparison.describe()}
        return {"model": model_info(live.manifest), "deployment": {"artifact": live.name, **compared}}

    def _look(self) -> None:
        """Count new feedback, and begin another comparison where an artifact was replaced."""
        assert self._rival is not None
        assert self._log is not None
        names, comparison = (self._live.current[1].name, self._rival.current[1].name), self._comparison
        if names[0] == names[1]:  # it was deployed
            self._comparison = None
        elif comparison is None or names != (comparison.live, comparison.rival):
            self._comparison = Comparison(self._log, *names)
        else:
            comparison.look()
        if (comparison := self._comparison) is not None:
            metrics.INTERLEAVED.labels("won").set(comparison.counts[comparison.rival])
            metrics.INTERLEAVED.labels("lost").set(comparison.counts[comparison.live])
            metrics.INTERLEAVED.labels("dropped").set(comparison.verdict == WORSE)

    def _keep_looking(self, seconds: float) -> None:
        while True:
            time.sleep(seconds)
            try:
                self._look()
            except Exception as error:
                log("feedback could not be read", level=logging.ERROR, error=error)
