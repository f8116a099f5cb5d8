"""Run ``graphrerank evaluate experiment=fastinsight_curves``: quality by time, budget and FastInsight's two weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from graphrerank_papers.experiments import Experiment, TableRow, write_tables

#: Pipeline whose settings are varied.
VARIED = "fastinsight"
#: Search at the start of all pipelines, and the number of its nodes from which gains are measured.
SEARCH, START = "vector_search", 10
#: Measure of quality. FastInsight's R@10 is capped (section 4.3.1).
QUALITY = "CR@10"
RECALL, NEARNESS, MISSED = "R@10", "TR", "MissTR"

#: Scores ``[Q]`` by measure.
Values = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class FastInsightCurves(Experiment):
    """FastInsight's Figures 4 to 7 and Table 6, with the settings of ``conf/experiment/fastinsight_curves.yaml``.

    Attributes:
        datasets: Names in ``conf/data``.
        pipelines: Names in ``conf/pipeline`` of the pipelines that are compared.
        budgets: Budgets of the pipelines, in nodes per query.
        settings: Settings of FastInsight's steps and the numbers to try. One setting is varied at a time, with the
            largest budget.
        split: Split of the questions.
        num_queries: Maximum number of questions per data set. If None, all are used.
        retriever: Name in ``conf/retriever`` of the retriever for search steps that do not name one.
        encoder: Settings of the text encoder.
        pair_encoder: Settings of the cross-encoder.
    """

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
        """Measure all data sets. ``metrics.json`` and ``report.md`` are written to the run folder after each of them.

        Args:
            parts: Factory of the components.
            run_dir: Run folder.

        Returns:
            Run folder.

        Raises:
            UserError: If a setting is not one of FastInsight's steps, or ``budgets`` is empty.
        """
        default = parts.settings("pipeline", VARIED)
        for name in self.settings:
            if not _steps_with(default, name):
                raise UserError(
                    f"`job.settings` must contain settings of steps of the pipeline {VARIED!r}, got {name!r}"
                )
        tables: dict[str, list[TableRow]] = {}
        report = ""
        if not self.budgets:
            raise UserError("`job.budgets` must contain at least one budget, got none")
        for data in self.datasets:
            for title, row in self._rows(parts, data):
                tables.setdefault(title, []).append(row)
            report = write_tables(run_dir, "FastInsight's curves", tables)
        print(report)
        return run_dir

    def _rows(self, parts: ComponentFactory, data: str) -> Iterator[tuple[str, TableRow]]:
        """Yield the rows of a data set, each with the title of its table."""
        select_queries = partial(judged_queries, split=self.split, limit=self.num_queries)
        prepared = parts.prepare(
            data,
            retriever=self.retriever,
            encoder=self.encoder,
            splits=(self.split,),
            select_queries=select_queries,
        )
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
        dataset, queries = prepared.dataset, select_queries(prepared.dataset)
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
            scores, cost = values[name, size], costs[name, size]
            assert cost is not None
            row = {
                "pipeline": name,
                "budget": size,
                **{measure: float(scores[measure].nanmean()) for measure in (QUALITY, NEARNESS, "nDCG@10")},
                "95% interval": bootstrap_interval(scores[QUALITY]).tolist(),
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
    r"""Correlate a pipeline's gain in recall over its vector search with the Recall and the MissTR of that search.

    .. math:: \Delta R = R_{total} - R@10_{vs}

    Source: FastInsight, Table 6, which does not specify the kind of correlation. We use Pearson's.

    Args:
        start: Scores of the first ten nodes of the vector search.
        end: Scores of the pipeline with its largest budget.
        recall: Name of the recall measure that covers all nodes of the pipeline.

    Returns:
        Correlations ``Recall`` and ``MissTR``. NaN if one of the variables is constant.
    """
    gain = end[recall] - start[RECALL]
    rows = torch.stack([gain, start[RECALL], start[MISSED]]).double()
    is_constant = (rows == rows[:, :1]).all(1)
    correlation = torch.corrcoef(rows).masked_fill(is_constant | is_constant[0], torch.nan)
    return {"Recall": float(correlation[0, 1]), MISSED: float(correlation[0, 2])}


def topological_quartiles(start: Tensor, scores: Tensor) -> list[TableRow]:
    """Group questions by quartiles of the vector search, and average a pipeline's scores in each group.

    A question belongs to the lowest group whose upper quartile is at least its score, so questions with equal scores
    share a group. Empty groups are omitted.

    Source: FastInsight, section 5.3.1 and Figure 5. The paper does not define the groups. Ours use the Topological
    Recall of the first nodes of the vector search, from which all pipelines start.

    Args:
        start: Topological Recall of the vector search ``[Q]``.
        scores: Scores of the pipeline ``[Q]``.

    Returns:
        Table row of each group.

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
    """Return the steps of a pipeline that have a setting, including nested steps."""
    within = [inner for step in group.get("steps", ()) for inner in _steps_with(step, name)]
    return [*([group] if name in group else []), *within]
