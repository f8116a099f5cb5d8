"""The page of results of ``experiment=grapher_tables``, as Markdown and as one plot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import NOTHING, markdown_table, p_text
from graphrerank.files import save_figure

PAGE_MEASURES = ("PR@5/multi", "PR@5", "PR@10/multi", "PR@10")
BASELINES = ("retriever", "GCS", "MLP")  # what the primary system is tested against
PRIMARY = "GATv2"

Values = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True)
class JudgedSet:
    """Statistics of a data set, independent of any system."""

    name: str  # name of the data set
    num_nodes: int  # passages or tables in the corpus
    num_edges: int  # edges among them, each counted once
    num_queries: int  # queries of the split
    num_several: int  # queries with more than one relevant node
    # share of queries with all relevant nodes among the candidates, by number of candidates
    ceilings: Mapping[int, float]


@dataclass(frozen=True)
class ResultRow:
    """A system, or a variation of one."""

    # `retriever`, `PPR`, `GCS`, `MLP`, `GATv2`, or what an ablation changes. Every `GATv2` needs an `MLP` of its
    # feature mode beside it, and both `retriever` and `GCS`
    name: str
    features: str  # feature mode; empty for a system without training
    runs: Sequence[Values]  # of each seed: data set -> measure -> `[Q]`, NaN = the query does not count
    settings: str = ""  # what was chosen for it, in words
    num_parameters: int = 0  # trained parameters
    seconds: Sequence[float] = ()  # of each seed, time to train on one thread


@dataclass(frozen=True)
class ResultTables:
    """All that the page shows."""

    command: str  # what wrote it
    encoder: str
    top_k: int  # candidates per query
    tuning: str  # what the frozen operators were tuned on, with the number of queries
    search: str  # what the models were trained on and judged on to choose their settings
    training: str  # what the final models were trained on
    grid: str  # the settings that were tried, in words
    tried: Mapping[str, Mapping[str, float]]  # settings in words -> trained system -> its PR@10 with them, a share
    sets: Sequence[JudgedSet]  # the test sets, in the order of the columns
    rows: Sequence[ResultRow]  # the systems
    # variations of one system, with one seed; the first is the system itself
    ablations: Sequence[ResultRow] = field(default_factory=list)
    minutes: float = 0.0  # time of all trainings and judgements together
    workers: int = 1  # processes that shared it


def render_page(tables: ResultTables, *, plot: str | None = None) -> str:
    """Write the page in Markdown; ``plot`` is the file of the plot beside it."""
    seeds = max(len(row.runs) for row in tables.rows)
    parts = [
        "# Results",
        f"Written by\n\n```\n{tables.command}\n```",
        _protocol(tables, seeds),
        "## Test sets\n\n" + _sets_table(tables),
        "## PR@10 at a glance\n\nQueries with more than one relevant node, in brackets all queries; percent, mean over "
        "the seeds.\n\n" + _glance_table(tables) + (f"\n\n![PR@10 by system and data set]({plot})" if plot else ""),
        f"## Every data set\n\nPercent: mean ± standard deviation over {_count(seeds)} [95% interval]. `multi`: only "
        "queries with more than one relevant node. The interval is a percentile bootstrap over queries of their mean "
        "over the seeds: how much the number would change with other queries. **Bold**: the highest of a column.",
        *(f"### {test_set.name}\n\n{_set_table(tables.rows, test_set)}" for test_set in tables.sets),
        "## What the graph and the training add\n\nGATv2 minus another system in PR@10 over all queries, in points; p "
        "of a two-sided paired randomisation test over queries, seeds averaged. MLP reads the same features, including "
        "the GCS score, without message passing.\n\n" + _comparison_table(tables),
    ]
    if tables.ablations:
        first = tables.ablations[0]
        parts.append(
            f"## Ablations\n\nGATv2 with `features={first.features}`, one seed; each row changes one setting "
            "and is trained anew. PR@10 over all queries, percent; in brackets p of a paired randomisation test "
            "against the first row. `model.message_passing=false` is the MLP; with `model.restart_prob=1` the GCS "
            "score is the retriever's score.\n\n" + _ablation_table(tables)
        )
    if len(tables.tried) > 1:
        parts.append(
            "## Every setting that was tried\n\nPR@10 on the validation queries, percent, one seed. **Bold**: the "
            "chosen setting, the first of equals.\n\n" + _tried_table(tables)
        )
    parts.append(
        "## Settings and cost\n\nSeconds: one training on one thread.\n\n"
        + _settings_table(tables)
        + f"\n\nAll training and evaluation together: {tables.minutes:.0f} minutes of one core, shared by "
        f"{tables.workers} {'process' if tables.workers == 1 else 'processes'}, with cached vectors."
    )
    return "\n\n".join(parts) + "\n"


def draw_plot(path: Path, tables: ResultTables) -> None:
    """Draw PR@10 over all queries by system and data set, with its 95% intervals, as a PNG."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

    figure = Figure(figsize=(2.2 * len(tables.sets) + 2, 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.85 / len(tables.rows)
    colors = colormaps["tab20"]  # more of them than the default cycle has
    for rank, row in enumerate(tables.rows):
        over_seeds = [seed_average(row.runs, test_set.name, "PR@10") for test_set in tables.sets]
        heights = torch.stack([100 * values.nanmean() for values in over_seeds])
        ends = torch.stack([100 * bootstrap_interval(values) for values in over_seeds])
        errors = torch.stack([heights - ends[:, 0], ends[:, 1] - heights]).clamp(min=0)
        at = [column + (rank - (len(tables.rows) - 1) / 2) * width for column in range(len(tables.sets))]
        bars = axes.bar(at, heights.tolist(), width, yerr=errors.tolist(), error_kw={"lw": 0.6}, label=_label(row))
        for bar in bars:
            bar.set_color(colors(rank % colors.N))
    axes.set_xticks(range(len(tables.sets)), [test_set.name for test_set in tables.sets])
    axes.set_ylabel("PR@10, percent")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(loc="outside right upper", fontsize="small")
    save_figure(path, figure)


def seed_average(runs: Sequence[Values], dataset: str, measure: str) -> Tensor:
    """Average a measure per query over the seeds, ``[Q]``."""
    return torch.stack([run[dataset][measure] for run in runs]).mean(dim=0)


def _protocol(tables: ResultTables, seeds: int) -> str:
    return f"""## Protocol

That of GraphER (appendix A.3), with {tables.encoder} as the encoder. The retriever is 0.3 BM25 (divided by the query's
maximum) + 0.7 cosine; its top {tables.top_k}, or the whole corpus if that is smaller, are reranked. PR@K is the share
of queries with *all* relevant nodes in the top K.

- Frozen operators: the restart probability of GCS and of PPR is the best of 0.1 to 0.9 in PR@10 on {tables.tuning},
  and is then fixed for all data sets.
- Settings of the models: {tables.search}.
  Tried: {tables.grid}.
- Final models: {tables.training}, with these settings and {_count(seeds)}.
- Nothing is chosen on the test sets: they are used once, at the end.

The paper's encoders have billions of parameters, and its queries and edges differ: compare the rows of this page with
each other, not with the paper's."""


def _count(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{seeds} seeds"


def _sets_table(tables: ResultTables) -> str:
    rows = [
        [
            test_set.name,
            f"{test_set.num_nodes:,}",
            f"{test_set.num_edges:,}",
            f"{test_set.num_queries:,}",
            f"{test_set.num_several:,}",
            f"{100 * test_set.ceilings[tables.top_k]:.1f}",
        ]
        for test_set in tables.sets
    ]
    note = "\n\nCeiling: share of queries with all relevant nodes among the candidates. No reranker's PR can pass it."
    return markdown_table(["data set", "nodes", "edges", "queries", "with several relevant", "ceiling"], rows) + note


def _glance_table(tables: ResultTables) -> str:
    rows = []
    for row in tables.rows:
        cells = []
        for test_set in tables.sets:
            several, everything = (
                _percent(seed_average(row.runs, test_set.name, name)) for name in ("PR@10/multi", "PR@10")
            )
            cells.append(f"{several} ({everything})")
        rows.append([_label(row), *cells])
    return markdown_table(["system", *(test_set.name for test_set in tables.sets)], rows)


def _set_table(systems: Sequence[ResultRow], test_set: JudgedSet) -> str:
    means = {
        measure: [_percent(seed_average(row.runs, test_set.name, measure)) for row in systems]
        for measure in PAGE_MEASURES
    }
    rows = []
    for index, row in enumerate(systems):
        cells = []
        for measure, texts in means.items():
            text = texts[index]
            bold = "**" if text != NOTHING and float(text) == max(map(float, texts)) else ""
            cells.append(f"{bold}{text}{bold}{_spread(row.runs, test_set.name, measure)}")
        rows.append([_label(row), *cells])
    header = [name.replace("/multi", " multi") for name in PAGE_MEASURES]
    return markdown_table(["system", *header], rows)


def _comparison_table(tables: ResultTables) -> str:
    rows = []
    for row in tables.rows:
        if row.name != PRIMARY:
            continue
        others = {other.name: other for other in tables.rows if other.features in ("", row.features)}
        for test_set in tables.sets:
            cells = [_difference(row, others[name], test_set.name) for name in BASELINES]
            rows.append([_label(row), test_set.name, *cells])
    return markdown_table(["system", "data set", *(f"against {name}" for name in BASELINES)], rows)


def _ablation_table(tables: ResultTables) -> str:
    first = tables.ablations[0]
    rows = []
    for row in tables.ablations:
        cells = []
        for test_set in tables.sets:
            ours = seed_average(row.runs, test_set.name, "PR@10")
            p_value = float(paired_randomization(ours, seed_average(first.runs, test_set.name, "PR@10")))
            cells.append(_percent(ours) + ("" if row is first else f" ({p_text(p_value)})"))
        rows.append([row.name, *cells])
    for depth in sorted({depth for test_set in tables.sets for depth in test_set.ceilings}):
        cells = [f"{100 * test_set.ceilings[depth]:.1f}" for test_set in tables.sets]
        rows.append([f"ceiling with {depth} candidates", *cells])
    return markdown_table(["variation", *(test_set.name for test_set in tables.sets)], rows)


def _tried_table(tables: ResultTables) -> str:
    labels = list(next(iter(tables.tried.values())))
    best = {label: max(shares[label] for shares in tables.tried.values()) for label in labels}
    rows, marked = [], set()
    for settings, shares in tables.tried.items():
        cells = []
        for label in labels:
            bold = "**" if shares[label] == best[label] and label not in marked else ""
            marked |= {label} if bold else set()
            cells.append(f"{bold}{100 * shares[label]:.1f}{bold}")
        rows.append([settings, *cells])
    return markdown_table(["settings", *labels], rows)


def _settings_table(tables: ResultTables) -> str:
    rows = [
        [
            _label(row),
            row.settings or NOTHING,
            f"{row.num_parameters:,}" if row.num_parameters else NOTHING,
            f"{mean(row.seconds):.0f}" if row.seconds else NOTHING,
        ]
        for row in tables.rows
    ]
    return markdown_table(["system", "chosen", "parameters", "seconds"], rows)


def _difference(row: ResultRow, other: ResultRow, dataset: str) -> str:
    ours, theirs = (seed_average(system.runs, dataset, "PR@10") for system in (row, other))
    p_value = float(paired_randomization(ours, theirs))
    return f"{100 * float((ours - theirs).nanmean()):+.1f} ({p_text(p_value)})"


def _spread(runs: Sequence[Values], dataset: str, measure: str) -> str:
    """Write the standard deviation over seeds, where there are several, and the interval over queries."""
    low, high = (100 * bootstrap_interval(seed_average(runs, dataset, measure))).tolist()
    if low != low:
        return ""
    by_seed = [100 * float(run[dataset][measure].nanmean()) for run in runs]
    deviation = f" ± {stdev(by_seed):.1f}" if len(by_seed) > 1 else ""
    return f"{deviation} [{low:.1f}, {high:.1f}]"


def _percent(values: Tensor) -> str:
    """Write the mean of ``[Q]`` in percent, a dash where no query counts."""
    share = float(values.nanmean())
    return NOTHING if share != share else f"{100 * share:.1f}"


def _label(row: ResultRow) -> str:
    return f"{row.name} `{row.features}`" if row.features else row.name
