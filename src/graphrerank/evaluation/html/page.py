"""The whole page: one file that needs no network."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from graphrerank.evaluation.plots import svg_figures
from graphrerank.evaluation.study import DatasetStudy, Study
from graphrerank.evaluation.study_notes import notes_of, verdicts
from graphrerank.evaluation.study_tables import across_table, dataset_tables


def render_html(study: Study, *, title: str = "Systems side by side", notes: Sequence[str] = ()) -> str:
    """Write a study as one HTML page with its own style, script and plots; ``notes`` are paragraphs below the title.

    The page forbids itself every request, and every script but its own.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # imported when a page is written
    from markupsafe import Markup

    style, script = (
        Markup((files("graphrerank.evaluation.html") / f"page.{kind}").read_text(encoding="utf-8"))
        for kind in ("css", "js")
    )
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader("graphrerank.evaluation.html", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        notes=notes,
        command=study.command,
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        style=style,
        script=script,
        across=across_table(study) if study.across else None,
        sections=[_section(dataset, study.settings.get("ties", "own")) for dataset in study.datasets.values()],
        settings={name.replace("_", " "): setting for name, setting in study.settings.items()},
    )


def _section(dataset: DatasetStudy, ties: str) -> Mapping[str, Any]:
    """Return the template's values for a data set."""
    from markupsafe import Markup

    facts = {"queries": f"{len(dataset.query_ids):,}", "systems": len(dataset.systems)}
    if dataset.candidates is not None:
        facts["candidates"] = f"{dataset.candidates:,}"
    return {
        "dataset": dataset,
        "facts": {**facts, "data": dataset.fingerprint[:12]},
        "verdicts": verdicts(dataset),
        "tables": dataset_tables(dataset),
        "notes": notes_of(dataset, ties),
        "figures": [(Markup(svg), caption) for caption, svg in svg_figures(dataset)],
    }
