"""Elements of HTML and SVG; text is escaped unless it is markup that was made here."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite

VOID = ("meta", "link", "br")


class Markup(str):
    """Text that is markup already."""


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Write an element.

    Args:
        name: Its name.
        children: Its contents; what is no :class:`Markup` is escaped.
        attributes: Escaped. An underscore is a hyphen, one at the end is dropped, None leaves the attribute out;
            numbers keep two decimals.

    Example:
        >>> tag("p", "1 < 2 ", tag("b", "so"), class_="note", data_value=0.125)
        '<p class="note" data-value="0.12">1 &lt; 2 <b>so</b></p>'
    """
    pairs = {key.rstrip("_").replace("_", "-"): entry for key, entry in attributes.items() if entry is not None}
    opening = "".join(f' {key}="{escape(_text(entry))}"' for key, entry in pairs.items())
    if name in VOID:
        return Markup(f"<{name}{opening}>")
    return Markup(f"<{name}{opening}>{join(*children)}</{name}>")


def join(*parts: str) -> Markup:
    """Put parts behind each other; what is no :class:`Markup` is escaped.

    Example:
        >>> join("a & b", tag("br"))
        'a &amp; b<br>'
    """
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: What it shows.
        value: What it sorts by; None or NaN comes last. A text sorts by itself where this is left out.
        note: Smaller, below the text.
        strong: Whether it stands out.
        wraps: Whether it may take several lines: sentences, not names.
    """

    text: str
    value: float | None = None
    note: str = ""
    strong: bool = False
    wraps: bool = False


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]], *, caption: str, text_columns: int = 1) -> Markup:
    """Write a table that a click on a column's name sorts.

    Args:
        header: Names of the columns.
        rows: A cell per column; the first names the row.
        caption: Says what the table shows.
        text_columns: How many columns, from the left, sort as texts; the others as numbers.
    """
    kinds = ["text" if place < text_columns else "number" for place in range(len(header))]
    heads = [
        tag("th", tag("button", name, type="button"), scope="col", class_=kind, data_kind=kind)
        for name, kind in zip(header, kinds, strict=True)
    ]
    body = [
        tag(
            "tr",
            *(_cell(cell, kind, first=not place) for place, (cell, kind) in enumerate(zip(row, kinds, strict=True))),
        )
        for row in rows
    ]
    whole = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body), class_="sortable", aria_label=caption)
    scrolling = tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return join(tag("p", caption, class_="caption"), scrolling)


def figure(plot: Markup, caption: str) -> Markup:
    """Write a plot with what it shows below."""
    return tag("figure", plot, tag("figcaption", caption))


def details(title: str, *children: str, is_open: bool = False) -> Markup:
    """Write a part that folds."""
    return tag("details", tag("summary", title), *children, open="" if is_open else None)


def _cell(cell: Cell, kind: str, *, first: bool) -> Markup:
    text = tag("strong", cell.text) if cell.strong else cell.text
    note = tag("small", cell.note) if cell.note else Markup()
    has_value = cell.value is not None and isfinite(cell.value)
    value = repr(float(cell.value)) if has_value and cell.value is not None else None
    kind = f"{kind} prose" if cell.wraps else kind
    if first:
        return tag("th", text, note, scope="row", class_=kind, data_value=value)
    return tag("td", text, note, class_=kind, data_value=value)


def _text(entry: str | float) -> str:
    if isinstance(entry, str):
        return entry
    return f"{entry:.2f}".rstrip("0").rstrip(".")
