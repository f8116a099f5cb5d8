"""The part of the report on one data set."""

from math import isnan

from graphrerank.evaluation.findings import PairedTest
from graphrerank.evaluation.html.dataset_tables import cost_table, quality_table, systems_table
from graphrerank.evaluation.html.elements import Markup, details, figure, join, tag
from graphrerank.evaluation.html.finding_tables import (
    breakdown_table,
    counterfactuals_table,
    differences_table,
    hubs_table,
    reliability_table,
    seeds_table,
    tests_table,
)
from graphrerank.evaluation.html.plots import differences_plot, intervals_plot, pareto_plot, reliability_plot
from graphrerank.evaluation.pareto import pareto_points
from graphrerank.evaluation.study import DatasetStudy
from graphrerank.evaluation.study_report import EXPLAINED
from graphrerank.evaluation.study_tables import interval_text, p_cell
from graphrerank.evaluation.tables import row_name


def dataset_section(dataset: DatasetStudy) -> Markup:
    """Write everything that a study holds of a data set."""
    parts = [
        tag("h2", dataset.name, " ", tag("span", dataset.split, class_="split")),
        _facts(dataset),
        _verdict(dataset),
        quality_table(dataset),
        tag("div", *_plots(dataset), class_="plots"),
        _costs(dataset),
    ]
    if dataset.tests:
        parts.append(details("Statistics", _explained("tests"), tests_table(dataset.tests), is_open=True))
    parts += [part for part in (_queries(dataset), _analyses(dataset)) if part]
    if dataset.reliability:
        parts.append(details("Calibration", _explained("calibration"), reliability_table(dataset)))
    parts.append(details("Systems", systems_table(dataset)))
    return tag("section", *parts, id=section_id(dataset.name))


def section_id(name: str) -> str:
    """Return the place of a data set in the page."""
    return f"data-{name}"


def _explained(part: str) -> Markup:
    return tag("p", EXPLAINED[part], class_="caption")


def _facts(dataset: DatasetStudy) -> Markup:
    facts = {"queries": f"{len(dataset.query_ids):,}", "systems": f"{len(dataset.systems)}"}
    if dataset.candidates is not None:
        facts["candidates"] = f"{dataset.candidates:,}"
    if dataset.ceiling is not None:
        facts["ceiling of PR"] = f"{100 * dataset.ceiling:.1f}%"
    if dataset.base_ceiling not in (None, dataset.ceiling):
        facts["before expansion"] = f"{100 * (dataset.base_ceiling or 0):.1f}%"
    facts["data"] = dataset.fingerprint[:12]
    return tag("dl", *(tag("div", tag("dt", key), tag("dd", text)) for key, text in facts.items()), class_="facts")


def _verdict(dataset: DatasetStudy) -> Markup:
    """Say in sentences what the tests of the first measure say."""
    if not dataset.tests:
        return Markup()
    name, lines = row_name(dataset.primary), []
    for test in dataset.tests:
        if test.measure != dataset.tested[0] or isnan(test.difference):
            continue
        by = f"{100 * abs(test.difference):.1f} points of {test.measure}"
        if test.interval[0] <= 0 <= test.interval[1] or not test.p_holm < 0.05:
            verb = "cannot be told from"
            lines.append(tag("li", tag("strong", name), f" {verb} {row_name(test.baseline)} ({_evidence(test)})"))
        else:
            verb, kind = ("is ahead of", "ahead") if test.difference > 0 else ("is behind", "behind")
            text = f" {verb} {row_name(test.baseline)} by {by} ({_evidence(test)})"
            lines.append(tag("li", tag("strong", name), text, class_=kind))
    return tag("ul", *lines, class_="verdict")


def _evidence(test: PairedTest) -> str:
    p = p_cell(test.p_holm)
    return f"95% {interval_text(test.interval, signed=True)}, p {p if p.startswith('<') else f'= {p}'} after Holm"


def _plots(dataset: DatasetStudy) -> list[Markup]:
    plots = [plot for measure in dataset.tested for plot in _means_plots(dataset, measure)]
    left_out = [row_name(name) for name, system in dataset.systems.items() if system.cost is None]
    for measure in dataset.tested:
        if points := pareto_points(dataset, measure):
            caption = f"{measure} against time; the line is the front, hollow points are dominated"
            caption += f"; without a known time: {', '.join(left_out)}" if left_out else ""
            plots.append(figure(pareto_plot(points, measure), caption))
    for found in dataset.reliability:
        caption = f"{row_name(found.system)}: a score as a probability ({found.method}), ECE {found.ece:.4f}"
        plots.append(figure(reliability_plot(found), caption))
    return plots


def _means_plots(dataset: DatasetStudy, measure: str) -> list[Markup]:
    """Draw the systems' means, and the differences from the primary one's."""
    plots = []
    rows = [
        (row_name(name), system.means[measure], system.intervals[measure])
        for name, system in dataset.systems.items()
        if measure in system.intervals and not isnan(system.means[measure] + system.intervals[measure][0])
    ]
    if rows:
        plot = intervals_plot(rows, primary=row_name(dataset.primary), measure=measure)
        plots.append(figure(plot, f"{measure} of every system; blue: {row_name(dataset.primary)}"))
    tests = [test for test in dataset.tests if test.measure == measure and not isnan(test.difference)]
    if tests:
        plots.append(
            figure(
                differences_plot(tests),
                f"Gain in {measure}; blue, a gain, and orange, a loss: the interval leaves 0 out",
            )
        )
    return plots


def _costs(dataset: DatasetStudy) -> Markup:
    if all(system.cost is None for system in dataset.systems.values()):
        return Markup()
    return details("Cost", _explained("cost"), cost_table(dataset), is_open=True)


def _queries(dataset: DatasetStudy) -> Markup:
    if not dataset.query_differences:
        return Markup()
    found = dataset.query_differences
    gains = [one for one in found if one.system_score > one.baseline_score]
    losses = [one for one in found if one.system_score < one.baseline_score]
    name = row_name(dataset.primary)
    tables = [
        differences_table(part, caption=caption)
        for part, caption in (
            (gains, f"Where {name} gains most, {found[0].measure} in percent"),
            (losses, f"Where {name} loses most, {found[0].measure} in percent"),
        )
        if part
    ]
    return details("Queries that differ most", *tables)


def _analyses(dataset: DatasetStudy) -> Markup:
    parts = []
    if dataset.breakdowns:
        groups = list(dict.fromkeys(found.by for found in dataset.breakdowns))
        parts.append(details("Kinds of queries", *(breakdown_table(dataset, by) for by in groups)))
    if dataset.counterfactuals:
        parts.append(details("Does the graph matter?", _explained("other edges"), counterfactuals_table(dataset)))
    if dataset.hub_bias:
        parts.append(details("Hubs", _explained("hubs"), hubs_table(dataset)))
    if dataset.seed_spreads:
        parts.append(details("Seeds", seeds_table(dataset)))
    return join(*parts)
