"""``python evaluate.py experiment=fastinsight_curves``: quality against time, budget and FastInsight's two weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.config.components import ComponentFactory
from graphrerank.evaluation.measuring import judged_queries, measure_ranking
from graphrerank.evaluation.runners.pipeline import run_pipelines
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.utils.checks import UserError
from graphrerank_papers.experiments import write_tables

VARIED = "fastinsight"  # pipeline whose settings are varied
SEARCH, START = "vector_search", 10  # the search that pipelines begin with, and its first nodes
QUALITY = "CR@10"  # FastInsight's R@10 is capped (section 4.3.1)
RECALL, NEARNESS, MISSED = "R@10", "TR", "MissTR"

Row = dict[str, Any]  # of a table
Values = Mapping[str, Tensor]  # measure -> `[Q]`


@dataclass(frozen=True, kw_only=True)
class FastInsightCurves:
    """FastInsight's Figures 4 to 7 and its Table 6; ``conf/experiment/fastinsight_curves.yaml`` describes settings."""

    datasets: Sequence[str]
    pipelines: Sequence[str]
    budgets: Sequence[int]
    settings: Mapping[str, Sequence[float]]
    split: str
    num_queries: int | None = None
    retriever: str
    encoder: Mapping[str, Any]
    pair_encoder: Mapping[str, Any]

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Measure every data set, and write ``metrics.json`` and ``report.md`` after each."""
        default = parts.settings("pipeline", VARIED)
        for name in self.settings:
            if not _steps_with(default, name):
                raise UserError(f"`job.settings` must name settings of the steps of pipeline {VARIED!r}, got {name!r}")
        tables: dict[str, list[Row]] = {}
        report = ""
        if not self.budgets:
            raise UserError("`job.budgets` must name at least one budget")
        for data in self.datasets:
            for title, row in self._rows(parts, data):
                tables.setdefault(title, []).append(row)
            report = write_tables(run_dir, "FastInsight's curves", tables)
        print(report)
        return run_dir

    def _rows(self, parts: ComponentFactory, data: str) -> Iterator[tuple[str, Row]]:
        """Yield the rows of a data set, each with the name of its table."""
        prepared = parts.prepare(data, retriever=self.retriever, encoder=self.encoder, splits=(self.split,))
        prepared = parts.with_pair_encoder(prepared, self.pair_encoder)
        build = parts.pipeline_factory(prepared, retriever=self.retriever, encoder=self.encoder)
        largest = max(self.budgets)
        pipelines: dict[tuple[str, float], Pipeline] = {(SEARCH, START): build(SEARCH, budget=START)}
        by_budget = list(product(self.pipelines, self.budgets))
        varied = [(name, number) for name, numbers in self.settings.items() for number in numbers]
        pipelines |= {(name, size): build(name, budget=size) for name, size in by_budget}
        for name, number in varied:
            settings = parts.settings("pipeline", VARIED, budget=largest)
            for step in _steps_with(settings, name):
                step[name] = float(number)
            pipelines[name, number] = build(settings)
        dataset, queries = prepared.dataset, judged_queries(prepared.dataset, self.split, self.num_queries)
        named = {f"{kind} {number:g}": pipeline for (kind, number), pipeline in pipelines.items()}
        ranked = run_pipelines(prepared, queries, named)
        measures = tuple(dict.fromkeys((QUALITY, RECALL, f"R@{largest}", NEARNESS, MISSED, "nDCG@10")))
        qrels = dataset.split(self.split)
        values = {
            key: measure_ranking(dataset, qrels, queries, system.ranking, measures)
            for key, system in zip(pipelines, ranked, strict=True)
        }
        costs = {key: system.cost for key, system in zip(pipelines, ranked, strict=True)}
        start = values[SEARCH, START]
        for name, size in by_budget:
            found, cost = values[name, size], costs[name, size]
            assert cost is not None
            row = {
                "pipeline": name,
                "budget": size,
                **{measure: float(found[measure].nanmean()) for measure in (QUALITY, NEARNESS, "nDCG@10")},
                "95% interval": bootstrap_interval(found[QUALITY]).tolist(),
                "pairs": cost.encodings or 0.0,
                "ms per query": sum(cost.batch_ms.values()),
            }
            yield f"{dataset.name}: budget", row
        for name, number in varied:
            quality = float(values[name, number][QUALITY].nanmean())
            yield f"{dataset.name}: {name}", {name: float(number), QUALITY: quality}
        for name in self.pipelines:
            for row in topological_quartiles(start[NEARNESS], values[name, largest][QUALITY]):
                yield f"{dataset.name}: quartiles of {NEARNESS}", {"pipeline": name, **row}
            gains = gain_correlations(start, values[name, largest], recall=f"R@{largest}")
            yield f"{dataset.name}: correlation with the recall gained", {"pipeline": name, **gains}


def gain_correlations(start: Values, end: Values, *, recall: str) -> dict[str, float]:
    r"""Correlate a pipeline's gain over its vector search with that search's Recall and with its MissTR.

    .. math:: \Delta R = R_{total} - R@10_{vs}

    Source: FastInsight, Table 6, which does not say which kind of correlation; ours is Pearson's, NaN where one is
    constant. ``start`` is the first ten nodes of the vector search, ``end`` the pipeline with all its nodes.
    """
    gain = end[recall] - start[RECALL]
    rows = torch.stack([gain, start[RECALL], start[MISSED]]).double()
    is_constant = (rows == rows[:, :1]).all(1)
    found = torch.corrcoef(rows).masked_fill(is_constant | is_constant[0], torch.nan)
    return {"Recall": float(found[0, 1]), MISSED: float(found[0, 2])}


def topological_quartiles(start: Tensor, scores: Tensor) -> list[Row]:
    """Group questions by the quartiles of ``start``, ``[Q]``, and average a pipeline's ``[Q]`` scores in each.

    Equal questions are in one group, the lowest whose quartile they do not exceed; an empty one is left out.

    Source: FastInsight, section 5.3.1 and Figure 5. *Our choice:* the Topological Recall of the vector search's first
    nodes, from which all pipelines begin.

    Example:
        >>> start = torch.tensor([0.0, 0.4, 0.6, 1.0, 1.0])
        >>> [row["questions"] for row in topological_quartiles(start, start)]
        [2, 1, 2]
    """
    group = torch.bucketize(start, torch.quantile(start, torch.tensor([0.25, 0.5, 0.75], dtype=start.dtype)))
    return [
        {
            "quartile": f"Q{number + 1}",
            "TR": [float(start[group == number].min()), float(start[group == number].max())],
            "questions": int((group == number).sum()),
            QUALITY: float(scores[group == number].nanmean()),
            "95% interval": bootstrap_interval(scores[group == number]).tolist(),
        }
        for number in sorted(set(group.tolist()))
    ]


def _steps_with(group: Any, name: str) -> list[Any]:
    """List the steps of a pipeline that have a setting, those within steps too."""
    within = [inner for step in group.get("steps", ()) for inner in _steps_with(step, name)]
    return [*([group] if name in group else []), *within]
