"""The artifact that serves: its replacement without interruption, and comparison with another one by feedback."""

import json
import logging
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from graphrerank.artifacts.artifact import artifact_name, model_info, read_artifact_manifest
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.evaluation.sequential_test import preference_evidence
from graphrerank.feedback.log import INTERLEAVED
from graphrerank.models.manifest import Manifest
from graphrerank.serving import metrics
from graphrerank.serving.engine import Check, Engine, Probed, Refusal
from graphrerank.serving.feedback import Answered
from graphrerank.serving.json_log import log
from graphrerank.serving.search_engine import SearchEngine, SearchRequest, SearchResponse, scorer_of
from graphrerank.serving.watching import WatchedFolder
from graphrerank.utils.files import write_json

# Each verdict is wrong with a probability of at most 5% over the whole time of the comparison.
EVIDENCE_THRESHOLD = math.log(1 / 0.05)
MOST_OF_USER, SHARE_OF_USER = 3, 0.2  # judgements of one user that count, the larger: nobody decides alone
COMPARING, WORSE, BETTER = "comparing", "worse", "better"
DROPPED = "dropped"  # folder in that of the log: comparisons that ended, which a restart does not begin again
OUTCOME = re.compile(rb'^\{"event":"feedback",.*"won":.*\}$', re.MULTILINE)


class ArtifactSearch:
    """Searches the corpus of a search engine with an artifact as the last step of its pipeline."""

    def __init__(self, search: SearchEngine, folder: Path) -> None:
        self.search = search
        trained = scorer_of(search.current[1].pipeline.last_step)
        self.scorer = None if trained is None else trained.with_model(folder)

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """The encoder of queries."""
        return self.search.encoder

    @property
    def corpus(self) -> str | None:
        """The fingerprint of the corpus."""
        return self.search.current[1].fingerprint

    def answer(
        self, jobs: Mapping[str, SearchRequest], check: Check = lambda: None
    ) -> Mapping[str, SearchResponse | Refusal]:
        """Search for the queries of a batch of requests, by id."""
        return self.search.answer(jobs, check, scorer=self.scorer)

    def warm_up(self) -> None:
        """Search once."""
        self.answer({"first": SearchRequest(query="what warms up?")})

    def probes(self) -> list[SearchRequest]:
        """Return searches for short and long queries."""
        return self.search.probes()


class _Deployed(NamedTuple):
    """An artifact that is loaded."""

    name: str
    engine: Any
    manifest: Manifest


def team_draft(first: Sequence[str], second: Sequence[str], count: int) -> list[tuple[int, int]]:
    """Draw an interleaved list of ``count`` ids from two rankings: pairs of the ranking, 0 or 1, and the place in it.

    The ranking with fewer ids in the list, of equal ones a random one, adds its best id that is not in it yet.

    Source: Radlinski et al., *How does clickthrough data reflect retrieval quality?*, 2008, Algorithm 2.
    """
    rankings, places, sizes = (first, second), [0, 0], [0, 0]
    taken, picks = set[str](), list[tuple[int, int]]()
    while len(picks) < count:
        turn = (sizes[0] > sizes[1]) if sizes[0] != sizes[1] else random.randrange(2)
        for team in (int(turn), 1 - int(turn)):  # the other one, where a ranking has ended
            while places[team] < len(rankings[team]) and rankings[team][places[team]] in taken:
                places[team] += 1
            if places[team] < len(rankings[team]):
                break
        else:
            break
        taken.add(rankings[team][places[team]])
        picks.append((team, places[team]))
        sizes[team] += 1
    return picks


class Comparison:
    """Counts what the feedback of all processes says of two artifacts, and tests it after each judgement.

    The first judgement of a list counts, and of one user ``MOST_OF_USER``, or ``SHARE_OF_USER`` of all. It ends for
    good when the rival is worse (:func:`preference_evidence`).
    """

    def __init__(self, folder: Path, live: str, rival: str) -> None:
        self.live, self.rival = live, rival
        self.counts = Counter[str]()  # of lists won, by artifact
        self._folder, self._read = folder, Counter[Path]()  # bytes, by file
        self._judged, self._by_user = set[str](), Counter[str]()
        self._mark = folder / DROPPED / blake2b(f"{live} {rival}".encode(), digest_size=8).hexdigest()
        self.verdict = WORSE if self._mark.is_file() else COMPARING
        self.look()

    def look(self) -> None:
        """Read the feedback that was written since the last look."""
        for path in sorted(self._folder.glob("feedback-*.jsonl")):
            with suppress(FileNotFoundError), path.open("rb") as file:  # old ones are deleted
                file.seek(self._read[path])
                content = file.read()
                self._read[path] += (end := content.rfind(b"\n") + 1)
                for line in OUTCOME.findall(content, 0, end):
                    self._count(json.loads(line))

    def _count(self, event: Mapping[str, Any]) -> None:
        if {event["won"], event["lost"]} != {self.live, self.rival} or event["request_id"] in self._judged:
            return
        self._judged.add(event["request_id"])
        user, most = event["user"], max(MOST_OF_USER, SHARE_OF_USER * self.counts.total())
        if user is not None and self._by_user[user] >= most:
            return
        self._by_user[user] += 1
        self.counts[event["won"]] += 1
        better, worse = preference_evidence(self.counts[self.rival], self.counts[self.live])
        verdict = WORSE if worse >= EVIDENCE_THRESHOLD else BETTER if better >= EVIDENCE_THRESHOLD else self.verdict
        if verdict != self.verdict != WORSE:
            self.verdict = verdict
            log("interleaved artifact judged", **self.describe())
            if verdict == WORSE:
                write_json(self._mark, self.describe())

    def describe(self) -> dict[str, Any]:
        """Return both artifacts, how many lists each won, and the verdict on the rival."""
        wins = {"wins": self.counts[self.rival], "losses": self.counts[self.live]}
        return {"artifact": self.rival, "against": self.live, **wins, "verdict": self.verdict}


class DeployedEngine(Engine[Any]):
    """Answers by the artifact of a folder, and by the one that replaces it (:class:`WatchedFolder`).

    Batches that have begun end with the old one. A ``rival``, of a folder that may be replaced
    likewise, is interleaved with it until the feedback in the folder ``log`` says that it is worse.
    """

    def __init__(
        self,
        make: Callable[[Path], Any],
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
        corpus = getattr(live.engine, "corpus", None)
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
                answers[uid] = Answered(answer, live.name, corpus, INTERLEAVED, teams, names)
        return answers

    def probes(self) -> list[Any]:
        """Return the jobs that are measured of the engine that serves now."""
        return list(self.live.probes()) if isinstance(self.live, Probed) else []

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
