"""Findings over several data sets."""

from collections.abc import Sequence

from graphrerank.evaluation.findings import PairedTest, Replication
from graphrerank.evaluation.replicability import combined_randomization, count_replicated, replicated_on
from graphrerank.evaluation.study import DatasetStudy

LEVEL = 0.05


def across_datasets(
    datasets: Sequence[DatasetStudy], *, level: float = LEVEL, permutations: int = 10_000, seed: int = 0
) -> list[Replication]:
    """Count, for each comparison made on two data sets or more, on how many of them the system wins."""
    tests: dict[tuple[str, str, str], list[tuple[DatasetStudy, PairedTest]]] = {}
    for dataset in datasets:
        for test in dataset.tests:
            if test.num_queries:
                tests.setdefault((test.system, test.baseline, test.measure), []).append((dataset, test))
    replications = []
    for (system, baseline, measure), compared in tests.items():
        if len(compared) < 2:
            continue
        names = tuple(dataset.name for dataset, _ in compared)
        p_values = [test.p_greater for _, test in compared]
        differences = [
            dataset.systems[system].values[measure] - dataset.systems[baseline].values[measure]
            for dataset, _ in compared
        ]
        mean, p_combined = combined_randomization(differences, permutations=permutations, seed=seed)
        replications.append(
            Replication(
                system=system,
                baseline=baseline,
                measure=measure,
                datasets=names,
                level=level,
                num_replicated=count_replicated(p_values, level=level),
                num_replicated_fisher=count_replicated(p_values, level=level, method="fisher"),
                replicated=tuple(names[index] for index in replicated_on(p_values, level=level)),
                difference=mean,
                p_combined=p_combined,
            )
        )
    return replications
