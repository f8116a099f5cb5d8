"""``python evaluate.py build=NAME from=FILES out=DIR``: a data set folder from its authors' files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphrerank.cli.session import Session
from graphrerank.extensions import find_builder


def build(session: Session) -> Path:
    """Build the data set that the command names, and print its card.

    Raises:
        ValueError: If a setting is missing or wrong, or the files are not those of the data set.
    """
    cfg = session.cfg
    if cfg.out is None:
        raise ValueError("`out` must name the folder to write, got null")
    return build_folder(cfg.build, list(cfg.files), cfg.out, cache=session.cache, options=dict(cfg.options))


def build_folder(
    name: str, files: Sequence[str], out: str | Path, *, cache: Path, options: Mapping[str, Any] | None = None
) -> Path:
    """Build a data set folder, and print its counts and what was dropped; returns the folder."""
    card = find_builder(name)(files, out, downloads=cache / "downloads", **(options or {}))
    counts = card["counts"]
    print(", ".join(f"{counts[kind]:,} {kind}" for kind in ("documents", "queries", "edges")))
    for split, judged in counts["qrels"].items():
        print(f"{split}: {judged['queries']:,} judged queries, {judged['rows']:,} judgements")
    for reason, count in card["dropped"].items():
        print(f"dropped {count:,} x {reason}")
    print(f"hash {card['hash']}")
    return Path(out)
