"""Compare two artifacts by feedback on interleaved results."""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from graphrerank.evaluation.sequential_test import preference_evidence
from graphrerank.serving.json_log import log
from graphrerank.utils.files import write_json

# Each verdict is wrong with a probability of at most 5 % over the entire comparison.
EVIDENCE_THRESHOLD = math.log(1 / 0.05)
# Limit on the judgements of one user, as a number and as a share of all. The larger limit applies.
MOST_OF_USER, SHARE_OF_USER = 3, 0.2
COMPARING, WORSE, BETTER = "comparing", "worse", "better"
DROPPED = "dropped"  # subfolder of the log with finished comparisons, which are not restarted
OUTCOME = re.compile(rb'^\{"event":"feedback",.*"won":.*\}$', re.MULTILINE)


class Pick(NamedTuple):
    """Result of an interleaved list.

    Attributes:
        team: Ranking that contributed the result, 0 or 1.
        position: Position of the result in this ranking.
    """

    team: int
    position: int


def team_draft(first: Sequence[str], second: Sequence[str], count: int) -> list[Pick]:
    """Interleave two rankings by team-draft interleaving.

    In each turn, the ranking that has contributed fewer ids adds its best id that is not in the list yet. Ties are
    broken at random.

    Source: Radlinski et al., *How does clickthrough data reflect retrieval quality?*, 2008, Algorithm 2.

    Args:
        first: Ids of the first ranking, best first.
        second: Ids of the second ranking, best first.
        count: Length of the interleaved list.

    Returns:
        Origin of each result.

    Example:
        >>> sorted(tuple(pick) for pick in team_draft(["a", "b"], ["c", "d"], 4))
        [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    rankings = (first, second)
    positions = [0, 0]  # position of the next candidate of each ranking
    counts = [0, 0]  # number of results that each ranking has contributed
    listed: set[str] = set()
    picks: list[Pick] = []
    while len(picks) < count:
        turn = random.randrange(2) if counts[0] == counts[1] else int(counts[0] > counts[1])
        for team in (turn, 1 - turn):  # the other ranking is used once this one is exhausted
            ranking = rankings[team]
            while positions[team] < len(ranking) and ranking[positions[team]] in listed:
                positions[team] += 1
            if positions[team] < len(ranking):
                break
        else:
            break
        listed.add(rankings[team][positions[team]])
        picks.append(Pick(team, positions[team]))
        counts[team] += 1
    return picks


class Comparison:
    """Counts the interleaved lists that each of two artifacts wins, and tests the counts after each judgement.

    Only the first judgement of a list counts, and the number of judgements per user is limited. The comparison ends
    when the rival is worse (:func:`preference_evidence`), even across restarts.

    Args:
        folder: Folder of the feedback log.
        live: Name of the artifact that serves.
        rival: Name of the other artifact.

    Attributes:
        live: Name of the artifact that serves.
        rival: Name of the other artifact.
        counts: Number of lists that each artifact won.
        verdict: ``comparing``, ``worse`` or ``better``, about the rival.
    """

    def __init__(self, folder: Path, live: str, rival: str) -> None:
        self.live, self.rival = live, rival
        self.counts = Counter[str]()
        self._folder, self._read = folder, Counter[Path]()  # number of bytes read from each file
        self._judged, self._by_user = set[str](), Counter[str]()
        self._mark = folder / DROPPED / blake2b(f"{live} {rival}".encode(), digest_size=8).hexdigest()
        self.verdict = WORSE if self._mark.is_file() else COMPARING
        self.look()

    def look(self) -> None:
        """Read the feedback that was written since the last call."""
        for path in sorted(self._folder.glob("feedback-*.jsonl")):
            with suppress(FileNotFoundError), path.open("rb") as file:  # old files are deleted
                file.seek(self._read[path])
                content = file.read()
                end = content.rfind(b"\n") + 1  # the last line may be incomplete
                self._read[path] += end
                for line in OUTCOME.findall(content, 0, end):
                    self._count(json.loads(line))

    def _count(self, event: Mapping[str, Any]) -> None:
        if {event["won"], event["lost"]} != {self.live, self.rival} or event["request_id"] in self._judged:
            return
        self._judged.add(event["request_id"])
        user = event["user"]
        limit = max(MOST_OF_USER, SHARE_OF_USER * self.counts.total())
        if user is not None and self._by_user[user] >= limit:
            return
        self._by_user[user] += 1
        self.counts[event["won"]] += 1
        better, worse = preference_evidence(self.counts[self.rival], self.counts[self.live])
        verdict = self.verdict
        if worse >= EVIDENCE_THRESHOLD:
            verdict = WORSE
        elif better >= EVIDENCE_THRESHOLD:
            verdict = BETTER
        if verdict != self.verdict != WORSE:
            self.verdict = verdict
            log("interleaved artifact judged", **self.describe())
            if verdict == WORSE:
                write_json(self._mark, self.describe())

    def describe(self) -> dict[str, Any]:
        """Return the names of both artifacts, the number of lists that each won, and the verdict on the rival."""
        wins = {"wins": self.counts[self.rival], "losses": self.counts[self.live]}
        return {"artifact": self.rival, "against": self.live, **wins, "verdict": self.verdict}
