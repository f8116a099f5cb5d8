"""The whole page: one file that asks nothing of a network."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files

from graphrerank.evaluation.findings import Replication
from graphrerank.evaluation.html.cells import plain, points, probability
from graphrerank.evaluation.html.dataset_section import dataset_section, section_id
from graphrerank.evaluation.html.elements import Cell, Markup, join, table, tag
from graphrerank.evaluation.study import Study
from graphrerank.evaluation.tables import row_name


def render_html(study: Study, *, title: str = "Systems side by side", notes: Sequence[str] = ()) -> str:
    """Write a study as one HTML page with its own style, script and plots.

    The page forbids itself every request, and every script but its own.

    Args:
        study: What was found.
        title: Heading of the page.
        notes: Paragraphs below it.
    """
    style, script = (_resource(f"page.{kind}") for kind in ("css", "js"))
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{title}: {', '.join(study.datasets)}"),
        tag("style", style),
    )
    body = tag(
        "body",
        tag(
            "header", tag("h1", title), *(tag("p", note) for note in notes), tag("pre", study.command), _contents(study)
        ),
        tag("main", *_across(study.across), *map(dataset_section, study.datasets.values())),
        tag("footer", _settings(study)),
        tag("script", script),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _contents(study: Study) -> Markup:
    links = [tag("a", name, href=f"#{section_id(name)}") for name in study.datasets]
    return tag("nav", *links, aria_label="Data sets") if len(links) > 1 else Markup()


def _across(across: Sequence[Replication]) -> list[Markup]:
    """On how many data sets a win holds."""
    if not across:
        return []
    rows = [
        [
            Cell(row_name(found.baseline)),
            Cell(found.measure),
            Cell(f"{found.num_replicated} of {len(found.datasets)}", found.num_replicated, ", ".join(found.replicated)),
            plain(found.num_replicated_fisher, ".0f"),
            points(found.difference),
            probability(found.p_combined),
        ]
        for found in across
    ]
    name = row_name(across[0].system)
    header = ["against", "measure", "holds on", "by Fisher", "mean difference", "p of all"]
    caption = f"{name} against the others: on at least how many data sets the win holds (level {across[0].level:g})"
    whole = table(header, rows, caption=caption, text_columns=2)
    return [tag("section", tag("h2", "All data sets"), whole, id="all")]


def _settings(study: Study) -> Markup:
    entries = [join(tag("dt", key.replace("_", " ")), tag("dd", str(entry))) for key, entry in study.settings.items()]
    return tag("dl", *(tag("div", entry) for entry in entries), class_="facts")


def _resource(name: str) -> Markup:
    return Markup((files("graphrerank.evaluation.html") / name).read_text(encoding="utf-8"))
