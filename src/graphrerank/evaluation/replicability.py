"""The number of data sets on which a win replicates: partial conjunction, and one test over all of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphrerank.evaluation.records import DatasetResult, PairedTest, Replication
from graphrerank.evaluation.significance import TOLERANCE, flipped_sums, holm

LEVEL = 0.05


def count_replicated(p_values: Sequence[float], *, level: float = LEVEL) -> int:
    r"""Count the data sets on which an effect replicates, by partial conjunction.

    .. math:: p^{u/n} = (n - u + 1)\, p_{(u)}

    tests whether an effect is there on at least u of n data sets, however they depend on each other (Bonferroni). The
    count is the largest u with all hypotheses up to it rejected; the chance that it is too large is at most ``level``.

    Source: Benjamini and Heller, "Screening for Partial Conjunction Hypotheses", 2008; Dror, Baumer, Bogomolov and
    Reichart, "Replicability Analysis for Natural Language Processing", 2017, Eq. (2) and (4).

    Example:
        >>> count_replicated([0.2, 0.001, 0.01])  # one-sided, one per data set: 0.003, 0.02 and 0.2
        2
    """
    ordered = torch.tensor(sorted(p_values), dtype=torch.float64)
    left = torch.arange(len(ordered), 0, -1, dtype=torch.float64)  # n - u + 1
    return int(((left * ordered).cummax(0).values <= level).sum())


def combined_randomization(
    differences: Sequence[Tensor], *, permutations: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    r"""Test the mean over data sets of mean differences, by sign flips of all queries of all data sets, two-sided.

    .. math:: \bar d = \frac{1}{n} \sum_k \frac{1}{Q_k} \sum_q d_{kq}

    It asks whether the win would hold with other queries of the same data sets; not whether on other data sets. Each
    data set counts the same, however many queries it has. ``differences`` are ``[Q_k]``, NaN = the query does not
    count. Returns the mean difference and its p-value; NaN where a data set has no query that counts.
    """
    counting = [of_dataset[~of_dataset.isnan()].to(torch.float64) for of_dataset in differences]
    if any(not len(of_dataset) for of_dataset in counting):
        return float("nan"), float("nan")
    weighted = torch.cat([of_dataset / len(of_dataset) for of_dataset in counting]).unsqueeze(0) / len(counting)
    observed = float(weighted.sum())
    count = sum(
        int((sums.abs() >= abs(observed) - TOLERANCE).sum())
        for sums in flipped_sums(weighted, permutations=permutations, seed=seed)
    )
    return observed, (1 + count) / (1 + permutations)


def across_datasets(
    datasets: Sequence[DatasetResult], *, permutations: int = 10_000, seed: int = 0
) -> list[Replication]:
    """Count, for each comparison made on two data sets or more, on how many of them the system wins."""
    tests: dict[tuple[str, str, str], list[tuple[DatasetResult, PairedTest]]] = {}
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
        values = [[dataset.systems[name].values[measure] for name in (system, baseline)] for dataset, _ in compared]
        mean, p_combined = combined_randomization([a - b for a, b in values], permutations=permutations, seed=seed)
        replications.append(
            Replication(
                system=system,
                baseline=baseline,
                measure=measure,
                datasets=names,
                level=LEVEL,
                num_replicated=count_replicated(p_values),
                replicated=tuple(
                    name
                    for name, p in zip(names, holm(torch.tensor(p_values, dtype=torch.float64)).tolist(), strict=True)
                    if p <= LEVEL
                ),
                difference=mean,
                p_combined=p_combined,
            )
        )
    return replications
