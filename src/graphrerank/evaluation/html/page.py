"""The whole page: one file that needs no network."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import isnan
from typing import Any

from graphrerank.evaluation.plots import svg_figures
from graphrerank.evaluation.query_browser import QueryBrowser, browser_data
from graphrerank.evaluation.records import DatasetResult, Replication
from graphrerank.evaluation.report import browser_note, notes_of, verdicts
from graphrerank.evaluation.result_tables import dataset_tables
from graphrerank.evaluation.tables import records_table, row_name


def render_html(
    datasets: Mapping[str, DatasetResult],
    across: Sequence[Replication],
    *,
    command: str,
    settings: Mapping[str, Any],
) -> str:
    """Write all results as one HTML page with its own style, script and plots.

    Args:
        datasets: The results, by data set.
        across: What holds over all data sets.
        command: The command that made them.
        settings: What the numbers depend on; ``ties`` is how ties are broken.

    The page forbids itself every request, and every script but its own.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # imported when a page is written
    from markupsafe import Markup

    sources = files("graphrerank.evaluation.html")
    style, *scripts = ((sources / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "browser.js"))
    script = "".join(scripts)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader("graphrerank.evaluation.html", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html.j2").render(
        command=command,
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        style=Markup(style),
        script=Markup(script),
        across=records_table(Replication, across) if across else None,
        sections=[_section(dataset, settings.get("ties", "own")) for dataset in datasets.values()],
        settings={name.replace("_", " "): setting for name, setting in settings.items()},
    )


def _section(dataset: DatasetResult, ties: str) -> Mapping[str, Any]:
    """Return the template's values for a data set."""
    from markupsafe import Markup

    facts = {"queries": f"{len(dataset.query_ids):,}", "systems": len(dataset.systems)}
    if dataset.candidates is not None:
        facts["candidates"] = f"{dataset.candidates:,}"
    browsed = None if dataset.browser is None else _browser_of(dataset, dataset.browser)
    return {
        "dataset": dataset,
        "browser": None if browsed is None else Markup(browsed),
        "browser_note": "" if dataset.browser is None else browser_note(dataset.browser, len(dataset.query_ids)),
        "facts": {**facts, "data": dataset.fingerprint[:12]},
        "verdicts": verdicts(dataset),
        "tables": dataset_tables(dataset),
        "notes": notes_of(dataset, ties),
        "figures": [(Markup(svg), caption) for caption, svg in svg_figures(dataset)],
    }


def _browser_of(dataset: DatasetResult, browser: QueryBrowser) -> str:
    """Write what the page's script reads of single queries, as JSON in which no tag can begin or end."""
    scores = [
        [None if isnan(score) else score for score in dataset.systems[name].values[browser.measure].tolist()]
        for name in browser.systems
    ]
    data = browser_data(browser, dataset.query_texts, dataset.query_ids, dataset.num_relevant, scores)
    data["systems"] = [row_name(name) for name in browser.systems]
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")
