"""Judge pipelines side by side: the same queries, and each pipeline retrieves for itself."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphrerank.data import PreparedDataset, Qrels
from graphrerank.evaluation.judge import Comparison, compare_with_baselines
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.graphs import Queries, Ranking
from graphrerank.metrics import parse_measure, topological_recall
from graphrerank.pipelines import Pipeline

PIPELINE_MEASURES = ("CR@10", "nDCG@10", "R@5", "R@10")
COMPARED_MEASURES = ("CR@10", "nDCG@10")  # of the last pipeline with the others
TOPOLOGICAL_RECALL = "TR"  # over all that was retrieved


@dataclass(frozen=True)
class PipelineResult:
    """What one pipeline achieved on one split.

    Attributes:
        values: ``[Q]`` float64 of each measure.
        measures: Their means, as fractions.
        intervals: 95% bootstrap interval of a mean over queries, lower and upper end.
        ranking: ``[Q, budget]``.
        encodings: Mean pairs that the cross-encoder was asked for, per query.
        ms: Mean milliseconds per query of each stage, many queries at once.
    """

    values: Mapping[str, Tensor]
    measures: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    ranking: Ranking
    encodings: float
    ms: Mapping[str, float]


@dataclass(frozen=True)
class PipelinesResult:
    """All pipelines on one split of one data set.

    Attributes:
        dataset: Name of the data set.
        split: Name of the split.
        query_ids: One per query, in the order of the rankings' rows.
        pipelines: Results by name, in the order of the table's rows.
        comparisons: The last pipeline against each of the others.
    """

    dataset: str
    split: str
    query_ids: Sequence[str]
    pipelines: Mapping[str, PipelineResult]
    comparisons: Sequence[Comparison]

    def to_json(self) -> dict[str, Any]:
        """Return what ``metrics.json`` holds for this data set."""
        return {
            "split": self.split,
            "queries": len(self.query_ids),
            "pipelines": {
                name: {
                    **result.measures,
                    "interval": {measure: list(ends) for measure, ends in result.intervals.items()},
                    "encodings": result.encodings,
                    "ms": dict(result.ms),
                }
                for name, result in self.pipelines.items()
            },
            "comparisons": [{"pipeline": list(self.pipelines)[-1], **asdict(entry)} for entry in self.comparisons],
        }


def judge_pipelines(
    prepared: PreparedDataset,
    split: str,
    pipelines: Mapping[str, Pipeline],
    *,
    measures: Sequence[str] = PIPELINE_MEASURES,
    limit: int | None = None,
) -> PipelinesResult:
    """Retrieve a split's queries with every pipeline, and measure quality, encodings and time.

    Args:
        prepared: The data set, encoded where a pipeline reads vectors; its candidate lists are not used.
        split: The split to judge on.
        pipelines: By name, in the order of the table's rows.
        measures: Names of measures; Topological Recall over all that was retrieved comes on top.
        limit: Judge on the first queries by id alone; on all when None.

    Raises:
        ValueError: If ``limit`` is below 1, or a pipeline reads vectors that are not there.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be a positive integer, got {limit}")
    dataset, qrels = prepared.dataset, prepared.dataset.split(split)
    numbers = sorted(qrels.queries.tolist(), key=lambda number: dataset.query_ids[number])[:limit]
    at = torch.tensor(numbers)
    vectors = None if prepared.query_vectors is None else prepared.query_vectors[at]
    ids, texts = ([strings[number] for number in numbers] for strings in (dataset.query_ids, dataset.query_texts))
    queries, relevant, gains = Queries(ids, texts, vectors), _relevant(qrels, at), qrels.gains(at)
    results = {}
    for name, pipeline in pipelines.items():
        found = pipeline.retrieve(queries)
        relevance = qrels.relevance(at, found.ranking.nodes, num_nodes=dataset.graph.num_nodes)
        values = {measure: parse_measure(measure)(relevance, gains) for measure in measures}
        values[TOPOLOGICAL_RECALL] = topological_recall(dataset.graph, found.ranking.nodes, relevant)
        intervals = bootstrap_interval(torch.stack(list(values.values()))).tolist()
        results[name] = PipelineResult(
            values=values,
            measures={measure: float(per_query.nanmean()) for measure, per_query in values.items()},
            intervals=dict(zip(values, intervals, strict=True)),
            ranking=found.ranking,
            encodings=float(found.num_encodings.double().mean()),
            ms={stage: 1000 * seconds / len(numbers) for stage, seconds in found.seconds.items()},
        )
    compared = [measure for measure in COMPARED_MEASURES if measure in measures]
    values_of = {name: result.values for name, result in results.items()}
    comparisons = compare_with_baselines(values_of, compared, baselines=list(results))
    return PipelinesResult(dataset.name, split, ids, results, comparisons)


def _relevant(qrels: Qrels, queries: Tensor) -> Tensor:
    """List the relevant nodes of each query, ``[Q, R]``, padded with -1."""
    order = torch.argsort(qrels.query, stable=True)
    query, node = qrels.query[order], qrels.node[order]
    ends = [torch.searchsorted(query, queries, right=right).tolist() for right in (False, True)]
    rows = [node[start:stop] for start, stop in zip(*ends, strict=True)]
    return pad_sequence(rows, batch_first=True, padding_value=-1)
