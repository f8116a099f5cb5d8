"""The result of an evaluation: everything that was measured, and its files."""

import hashlib
import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from graphrerank.core import Ranking
from graphrerank.evaluation.memory import peak_memory_mib
from graphrerank.evaluation.plots import drawn_plots
from graphrerank.evaluation.records import DatasetResult, Replication, to_plain
from graphrerank.evaluation.report import (
    bullets,
    dataset_tables,
    markdown,
    notes_of,
    print_result,
    title_of,
    verdicts,
)
from graphrerank.evaluation.tables import records_table
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_bytes, write_json, write_text
from graphrerank.utils.safe_loading import MAX_LARGE_BYTES, check_name, read_json, untrusted_file

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = 3  # raise when an older program can no longer read it
RESULT, METRICS = "result.json", "metrics.json"


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """Everything that an evaluation measured; reports are rendered from it, and from nothing else."""

    command: str  # the command that made it, without folders of this machine
    datasets: Mapping[str, DatasetResult]  # by name
    across: Sequence[Replication] = ()  # what holds over all data sets; empty where there is one
    # what the numbers depend on besides the data: resamples, level, seed, the rule for ties
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)  # the command's settings, without folders of this machine
    versions: Mapping[str, str] = field(default_factory=dict)  # of the libraries that decide a result
    # counts of an encoder behind an endpoint over the whole evaluation; empty without one
    encoder_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def ties(self) -> str:
        """How ties are broken."""
        return str(self.settings.get("ties", "own"))

    def show(self) -> None:
        """Print the table of each data set, with its notes and tests."""
        for dataset in self.datasets.values():
            print_result(dataset, ties=self.ties)

    def to_pandas(self) -> "DataFrame":
        """Return the means as a data frame: a row per data set and system, a column per measure."""
        try:
            from pandas import DataFrame, MultiIndex
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install 'graphrerank[pandas]'") from error

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
                    parts.append(bullets(notes_of(dataset, self.ties)))
        if self.across:
            table = records_table(Replication, self.across)
            parts += [f"## {table.title.capitalize()}", table.caption, markdown(table)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def html(self) -> str:
        """Return the report as one HTML page with plots, which forbids itself every request and all other scripts."""
        from jinja2 import Environment, PackageLoader, StrictUndefined  # imported when a page is written
        from markupsafe import Markup

        sources = files("graphrerank.evaluation") / "html"
        style, script = ((sources / file).read_text("utf-8") for file in ("page.css", "page.js"))
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
        """Return the template's values for a data set."""
        from markupsafe import Markup

        return {
            "dataset": dataset,
            "verdicts": verdicts(dataset),
            "tables": dataset_tables(dataset),
            "notes": notes_of(dataset, self.ties),
            "figures": [(Markup(svg), picture.caption) for picture, svg, _ in drawn_plots(dataset)],
        }

    def save(self, folder: str | Path, *, report: bool = True) -> Path:
        """Write ``metrics.json``, ``runs/*.trec``, ``result.json`` with every query's scores, and the report.

        Run files are written where the rankings are known: a result that was read back has none.
        """
        folder = self.save_report(folder) if report else Path(folder)
        for dataset in self.datasets.values():
            for name, system in dataset.systems.items():
                if system.ranking is not None:
                    run = trec_run(dataset.query_ids, dataset.node_ids, system.ranking, tag=name)
                    write_text(folder / "runs" / f"{dataset.name}.{name}.trec", run)
        write_json(folder / METRICS, self.metrics())
        write_text(folder / RESULT, json.dumps({"format": FORMAT, **self._content()}, allow_nan=False) + "\n")
        return folder

    def _content(self) -> Any:
        """Return what ``result.json`` holds: everything but rankings and ids of passages."""
        datasets = {}
        for name, dataset in self.datasets.items():
            systems = {key: replace(system, ranking=None) for key, system in dataset.systems.items()}
            datasets[name] = replace(dataset, systems=systems, node_ids=())
        return to_plain(replace(self, datasets=datasets))

    def save_report(self, folder: str | Path) -> Path:
        """Write ``report.md``, ``report.html`` and ``plots/*.png``; if one cannot be rendered, no file is written."""
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
        """Read the result that :meth:`save` wrote into a folder, without rankings; a ValueError if it is damaged."""
        file = Path(folder) / RESULT
        if not file.is_file():
            raise UserError(f"{file}: no such file; needed the folder of a finished run of evaluate.py")
        try:
            content = read_json(untrusted_file(Path(folder), RESULT), max_bytes=MAX_LARGE_BYTES)
            if content["format"] != FORMAT:
                raise UserError(f"needed format {FORMAT}, found {content['format']!r}")
            for dataset in content["datasets"].values():
                check_name(name=dataset["name"])  # a part of file names
            return TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"]))
            raise UserError(f"{file}: not a result that can be read ({at}: {first['msg']})") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file}: not a result that can be read ({error!r})") from error


def dataset_metrics(dataset: DatasetResult) -> dict[str, Any]:
    """Return the entry of a data set in ``metrics.json``: means by the measures' names, and other results.

    ``latency_ms`` is the system's own time: of a reranker without the search for candidates, which ``cost`` includes.
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
    """Write a ranking in TREC's run format: query id, ``Q0``, document id, rank from 1, score, tag."""
    lines = []
    for query_id, nodes, scores in zip(query_ids, ranking.nodes.tolist(), ranking.scores.tolist(), strict=True):
        ranked = [(node, score) for node, score in zip(nodes, scores, strict=True) if node >= 0]
        lines += [
            f"{query_id} Q0 {node_ids[node]} {rank} {score:.9g} {tag}\n" for rank, (node, score) in enumerate(ranked, 1)
        ]
    return "".join(lines)
