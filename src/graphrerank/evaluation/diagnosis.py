"""Does the graph help? What was measured of a corpus with its edges and without, and a verdict with the next step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.evaluation.records import Counterfactual, EdgesOfType, PairedTest, to_plain
from graphrerank.evaluation.tables import (
    Cell,
    Table,
    build_table,
    number_cell,
    p_cell,
    p_text,
    percent_cell,
    points_cell,
    system_cell,
)
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import EDGE_TYPES

LEVEL, POWER = 0.05, 0.8  # of the tests
WITH, WITHOUT = "with the graph", "without the graph"
DRAFTED = "drafted questions"  # which some of its edges were drawn for
SHUFFLED, REMOVED = "shuffled", "removed"
NOTICEABLE = 0.01  # of a measure, or of the questions: less is no noticeable gain


@dataclass(frozen=True)
class MinimumEffect:
    r"""The smallest mean difference of two systems that a test over some questions finds as a rule.

    .. math:: \delta = (z_{1 - \alpha / 2} + z_{1 - \beta})\, \frac{s}{\sqrt{Q}}

    with :math:`\alpha = 0.05`, two-sided, found in :math:`1 - \beta = 0.8` of all cases, and :math:`s` the standard
    deviation of the questions' differences.

    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 2 (paired samples; the
    normal approximation); for search, Sakai, "Statistical Reform in Information Retrieval?", 2014.
    """

    num_queries: int  # Q, those that count
    deviation: float  # s, as a fraction

    @property
    def effect(self) -> float:
        """The difference, as a fraction."""
        return _factor() * self.deviation / sqrt(self.num_queries)

    def queries_for(self, effect: float) -> int:
        """Return how many questions would show a difference, not 0.

        Example:
            >>> MinimumEffect(num_queries=100, deviation=0.3).queries_for(0.05)
            283
        """
        return ceil((_factor() * self.deviation / effect) ** 2)


def minimum_effect(system: Tensor, baseline: Tensor) -> MinimumEffect | None:
    """Measure the spread of the questions' differences.

    Args:
        system: ``[Q]``, a measure per query; NaN = the query does not count.
        baseline: ``[Q]``, that of the other system.

    Returns:
        None if fewer than two questions count, or none differs: nothing can be said then.
    """
    difference = (system - baseline).double()
    difference = difference[~torch.isnan(difference)]
    if len(difference) < 2 or not bool((difference != difference[0]).any()):
        return None
    return MinimumEffect(len(difference), float(difference.std()))


def _factor() -> float:
    normal = NormalDist()
    return normal.inv_cdf(1 - LEVEL / 2) + normal.inv_cdf(POWER)


@dataclass(frozen=True)
class TypeDensity:
    """The edges of one type in a whole corpus."""

    edges: str  # one of `EDGE_TYPES`
    pairs: int  # that they join; by shared entities, once for each
    mean_neighbours: float  # of a passage
    share_joined: float  # share of the passages that have one


@dataclass(frozen=True)
class GraphShape:
    """A corpus graph."""

    num_passages: int
    types: tuple[TypeDensity, ...]  # those that some edge has
    share_isolated: float  # share of the passages without any edge
    num_components: int  # connected components of two passages or more
    largest_component: float  # share of the passages in the largest one; 0 without edges


def graph_shape(graph: CorpusGraph) -> GraphShape:
    """Describe a corpus's edges, those by shared entities too.

    Example:
        >>> path = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 1], [1, 2]]))
        >>> shape = graph_shape(path)
        >>> shape.types, shape.share_isolated, shape.num_components, shape.largest_component
        ((TypeDensity(edges='other', pairs=2, mean_neighbours=1.0, share_joined=0.75),), 0.25, 1, 0.75)
    """
    graph = graph.to("cpu")
    sizes = _component_sizes(graph)
    return GraphShape(
        num_passages=graph.num_nodes,
        types=tuple(_density(graph.with_types([number]), EDGE_TYPES[number]) for number in graph.edge_types()),
        share_isolated=float((graph.num_neighbours == 0).double().mean()),
        num_components=int((sizes > 1).sum()),
        largest_component=float(sizes.max()) / graph.num_nodes if graph.edge_types() else 0.0,
    )


def _density(graph: CorpusGraph, name: str) -> TypeDensity:
    count = graph.num_neighbours.double()
    return TypeDensity(name, int(count.sum()) // 2, float(count.mean()), float((count > 0).double().mean()))


def _component_sizes(graph: CorpusGraph) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Count the passages of each connected component; entities join the passages that share them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    num_nodes = size = graph.num_nodes
    edges, _, _ = graph.typed_edges()
    pairs = [edges]
    if (entities := graph.entities) is not None:
        passage = torch.repeat_interleave(torch.arange(num_nodes), entities.indptr.diff())
        pairs.append(torch.stack([passage, num_nodes + entities.indices], dim=1))
        size += entities.num_entities
    source, target = torch.cat(pairs).T.numpy()
    _, labels = connected_components(coo_array((np.ones(len(source)), (source, target)), shape=(size, size)))
    return np.bincount(labels[:num_nodes]).astype(np.int64)


@dataclass(frozen=True)
class Diagnosis:
    """Measurements on one corpus and its judged questions."""

    dataset: str  # name
    questions: str  # which ones
    measure: str  # that is tested
    shape: GraphShape
    base_ceiling: float  # share of the questions whose relevant passages are all candidates, before expansion
    ceiling: float  # the same after expansion along all edges
    ceilings: Mapping[str, float]  # after expansion along the edges of one type alone, by type; empty if there is one
    means: Mapping[str, float]  # of the measure, by system
    tests: Sequence[PairedTest]  # of the model with the graph against every other row
    counterfactuals: Sequence[Counterfactual]  # of the model with the graph: the same candidates, other edges
    edges_of_type: Sequence[EdgesOfType]  # between the candidates
    minimum: MinimumEffect | None  # of the difference that the graph makes; None where it makes none anywhere

    @property
    def benefit(self) -> PairedTest:
        """The model with the graph against the model without it."""
        return next(test for test in self.tests if test.baseline == WITHOUT)

    def counterfactual(self, edges: str) -> Counterfactual | None:
        """Return what other edges do; None if they were not tried."""
        return next((found for found in self.counterfactuals if found.edges == edges), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with the verdict."""
        minimum = None if self.minimum is None else {"effect": self.minimum.effect, **to_plain(self.minimum)}
        content: dict[str, Any] = to_plain(self)
        return {
            **content,
            "num_queries": self.benefit.num_queries,
            "minimum_effect": minimum,
            "verdict": to_plain(verdict(self)),
        }


@dataclass(frozen=True)
class GraphVerdict:
    """Whether the graph helps, in a sentence, and what to do next."""

    kind: str  # `helps`, `helps, as other edges do`, `hurts`, `no help`, `no difference`, `unclear` or `drafted`
    sentence: str
    next_step: str


def verdict(found: Diagnosis) -> GraphVerdict:
    """Decide by the paired randomisation tests at the level 0.05, and by the difference that the questions can show."""
    test = found.benefit
    amount = f"{found.measure} {points_cell(test.difference, test.interval)}, {p_text(test.p_randomization)}"
    if found.questions == DRAFTED:
        return GraphVerdict(
            "drafted",
            f"On drafted questions the graph changes {amount}. Most of them were drafted along its edges, so that it "
            "is bound to help: this says that the edges can be used, not that your users need them.",
            "Write some questions of your own into queries.jsonl, and run this again for a set to judge.",
        )
    if found.minimum is None:
        return GraphVerdict(
            "no difference",
            f"The graph makes no difference: no question has another {found.measure} without it.",
            _other_edges(found),
        )
    if test.p_randomization < LEVEL:
        if test.difference < 0:
            return GraphVerdict("hurts", f"The graph hurts: {amount}.", _after_harm(found))
        shuffled = found.counterfactual(SHUFFLED)
        if shuffled is not None and not (shuffled.difference > 0 and shuffled.p_randomization < LEVEL):
            return GraphVerdict(
                "helps, as other edges do",
                f"The graph helps ({amount}), but not by which passages it joins: with shuffled edges among the same "
                f"candidates {found.measure} is {points_cell(shuffled.difference)} lower, "
                f"{p_text(shuffled.p_randomization)}.",
                "Expansion brings the gain; train on your own questions (train.py data.splits=auto) to use the edges, "
                "and see which type leads to relevant passages below.",
            )
        return GraphVerdict("helps", f"The graph helps: {amount}.", _after_help(found))
    if test.interval[1] < NOTICEABLE:
        return GraphVerdict(
            "no help",
            f"The graph does not help noticeably: {amount}, with {test.num_queries:,} questions.",
            _other_edges(found),
        )
    return GraphVerdict(
        "unclear",
        f"{test.num_queries:,} questions do not tell whether the graph helps: {amount}; they would show a difference "
        f"of {100 * found.minimum.effect:.1f} points four times out of five.",
        _more_questions(found, found.minimum),
    )


def _more_questions(found: Diagnosis, minimum: MinimumEffect) -> str:
    if (difference := found.benefit.difference) > 0:
        needed = minimum.queries_for(difference)
        return f"Judge more questions: about {needed:,} would show a difference of {100 * difference:.1f} points."
    return f"Judge more questions, or take other edges. {_other_edges(found)}"


def _after_help(found: Diagnosis) -> str:
    harmful = [name for name, change in _left_out(found).items() if change.difference < 0 and _is_clear(change)]
    if harmful:
        return f"Leave out the edges of type {', '.join(harmful)}, without which the ranking is better."
    return "Keep the graph, and train on your own questions: train.py data.splits=auto."


def _after_harm(found: Diagnosis) -> str:
    left_out = _left_out(found)
    worst = min(left_out, key=lambda name: left_out[name].difference, default=None)
    if worst is not None and left_out[worst].difference < 0 and _is_clear(left_out[worst]):
        return f"Leave out the edges of type {worst} first, which cost most."
    return "Search without it (retriever=hybrid), or train on your own questions, so that the model learns its edges."


def _other_edges(found: Diagnosis) -> str:
    if found.ceiling >= found.base_ceiling + NOTICEABLE:
        return (
            f"Expansion finds more (all that is relevant among the candidates for {100 * found.ceiling:.1f}% of the "
            f"questions, {100 * found.base_ceiling:.1f}% before), and the ranking does not use it: train on your own "
            "questions (train.py data.splits=auto)."
        )
    return (
        "The edges do not lead to relevant passages that the search misses: try others (data.edges=auto, "
        "data.mentions, data.entities; docs/your_data.md), or search without any."
    )


def _left_out(found: Diagnosis) -> dict[str, Counterfactual]:
    """Return what the ranking is without each type of edges, by type."""
    prefix = "without "
    return {
        change.edges.removeprefix(prefix): change for change in found.counterfactuals if change.edges.startswith(prefix)
    }


def _is_clear(change: Counterfactual) -> bool:
    return change.p_randomization < LEVEL


def diagnosis_tables(found: Diagnosis) -> list[Table]:
    """Lay out what was measured: systems, types of edges, other edges."""
    by_name = {test.baseline: test for test in found.tests}
    systems = build_table(
        "systems",
        f"{found.measure} of {found.benefit.num_queries:,} questions ({found.questions}); what {WITH} is ahead, with "
        "95% intervals of the paired bootstrap and p of the paired randomisation test.",
        list(found.means),
        {
            "system": system_cell,
            found.measure: lambda name: percent_cell(found.means[name]),
            "ahead by": lambda name: points_cell(by_name[name].difference) if name in by_name else Cell("-"),
            "interval": lambda name: Cell(_interval(by_name.get(name))),
            "p": lambda name: p_cell(by_name[name].p_randomization) if name in by_name else Cell("-"),
        },
    )
    changes = [change for change in found.counterfactuals if change.edges in (SHUFFLED, REMOVED)]
    other = build_table(
        "other edges",
        "The same candidates with other edges between them: shuffled, so that each passage has as many of each type as "
        "before, and removed; what the true edges are worth.",
        changes,
        {
            "edges": lambda change: Cell(change.edges),
            found.measure: lambda change: percent_cell(change.mean),
            "true edges": lambda change: points_cell(change.difference),
            "p": lambda change: p_cell(change.p_randomization),
            "top 10 changed": lambda change: percent_cell(change.share_changed),
        },
    )
    return [systems, _types(found), other]


def _types(found: Diagnosis) -> Table:
    between = {entry.edges: entry for entry in found.edges_of_type}
    left_out = _left_out(found)

    def expanded(entry: TypeDensity) -> Cell:
        alone = found.ceilings.get(entry.edges, found.ceiling if len(found.shape.types) == 1 else None)
        return percent_cell(alone)

    def reached(entry: TypeDensity) -> Cell:
        return percent_cell(between[entry.edges].share_reached if entry.edges in between else None)

    def worth(entry: TypeDensity) -> Cell:
        return points_cell(left_out[entry.edges].difference) if entry.edges in left_out else Cell("-")

    return build_table(
        "types of edges",
        "Neighbours of a passage in the corpus; ceiling: questions whose relevant passages are all candidates after "
        f"expansion along this type alone ({100 * found.base_ceiling:.1f}% before, {100 * found.ceiling:.1f}% along "
        "all); reached: relevant candidates with a relevant neighbour; worth: what leaving the type out costs.",
        list(found.shape.types),
        {
            "type": lambda entry: Cell(entry.edges),
            "pairs": lambda entry: number_cell(entry.pairs, ",d"),
            "neighbours": lambda entry: number_cell(entry.mean_neighbours),
            "joined": lambda entry: percent_cell(entry.share_joined),
            "ceiling": expanded,
            "reached": reached,
            "worth": worth,
        },
    )


def shape_lines(shape: GraphShape) -> list[str]:
    """Describe how dense the graph is, and its connected parts."""
    listed = [
        f"{entry.edges}: {entry.pairs:,} edges, {entry.mean_neighbours:.2f} neighbours of a passage, "
        f"{100 * entry.share_joined:.1f}% of the passages have one"
        for entry in shape.types
    ]
    return [
        *(listed or ["no edges"]),
        f"{shape.num_passages:,} passages, {100 * shape.share_isolated:.1f}% without an edge; connected "
        f"parts: {shape.num_components:,}, {100 * shape.largest_component:.1f}% of the passages in the largest",
    ]


def ceiling_line(found: Diagnosis) -> str:
    """Describe what expansion finds."""
    return (
        f"all that is relevant is among the candidates for {100 * found.base_ceiling:.1f}% of the questions before "
        f"expansion along the edges, for {100 * found.ceiling:.1f}% after"
    )


def effect_line(found: Diagnosis) -> str:
    """Describe the difference that this number of questions can show."""
    if found.minimum is None:
        return "no question differs with and without the graph"
    return (
        f"{found.minimum.num_queries:,} questions show a difference of {100 * found.minimum.effect:.1f} points of "
        f"{found.measure} between the two in four cases of five (level {LEVEL}); a smaller one less often"
    )


def _interval(test: PairedTest | None) -> str:
    return "-" if test is None else " to ".join(f"{100 * end:+.1f}" for end in test.interval)
