"""The builders by name, and the one call that makes a folder of files."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graphrerank.checks import check_choice
from graphrerank.data.builders.beaver import build_beaver
from graphrerank.data.builders.bird import build_bird
from graphrerank.data.builders.draft import Draft, Origin, check_empty, write_dataset
from graphrerank.data.builders.raw_files import RawFiles
from graphrerank.data.builders.spider import build_spider
from graphrerank.data.readers.fetch import Downloader, download


@dataclass(frozen=True)
class Builder:
    """How a data set is made of its authors' files."""

    title: str
    license: str
    page: str  # where the authors publish the files
    files: str  # those to give
    build: Callable[..., Draft]  # of :class:`RawFiles`; its keyword arguments are the options


BUILDERS: Mapping[str, Builder] = {
    "spider": Builder(
        "Spider 1.0 table retrieval",
        "CC BY-SA 4.0",
        "https://yale-lily.github.io/spider",
        "spider_data.zip, or tables.json with any of train_spider.json, train_others.json, dev.json, test.json",
        build_spider,
    ),
    "bird": Builder(
        "BIRD table retrieval",
        "CC BY-SA 4.0",
        "https://bird-bench.github.io",
        "train.json with train_tables.json, dev.json with dev_tables.json, or archives of them",
        build_bird,
    ),
    "beaver": Builder(
        "BEAVER table retrieval",
        "as its gated page says",
        "https://peterbaile.github.io/beaver",
        "dev.json and dev_tables.json of one warehouse",
        build_beaver,
    ),
}


def build_dataset(
    name: str,
    locations: Sequence[str],
    out: str | Path,
    *,
    downloads: Path,
    options: Mapping[str, Any] | None = None,
    downloader: Downloader = download,
) -> dict[str, Any]:
    """Make a data set folder of a data set's public files.

    Args:
        name: One of :data:`BUILDERS`.
        locations: As of :class:`~graphrerank.data.builders.raw_files.RawFiles`.
        out: The folder to write; must not exist, or be empty.
        downloads: Folder that keeps what is downloaded.
        options: Settings of the builder, by name.
        downloader: Downloads a location to a path.

    Returns:
        The card: name, licence, files read, counts, what was dropped, hashes.

    Raises:
        ValueError: If a name, option or file is wrong; no folder is left then.
    """
    check_choice(sorted(BUILDERS), build=name)
    check_empty(Path(out))
    builder, given = BUILDERS[name], dict(options or {})
    known = [key for key, each in inspect.signature(builder.build).parameters.items() if each.kind is each.KEYWORD_ONLY]
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"`options` of {name} must be of {known}, got {unknown[0]!r}")
    files = RawFiles(locations, downloads=downloads, downloader=downloader)
    settings = "".join(f" options.{key}={given[key]}" for key in sorted(given))
    origin = Origin(
        builder.title, builder.license, builder.page, f"graphrerank {version('graphrerank')} build={name}{settings}"
    )
    return write_dataset(builder.build(files, **given), Path(out), origin, files)
