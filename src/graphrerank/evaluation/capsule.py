"""Reproduction capsules: the settings, data and results of a run of ``evaluate.py``, and how a second run differs."""

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from graphrerank.evaluation.run_json import RETRIEVER, read_run_json, with_new_names
from graphrerank.evaluation.study import Study
from graphrerank.files import write_text
from graphrerank.untrusted import check_name

CAPSULE = "capsule.json"
FORMAT = 1  # raise when an older file can no longer be read
TOLERANCE = 1e-6  # of a mean, as a fraction
MAX_TOLERANCE = 1e-3  # that a capsule may ask for: a larger one would call anything the same
THEN = ("then", "now")
SHOWN = 10  # differing measures of a data set that are named


@dataclass(frozen=True)
class Capsule:
    """The settings, versions and data of a run, and its results."""

    overrides: Sequence[str]  # what its command line set; the same again make the same run
    config: Mapping[str, Any]  # the configuration that came of it, without folders of the machine
    settings: Mapping[str, Any]  # what its statistics depend on, seeds among it
    versions: Mapping[str, str]  # version of each library that decides a result
    weights: Mapping[str, str]  # SHA-256 of each checkpoint's weights and of each run file, by system
    # by data set: `fingerprint` of corpus, queries and judgements, `split`, `queries` (how many), `query_ids`
    # (SHA-256), `candidates` (SHA-256 of `runs/<dataset>.retriever.trec` without its scores, or None where the
    # systems retrieve for themselves)
    data: Mapping[str, Mapping[str, Any]]
    # mean of each measure by data set and system; None where no query counts
    measures: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    tolerance: float = TOLERANCE  # how far a mean may be off


def make_capsule(
    run_dir: Path,
    study: Study,
    *,
    overrides: Sequence[str],
    config: Mapping[str, Any],
    versions: Mapping[str, str],
) -> Capsule:
    """Describe a run that has written its run files; the arguments are :class:`Capsule`'s."""
    data, measures = {}, {}
    weights: dict[str, str] = {}
    for name, dataset in study.datasets.items():
        file = _candidates_file(run_dir, name)
        data[name] = {
            "fingerprint": dataset.fingerprint,
            "split": dataset.split,
            "queries": len(dataset.query_ids),
            "query_ids": _hash_lines(dataset.query_ids),
            "candidates": _hash_lines(f"{q}\t{d}" for q, d in _listed(file)) if file.is_file() else None,
        }
        weights |= {
            key: system.fingerprint for key, system in dataset.systems.items() if system.fingerprint is not None
        }
        measures[name] = {key: system.to_json()["means"] for key, system in dataset.systems.items()}
    return Capsule(
        overrides=tuple(overrides),
        config=config,
        settings=study.settings,
        versions={"python": platform.python_version(), **versions},
        weights=weights,
        data=data,
        measures=measures,
    )


def write_capsule(run_dir: Path, capsule: Capsule) -> None:
    """Write ``capsule.json`` into a run folder."""
    write_text(run_dir / CAPSULE, json.dumps({"format": FORMAT, **asdict(capsule)}, indent=2) + "\n")


def read_capsule(run_dir: Path) -> Capsule:
    """Read a run folder's ``capsule.json``; a ValueError if there is none, or it is damaged or of another format."""
    return read_run_json(
        run_dir / CAPSULE,
        what="capsule",
        forms=(FORMAT,),
        build=_capsule,
    )


def _capsule(content: Mapping[str, Any]) -> Capsule:
    overrides, tolerance = content["overrides"], content["tolerance"]
    if not isinstance(overrides, list) or not all(isinstance(override, str) for override in overrides):
        raise ValueError("`overrides` must be a list of texts")
    if not 0 <= tolerance <= MAX_TOLERANCE:
        raise ValueError(f"`tolerance` must lie in [0, {MAX_TOLERANCE}], got {tolerance}")
    for name in content["data"]:
        check_name(data=name)  # a part of its run files' names
    return Capsule(
        **{field.name: content[field.name] for field in fields(Capsule) if field.name != "measures"},
        measures=with_new_names(content["measures"]),
    )


def capsule_differences(before_dir: Path, after_dir: Path) -> list[str]:
    """List where a run differs from an earlier one, a line each, causes before their effects.

    Versions, configuration, weights, data and candidates must be equal, means within the earlier run's tolerance. Times
    are not compared.
    """
    before, after = map(_read_content, (before_dir, after_dir))
    lines = _changed_settings(before, after)
    lines += _changes("weights", _flat(before["weights"]), _flat(after["weights"]))
    lines += _changes("data", dict.fromkeys(before["data"], "judged"), dict.fromkeys(after["data"], "judged"))
    for name in before["data"]:
        if name in after["data"]:
            then, now = dict(before["data"][name]), dict(after["data"][name])
            same_candidates = then.pop("candidates") == now.pop("candidates")
            lines += _changes(f"data {name}", then, now)
            if not same_candidates:
                files = (_candidates_file(folder, name) for folder in (before_dir, after_dir))
                lines.append(f"candidates of {name}: {_changed_lists(*files)}")
            lines += _changed_means(name, before["measures"][name], after["measures"][name], before["tolerance"])
    return lines


def setting_differences(first: tuple[str, Path], second: tuple[str, Path]) -> list[str]:
    """List the versions and settings in which two runs, each given by name and folder, differ."""
    before, after = (_read_content(folder) for _, folder in (first, second))
    return _changed_settings(before, after, (f"in {first[0]}", f"in {second[0]}"))


def _read_content(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(asdict(read_capsule(run_dir))))
    return content


def _changed_settings(before: Mapping[str, Any], after: Mapping[str, Any], whose: tuple[str, str] = THEN) -> list[str]:
    parts = ("versions", "config", "settings")
    return [line for part in parts for line in _changes(part, _flat(before[part]), _flat(after[part]), whose)]


def _candidates_file(run_dir: Path, dataset: str) -> Path:
    """Return the run file of the candidates, also under its former name."""
    older = run_dir / "runs" / f"{dataset}.base_ranking.trec"
    return older if older.is_file() else run_dir / "runs" / f"{dataset}.{RETRIEVER}.trec"


def _changes(
    part: str, before: Mapping[str, Any], after: Mapping[str, Any], whose: tuple[str, str] = THEN
) -> list[str]:
    """List the entries that differ."""
    missing = object()
    lines = []
    for key in dict.fromkeys([*before, *after]):
        then, now = before.get(key, missing), after.get(key, missing)
        if then != now:
            lines.append(f"{part} {key}: {_short(then, missing)} {whose[0]}, {_short(now, missing)} {whose[1]}")
    return lines


def _changed_means(dataset: str, before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float) -> list[str]:
    lines = _changes(f"systems of {dataset}", dict.fromkeys(before, "judged"), dict.fromkeys(after, "judged"))
    changed = []
    for system in before:
        if system not in after:
            continue
        for measure, then in before[system].items():
            now = after[system].get(measure)
            same = then == now if then is None or now is None else abs(then - now) <= tolerance
            if not same:
                changed.append(f"measures of {dataset}, {system} {measure}: {then} then, {now} now")
    if len(changed) > SHOWN:
        changed[SHOWN:] = [f"measures of {dataset}: {len(changed) - SHOWN} more"]
    return lines + changed


def _changed_lists(before: Path, after: Path) -> str:
    """Count the queries whose candidates differ."""
    if not before.is_file() or not after.is_file():
        return "; ".join(f"no {path.name} in {path.parent.parent}" for path in (before, after) if not path.is_file())
    lists = [
        {q: [d for _, d in rows] for q, rows in groupby(_listed(path), lambda row: row[0])} for path in (before, after)
    ]
    queries = [query for query in dict.fromkeys([*lists[0], *lists[1]]) if lists[0].get(query) != lists[1].get(query)]
    if not queries:
        return "the capsule's hash is not that of its run file"
    return f"those of {len(queries):,} of {len(lists[0]):,} queries differ, first {queries[0]!r}"


def _listed(path: Path) -> Iterator[tuple[str, str]]:
    """Read the query and document of each line of a run file that this package wrote."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            query, rest = line.split(" Q0 ", 1)
            yield query, rest.rsplit(" ", 3)[0]


def _hash_lines(lines: Any) -> str:
    sha = hashlib.sha256()
    for line in lines:
        sha.update(f"{line}\n".encode("utf-8", "surrogatepass"))
    return sha.hexdigest()


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    """Name nested entries by their path: ``{"a": {"b": 1}}`` is ``{"a.b": 1}``."""
    if not isinstance(content, dict) or not content:
        return {prefix: content} if prefix else {}
    flat: dict[str, Any] = {}
    for key, entry in content.items():
        flat |= _flat(entry, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _short(entry: Any, missing: object) -> str:
    if entry is missing:
        return "nothing"
    text = str(entry)
    return f"{text[:12]}…" if len(text) == 64 and text.isalnum() else text
