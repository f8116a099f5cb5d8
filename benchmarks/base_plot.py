"""Draw docs/base.png from the table of nDCG@10 by retriever in docs/base.md.

``python benchmarks/base_plot.py`` shows, for every data set and retriever, the nDCG@10 of the retriever's own ranking,
of GCS, and of the shipped checkpoint `base` over the same candidates. benchmarks/base_table.py writes the table.
"""

import argparse
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import MultipleLocator

ROOT = Path(__file__).parents[1]
TITLE = "nDCG@10"
COLUMNS = 4  # number of panels in a row
SYSTEMS = (("retriever", "#8c8c8c", 48), ("GCS", "#f0a202", 14), ("base", "#1f5fa8", 30))  # colour and size of the dot


def read_table(page: str) -> dict[str, dict[str, list[float]]]:
    """Read the table: by data set and condition, the nDCG@10 of the retriever, of GCS and of ``base`` in percent.

    Raises:
        ValueError: If the page has no such table.
    """
    lines = page.splitlines()
    start = next((row for row, line in enumerate(lines) if line.startswith(f"| {TITLE} |")), None)
    if start is None:
        raise ValueError(f"docs/base.md must contain a table that starts with '| {TITLE} |', got none")
    conditions = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    table = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|"))
        numbers = (
            list(map(float, re.findall(r"\d+\.\d", cell)[:3])) for cell in cells
        )  # The number after these is a p-value.
        table[name] = {condition: row for condition, row in zip(conditions, numbers, strict=True) if row}
    return table


def draw(table: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Draw one panel per data set, one line per condition."""
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    conditions = list(dict.fromkeys(name for rows in table.values() for name in rows))
    limits = {
        name: (min(map(min, rows.values())), max(map(max, rows.values())))  # range of the dots in the panel
        for name, rows in table.items()
    }
    span = max(high - low for low, high in limits.values()) + 4  # Equal for all panels, so that gains can be compared.
    height = -(-len(table) // COLUMNS)
    figure, axes = plt.subplots(height, COLUMNS, figsize=(10, 2.1 * height), sharey=True, layout="constrained")
    for axis, (dataset, rows) in zip(axes.flat, table.items(), strict=False):
        for place, condition in enumerate(conditions):
            if condition in rows:
                numbers = rows[condition]
                axis.plot([numbers[0], numbers[-1]], [place, place], color="#c9d8ea", linewidth=3, zorder=1)
                for (_, colour, size), number in zip(SYSTEMS, numbers, strict=True):
                    axis.scatter(number, place, s=size, color=colour, zorder=2)
        axis.set_title(dataset, fontsize=9, loc="left")
        axis.set_yticks(range(len(conditions)), conditions)
        axis.grid(axis="x", color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
        low, high = limits[dataset]
        start = min((low + high - span) / 2, 101 - span)
        axis.set_xlim(start, start + span)
        axis.xaxis.set_major_locator(MultipleLocator(10))
    axes.flat[0].invert_yaxis()
    for axis in axes.flat[len(table) :]:
        axis.axis("off")
    handles = [
        plt.Line2D([], [], linestyle="", marker="o", markersize=size**0.5, color=colour, label=name)
        for name, colour, size in SYSTEMS
    ]
    axes.flat[-1].legend(handles=handles, title=f"{TITLE}, percent", loc="center left", frameon=False)
    figure.savefig(path, dpi=160)


def main() -> None:
    """Read the page and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--page",
        type=Path,
        default=ROOT / "docs" / "base.md",
        help="page that contains the table (default: docs/base.md)",
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "base.png", help="picture to write (default: docs/base.png)"
    )
    arguments = parser.parse_args()
    draw(read_table(arguments.page.read_text(encoding="utf-8")), arguments.out)
    print(arguments.out)


if __name__ == "__main__":
    main()
