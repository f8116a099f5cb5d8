"""Engine of a deployed artifact, which can be replaced without interruption and compared with another artifact."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
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
    """Loaded artifact.

    Attributes:
        name: Name of the artifact with a hash of its weights.
        engine: Engine of the artifact.
        manifest: Manifest of the artifact.
    """

    name: str
    engine: Engine[Any]
    manifest: Manifest


class DeployedEngine(Engine[Any]):
    """Answers with the artifact of a folder, and with its replacement once the folder changes (:class:`WatchedFolder`).

    Batches that have started are finished with the previous artifact.

    Args:
        make: Function that builds the engine of an artifact from its folder.
        folder: Folder of the artifact, or a link to it.
        rival: Folder of another artifact, whose results are interleaved until feedback shows that it is worse. If None,
            nothing is interleaved.
        log: Folder of the feedback log. Required if there is a ``rival``.
        look_seconds: Time between two checks of the folders and of the feedback.
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
        folder = folder.resolve()  # the link may change in the meantime
        manifest = read_artifact_manifest(folder)
        engine = self._make(folder)
        engine.warm_up()
        return _Deployed(artifact_name(manifest), engine, manifest)

    @property
    def live(self) -> Any:
        """Engine of the artifact that serves now."""
        return self._live.current[1].engine

    @property
    def live_name(self) -> str:
        """Name of the artifact that serves now, with a hash of its weights."""
        return self._live.current[1].name

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """Text encoder of the engine that serves now."""
        return self.live.encoder

    def answer(self, jobs: Mapping[str, Any], check: Check = lambda: None) -> dict[str, Answered | Refusal]:
        """Answer a batch of jobs.

        Args:
            jobs: Jobs by request id.
            check: Function that raises TimeoutError once nobody waits for the batch.

        Returns:
            Response or refusal of each job by request id.
        """
        live = self._live.current[1]
        comparison = self._comparison
        corpus = live.engine.corpus
        answers: dict[str, Answered | Refusal] = {
            uid: answer if isinstance(answer, Refusal) else Answered(answer, live.name, corpus)
            for uid, answer in live.engine.answer(jobs, check).items()
        }
        if self._rival is None or comparison is None or comparison.verdict == WORSE:
            return answers
        rival = self._rival.current[1]
        if (live.name, rival.name) != (comparison.live, comparison.rival):  # an artifact has just been replaced
            return answers
        try:
            rival_answers = rival.engine.answer(jobs, check)
        except TimeoutError:
            raise
        except Exception as error:
            log("interleaved artifact failed", level=logging.ERROR, error=error, artifact=rival.name)
            return answers
        for uid, answered in answers.items():
            rival_answer = rival_answers.get(uid)
            if isinstance(answered, Answered) and rival_answer is not None and not isinstance(rival_answer, Refusal):
                answers[uid] = _interleaved(answered, rival_answer, (live.name, rival.name))
        return answers

    def probes(self) -> list[Any]:
        """Return the probes of the engine that serves now."""
        return list(self.live.probes())

    def describe(self) -> dict[str, Any]:
        """Return the entries of ``GET /info`` for the model and the deployment, with the state of the comparison."""
        live = self._live.current[1]
        comparison = self._comparison
        compared = {} if comparison is None else {"interleaved": comparison.describe()}
        return {"model": model_info(live.manifest), "deployment": {"artifact": live.name, **compared}}

    def _look(self) -> None:
        """Read new feedback, and start a new comparison if an artifact was replaced."""
        assert self._rival is not None
        assert self._log is not None
        live = self._live.current[1].name
        rival = self._rival.current[1].name
        comparison = self._comparison
        if live == rival:  # the rival was deployed
            comparison = None
        elif comparison is None or (live, rival) != (comparison.live, comparison.rival):
            comparison = Comparison(self._log, live, rival)
        else:
            comparison.look()
        self._comparison = comparison
        if comparison is not None:
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


def _interleaved(answered: Answered, rival_answer: Any, names: tuple[str, str]) -> Answered:
    """Interleave a response with that of the rival.

    Args:
        answered: Response of the live artifact.
        rival_answer: Content of the rival's response.
        names: Names of the live artifact and of the rival.
    """
    live_answer = answered.answer
    picks = team_draft(live_answer.ids, rival_answer.ids, len(live_answer.ids))
    return replace(
        answered,
        answer=live_answer.picked(rival_answer, picks),
        ranker=INTERLEAVED_EVENT,
        teams=[names[pick.team] for pick in picks],
        between=names,
    )
