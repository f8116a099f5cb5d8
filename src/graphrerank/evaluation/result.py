"""Result of an evaluation, and the files in which it is stored."""

import hashlib
import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from graphrerank.core import Ranking
from graphrerank.evaluation.legend import legend
from graphrerank.evaluation.memory import peak_memory_mib
from graphrerank.evaluation.plots import drawn_plots
from graphrerank.evaluation.query_browser import check_browser, first_queries
from graphrerank.evaluation.records import DatasetResult, QueryBrowser, Replication, to_plain
from graphrerank.evaluation.report import (
    best_lines,
    bullets,
    dataset_tables,
    markdown,
    notes_of,
    print_result,
    title_of,
    verdicts,
)
from graphrerank.evaluation.tables import records_table, row_name
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_bytes, write_json, write_text
from graphrerank.utils.run_files import METRICS
from graphrerank.utils.safe_loading import MAX_LARGE_BYTES, check_name, read_json, untrusted_file

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = 3  # version of `result.json`; increase it when older programs cannot read the file
RESULT = "result.json"
QUERIES_FORMAT = 1  # version of `queries.json`
QUERIES = "queries.json"  # file with the single queries of the report


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationResult:
    """Result of an evaluation. All reports are rendered from this record alone.

    Attributes:
        command: Command line, without local folders.
        datasets: Results by name of the data set.
        across: Tests over all data sets. Empty if there is a single data set.
        settings: Settings that affect the numbers, such as ``resamples``, ``level``, ``seed`` and ``ties``.
        config: Configuration of the command, without local folders.
        versions: Versions of the libraries that affect the numbers.
        encoder_counts: Counts of texts and requests of an encoder behind an endpoint. Empty without such an encoder.
    """

    command: str
    datasets: Mapping[str, DatasetResult]
    across: Sequence[Replication] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    encoder_counts: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the data sets with the numbers of queries and systems, for notebooks and debuggers."""
        datasets = [
            f"{dataset.name} {dataset.split}: {len(dataset.query_ids):,} queries, {len(dataset.systems)} systems"
            for dataset in self.datasets.values()
        ]
        return f"EvaluationResult({'; '.join(datasets)})"

    def _repr_html_(self) -> str:
        """Return the tables of means in percent, for notebooks. The largest value of each measure is bold."""
        return "".join(map(_html_means, self.datasets.values()))

    @property
    def ties(self) -> str:
        """Order of passages with equal scores, ``own`` or ``trec``."""
        return str(self.settings.get("ties", "own"))

    def show(self) -> None:
        """Print the table of each data set, with its notes and tests, and a legend below the first one."""
        for number, dataset in enumerate(self.datasets.values()):
            print_result(dataset, ties=self.ties, with_legend=number == 0)

    def to_pandas(self) -> "DataFrame":
        """Return the means as a data frame with one row per data set and system, and one column per measure.

        Raises:
            ImportError: If pandas is not installed.
        """
        try:
            from pandas import DataFrame, MultiIndex
        except ImportError as error:
            raise ImportError("to_pandas() requires pandas: pip install 'graphrerank[pandas]'") from error

        rows = {
            (dataset.name, name): system.means
            for dataset in self.datasets.values()
            for name, system in dataset.systems.items()
        }
        return DataFrame(list(rows.values()), index=MultiIndex.from_tuples(rows, names=["dataset", "system"]))

    def metrics(self) -> dict[str, Any]:
        """Return the content of ``metrics.json``: means, intervals, costs and tests, without single queries."""
        return {
            "datasets": {name: dataset_metrics(dataset) for name, dataset in self.datasets.items()},
            "across": to_plain(self.across),
            "encoder_counts": dict(self.encoder_counts) or None,
            "peak_memory_mib": peak_memory_mib(),
        }

    def markdown(self) -> str:
        """Return all tables and sentences as Markdown."""
        parts = ["# Systems side by side", f"`{self.command}`"]
        for dataset in self.datasets.values():
            parts += [f"## {title_of(dataset)}", bullets([verdict.sentence for verdict in verdicts(dataset)])]
            for table in dataset_tables(dataset):
                parts += [f"### {table.title.capitalize()}", table.caption, markdown(table)]
                if table.title == "quality":
                    parts.append(bullets([*notes_of(dataset, self.ties), *best_lines(dataset)]))
                    parts.append(bullets(legend(dataset, dataset.measures)))
        if self.across:
            table = records_table(Replication, self.across)
            parts += [f"## {table.title.capitalize()}", table.caption, markdown(table)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def html(self) -> str:
        """Return the report as a self-contained HTML page with plots.

        The content security policy of the page forbids network requests and scripts other than its own.
        """
        from jinja2 import Environment, PackageLoader, StrictUndefined  # imported here because only pages need it
        from markupsafe import Markup

        sources = files("graphrerank.evaluation") / "html"
        style, *scripts = ((sources / file).read_text("utf-8") for file in ("page.css", "page.js", "browser.js"))
        script = "".join(scripts)
        digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
        environment = Environment(
            loader=PackageLoader("graphrerank.evaluation", "html"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        return environment.get_template("page.html.j2").render(
            command=self.command,
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
            style=Markup(style),
            script=Markup(script),
            across=records_table(Replication, self.across) if self.across else None,
            sections=[self._section(dataset) for dataset in self.datasets.values()],
            settings={name.replace("_", " "): setting for name, setting in self.settings.items()},
        )

    def _section(self, dataset: DatasetResult) -> Mapping[str, Any]:
        """Return the variables of the page's template for a data set."""
        from markupsafe import Markup

        browser = None if dataset.browser is None else first_queries(dataset.browser)
        return {
            "dataset": dataset,
            "verdicts": verdicts(dataset),
            "tables": dataset_tables(dataset),
            "notes": [*notes_of(dataset, self.ties), *best_lines(dataset)],
            "legend": legend(dataset, dataset.measures),
            "browsed": browser,
            "browser": None if browser is None else Markup(browser_json(browser)),
            "figures": [(Markup(svg), picture.caption) for picture, svg, _ in drawn_plots(dataset)],
        }

    def save(self, folder: str | Path, *, report: bool = True) -> Path:
        """Write ``metrics.json``, ``result.json`` with the scores of every query, run files and the report.

        ``queries.json`` has the first passages of every system for every query, from which a comparison of runs shows
        single queries.

        Args:
            folder: Folder to write to. Run files are written to its subfolder ``runs``, unless the result was read
                with :meth:`load` and therefore has no rankings.
            report: Whether to write the report (:meth:`save_report`).

        Returns:
            Path of the folder.
        """
        folder = self.save_report(folder) if report else Path(folder)
        for dataset in self.datasets.values():
            for name, system in dataset.systems.items():
                if system.ranking is not None:
                    run = trec_run(dataset.query_ids, dataset.node_ids, system.ranking, tag=name)
                    write_text(folder / "runs" / f"{dataset.name}.{name}.trec", run)
        write_json(folder / METRICS, self.metrics())
        write_text(folder / RESULT, json.dumps({"format": FORMAT, **self._content()}, allow_nan=False) + "\n")
        browsers = {name: to_plain(dataset.browser) for name, dataset in self.datasets.items() if dataset.browser}
        if browsers:
            write_text(folder / QUERIES, json.dumps({"format": QUERIES_FORMAT, "datasets": browsers}) + "\n")
        return folder

    def _content(self) -> Any:
        """Return the content of ``result.json``, which excludes rankings, ids of passages and single queries."""
        datasets = {}
        for name, dataset in self.datasets.items():
            systems = {key: replace(system, ranking=None) for key, system in dataset.systems.items()}
            datasets[name] = replace(dataset, systems=systems, node_ids=(), browser=None)
        content = to_plain(replace(self, datasets=datasets))
        for dataset in content["datasets"].values():
            del dataset["browser"]
        return content

    def save_report(self, folder: str | Path) -> Path:
        """Write ``report.md``, ``report.html`` and ``plots/*.png``.

        All files are rendered before the first one is written, so an error leaves the folder unchanged.

        Args:
            folder: Folder to write to.

        Returns:
            Path of the folder.
        """
        folder = Path(folder)
        texts = {"report.md": self.markdown(), "report.html": self.html()}
        plots = {plot.name: png for dataset in self.datasets.values() for plot, _, png in drawn_plots(dataset)}
        for name, text in texts.items():
            write_text(folder / name, text)
        for name, png in plots.items():
            write_bytes(folder / "plots" / (re.sub(r"[^\w.@ -]", "-", name) + ".png"), png)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "EvaluationResult":
        """Read a result that was written by :meth:`save`. Whole rankings are not read.

        Args:
            folder: Folder of a finished evaluation.

        Returns:
            Result without rankings, and with single queries if the folder has a ``queries.json``.

        Raises:
            UserError: If the folder has no ``result.json``, or if a file is invalid.
        """
        file = Path(folder) / RESULT
        if not file.is_file():
            raise UserError(f"{file} does not exist. Pass the folder of a finished run of graphrerank evaluate")
        with _reading(file, "a valid result"):
            content = read_json(untrusted_file(Path(folder), RESULT), max_bytes=MAX_LARGE_BYTES)
            if content["format"] != FORMAT:
                raise UserError(f"the format must be {FORMAT}, got {content['format']!r}")
            for dataset in content["datasets"].values():
                check_name(name=dataset["name"])  # file names contain the name
            result = TypeAdapter(cls).validate_python(content)
        browsers = _read_browsers(Path(folder), result.datasets)
        datasets = {name: replace(dataset, browser=browsers.get(name)) for name, dataset in result.datasets.items()}
        return replace(result, datasets=datasets)


@contextmanager
def _reading(file: Path, kind: str) -> Iterator[None]:
    """Refuse a file whose content has another form."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise UserError(f"{file} is not {kind} ({location}: {first['msg']})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is not {kind} ({error!r})") from error


def _read_browsers(folder: Path, datasets: Mapping[str, DatasetResult]) -> dict[str, QueryBrowser]:
    """Return the single queries of a run folder by data set. Empty for runs of older versions."""
    file = folder / QUERIES
    if not file.is_file():
        return {}
    with _reading(file, "a valid list of queries"):
        content = read_json(untrusted_file(folder, QUERIES), max_bytes=MAX_LARGE_BYTES)
        if content["format"] != QUERIES_FORMAT:
            raise UserError(f"the format must be {QUERIES_FORMAT}, got {content['format']!r}")
        browsers = TypeAdapter(dict[str, QueryBrowser]).validate_python(content["datasets"])
        for name, browser in browsers.items():
            check_browser(browser, datasets[name])
    return browsers


def browser_json(browser: QueryBrowser) -> str:
    """Return the single queries of a page as JSON that contains no markup.

    Args:
        browser: Single queries with all rankings.
    """
    content = to_plain(replace(browser, systems=list(map(row_name, browser.systems))))
    return json.dumps(content, allow_nan=False).replace("<", "\\u003c")


def dataset_metrics(dataset: DatasetResult) -> dict[str, Any]:
    """Return the entry of a data set in ``metrics.json``: means, intervals, costs and tests.

    The entry ``latency_ms`` of a reranker excludes the search for candidates, which ``cost`` includes.

    Args:
        dataset: Results of the data set.
    """
    systems = {
        name: {
            **system.means,
            "interval": {measure: list(ends) for measure, ends in system.intervals.items() if not math.isnan(ends[0])},
            "latency_ms": {} if system.cost is None else dict(system.cost.latency_ms),
            "cost": None if system.cost is None else vars(system.cost),
            "routes": dict(system.routes),
            **system.extra,
            "missing": len(system.missing),
            "tied_share": system.tied_share,
        }
        for name, system in dataset.systems.items()
    }
    return {
        "split": dataset.split,
        **({"drafted": True} if dataset.drafted else {}),
        "queries": len(dataset.query_ids),
        "candidates": dataset.candidates,
        "ceiling": dataset.ceiling,
        "base_ceiling": dataset.base_ceiling,
        "notes": list(dataset.notes),
        "systems": systems,
        **dataset.extra,
        "comparisons": [{**to_plain(test), "p_value": test.p_randomization} for test in dataset.tests],
    }


def trec_run(query_ids: Sequence[str], node_ids: Sequence[str], ranking: Ranking, *, tag: str) -> str:
    """Return a ranking in the run format of TREC: query id, ``Q0``, document id, rank (from 1), score and tag.

    Args:
        query_ids: Ids of the ``Q`` queries.
        node_ids: Ids of the passages of the corpus.
        ranking: Ranking ``[Q, K]``.
        tag: Name of the system.

    Returns:
        Content of the run file, one line per passage.
    """
    lists = []
    for query_id, nodes, scores in zip(query_ids, ranking.nodes.tolist(), ranking.scores.tolist(), strict=True):
        length = sum(node >= 0 for node in nodes)
        lists.append(trec_lines(query_id, [node_ids[node] for node in nodes[:length]], scores[:length], tag=tag))
    return "".join(lists)


def trec_lines(query_id: str, passage_ids: Sequence[str], scores: Sequence[float], *, tag: str) -> str:
    """Return the ranking of one query in the run format of TREC.

    Args:
        query_id: Id of the query.
        passage_ids: Ids of the passages, best first.
        scores: Scores of the passages.
        tag: Name of the system.

    Returns:
        One line per passage.

    Example:
        >>> print(trec_lines("q1", ["d3", "d1"], [0.5, 0.25], tag="mine"), end="")
        q1 Q0 d3 1 0.5 mine
        q1 Q0 d1 2 0.25 mine
    """
    ranked = enumerate(zip(passage_ids, scores, strict=True), 1)
    return "".join(f"{query_id} Q0 {passage} {rank} {score:.9g} {tag}\n" for rank, (passage, score) in ranked)


def _html_means(dataset: DatasetResult) -> str:
    """Return the means of a data set's systems as an HTML table."""
    systems = dataset.systems
    measures = list(dict.fromkeys(measure for system in systems.values() for measure in system.means))
    best = {measure: max(system.means.get(measure, 0.0) for system in systems.values()) for measure in measures}
    rows = []
    for name, system in systems.items():
        cells = [f"<th>{escape(name)}</th>"]
        for measure in measures:
            mean = system.means.get(measure)
            text = "" if mean is None else f"{100 * mean:.1f}"
            cells.append(f"<td><b>{text}</b></td>" if mean == best[measure] else f"<td>{text}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    caption = f"{dataset.name} {dataset.split}: {len(dataset.query_ids):,} queries, percent"
    header = "".join(f"<th>{escape(measure)}</th>" for measure in ("system", *measures))
    return f"<table><caption>{escape(caption)}</caption><tr>{header}</tr>{''.join(rows)}</table>"
