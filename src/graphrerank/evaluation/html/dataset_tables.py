"""The tables of one data set's systems: quality, cost, and where they come from."""

from math import isnan

from graphrerank.evaluation.cost import TOTAL
from graphrerank.evaluation.html.cells import percent, plain
from graphrerank.evaluation.html.elements import Cell, Markup, table
from graphrerank.evaluation.study import DatasetStudy, SystemStudy
from graphrerank.evaluation.tables import row_name


def quality_table(dataset: DatasetStudy) -> Markup:
    """Every system and every measure, percent, with 95% intervals; the highest of a column stands out."""
    measures = dataset.measures
    best = {
        m: max((s.means[m] for s in dataset.systems.values() if not isnan(s.means[m])), default=0) for m in measures
    }
    rows = []
    for name, system in dataset.systems.items():
        means = system.means
        cells = [percent(means[m], system.intervals.get(m), strong=means[m] == best[m]) for m in measures]
        rows.append([Cell(row_name(name)), *cells])
    caption = "Quality in percent, 95% bootstrap intervals over queries below; bold: the highest of a column"
    return table(["system", *measures], rows, caption=caption)


def cost_table(dataset: DatasetStudy) -> Markup:
    """What each system takes, stage by stage."""
    costs = {name: system.cost for name, system in dataset.systems.items() if system.cost is not None}
    stages = list(dict.fromkeys(stage for cost in costs.values() for stage in cost.ms if stage != TOTAL))
    shown = [TOTAL, *stages] if len(stages) > 1 else [TOTAL]
    rows = []
    for name, cost in costs.items():
        quantiles = [plain(cost.ms.get(stage, {}).get(q)) for stage in shown for q in ("p50", "p95")]
        others = [plain(cost.encodings, ",.0f"), plain(cost.tokens, ",.0f"), plain(cost.peak_memory_mib, ",.0f")]
        rows.append([Cell(row_name(name)), *quantiles, *others])
    header = [f"{stage} {q} ms" for stage in shown for q in ("p50", "p95")]
    return table(
        ["system", *header, "pairs read", "words in the top 10", "peak MiB"],
        rows,
        caption="Cost of a query, one at a time",
    )


def systems_table(dataset: DatasetStudy) -> Markup:
    """Where the systems come from, and what they left out."""
    rows = [
        [
            Cell(row_name(name)),
            Cell(system.kind),
            Cell(system.source, wraps=True),
            _missing(system),
            percent(system.tied_share),
        ]
        for name, system in dataset.systems.items()
    ]
    caption = "Systems; queries that a system ranked nothing for count as zero; tied: a tie within the top 10, percent"
    return table(["system", "kind", "source", "queries missing", "tied"], rows, caption=caption, text_columns=3)


def _missing(system: SystemStudy) -> Cell:
    shown = ", ".join(system.missing[:3]) + (", …" if len(system.missing) > 3 else "")
    return Cell(f"{len(system.missing):,}", len(system.missing), shown)
