"""Decide which system of a table to deploy, and how many questions are needed if the questions cannot tell."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.evaluation.baselines import OPTIONAL_BASELINES
from graphrerank.evaluation.records import RETRIEVER, DatasetResult, PairedTest
from graphrerank.evaluation.significance import ALPHA, RESAMPLES, compare_pairs, power_quantile
from graphrerank.evaluation.tables import interval_text, p_text, row_name

#: Smallest gain over the retriever that is worth a deployment, as a fraction.
MIN_GAIN = 0.01
#: Smallest difference for which a number of questions is estimated, as a fraction.
MIN_DIFFERENCE = 0.02
#: With fewer questions, no system is compared.
MIN_QUESTIONS = 5
#: Number of questions that a user is asked to judge first.
ENOUGH_TO_BEGIN = 15
#: Values of :attr:`Decision.kind`.
DEPLOY, KEEP, UNCLEAR, TOO_FEW, DRAFTED = "deploy", "keep", "unclear", "too few", "drafted"


@dataclass(frozen=True)
class Decision:
    """Answer to the question which system to deploy.

    Attributes:
        kind: ``deploy`` (a system is better than the retriever), ``keep`` (no system is ahead of the retriever, or
            gains noticeably), ``unclear``, ``too few`` (fewer than 5 questions) or ``drafted`` (no question of a user).
        system: Row of the system to deploy. If nothing is recommended, the row with the highest mean.
        sentence: Answer with numbers.
        num_more: Estimated number of additional questions that would tell. 0 if the questions do tell.
    """

    kind: str
    system: str
    sentence: str
    num_more: int = 0


def decide(
    result: DatasetResult,
    *,
    names: Mapping[str, str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Decision:
    """Decide which system to deploy, by the first tested measure.

    The retriever is the simplest system, so it is deployed if no other system is ahead of it. Another system is
    deployed if it is significantly better than the retriever, with Holm's correction over all systems of the table.
    Among these systems, the one with the highest mean is chosen, and the sentence names a simpler system that does not
    differ significantly from it.

    Args:
        result: Scores of the retriever and of at least one other system, simpler systems first.
        names: Names of rows in the sentence. Rows without a name have that of the tables.
        resamples: Number of random sign flips and of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        The decision.
    """
    tests = against(result, RETRIEVER, resamples=resamples, seed=seed)
    best = max(tests, key=lambda test: test.difference)
    count, measure = best.num_queries, best.measure
    labels = {name: (names or {}).get(name, row_name(name)) for name in result.systems}
    amount = _amount(best)
    if result.drafted:
        sentence = (
            f"No recommendation: all {count:,} questions are drafted from the passages, not asked by users. On them, "
            f"{labels[best.system]} has {amount} over the retriever. Own questions often show another order."
        )
        return Decision(DRAFTED, best.system, sentence, ENOUGH_TO_BEGIN)
    if count < MIN_QUESTIONS:
        sentence = f"{count} question{'s' * (count != 1)} cannot tell: judge about {ENOUGH_TO_BEGIN}."
        return Decision(TOO_FEW, best.system, sentence, ENOUGH_TO_BEGIN - count)
    if best.difference <= 0 or max(test.interval[1] for test in tests) < MIN_GAIN:
        gains = "no other system ranks better" if best.difference <= 0 else "no other system gains noticeably"
        nearest = f"the best of them, {labels[best.system]}: {amount}"
        sentence = f"Deploy the retriever: {gains} on your {count:,} questions ({nearest})."
        return Decision(KEEP, RETRIEVER, sentence)
    better = [test for test in tests if test.difference > 0 and test.p_holm < ALPHA]
    if better:
        chosen = max(better, key=lambda test: test.difference)
        sentence = (
            f"Deploy {labels[chosen.system]}: {_amount(chosen)} over the retriever on your {count:,} questions, "
            f"{p_text(chosen.p_randomization)}."
        )
        return Decision(DEPLOY, chosen.system, sentence + _simpler(result, chosen.system, labels, resamples, seed))
    differences = result.systems[best.system].values[measure] - result.systems[RETRIEVER].values[measure]
    difference = max(best.difference, MIN_DIFFERENCE)
    num_more = rounded_up(max(1, num_questions(differences, difference, num_comparisons=len(tests)) - count))
    if best.difference >= MIN_DIFFERENCE:
        purpose = "would tell, if this difference stays"
    else:
        purpose = "would show a difference of 2 points"
    advice = "Until then, the retriever is the simplest choice."
    sentence = (
        f"{count:,} questions cannot tell which system is better than the retriever: the best, {labels[best.system]}, "
        f"has {amount}, {p_text(best.p_randomization)}. About {num_more:,} more {purpose}. {advice}"
    )
    return Decision(UNCLEAR, best.system, sentence, num_more)


def against(result: DatasetResult, baseline: str, *, resamples: int = RESAMPLES, seed: int = 0) -> list[PairedTest]:
    """Test every system of a table against one of them, in the first tested measure.

    Args:
        result: Scores of all systems.
        baseline: Row to compare with.
        resamples: Number of random sign flips and of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        One test per other system, in the order of the rows.
    """
    measure, rows = result.tested[0], list(result.systems)
    scores = torch.stack([result.systems[name].values[measure] for name in rows]).unsqueeze(1)
    others = [row for row in range(len(rows)) if rows[row] != baseline]
    compared = compare_pairs(scores, [(row, rows.index(baseline)) for row in others], resamples=resamples, seed=seed)
    columns = {name: column.tolist() for name, column in compared.items()}
    return [
        PairedTest(rows[row], baseline, measure, **{name: column[index][0] for name, column in columns.items()})
        for index, row in enumerate(others)
    ]


def num_questions(differences: Tensor, difference: float, *, num_comparisons: int = 1) -> int:
    r"""Estimate the number of questions that shows a mean difference.

    .. math:: n = \left(\frac{(z_{1 - \alpha / 2m} + z_{\text{power}})\,\sigma}{d}\right)^2

    with the standard deviation :math:`\sigma` of the differences, :math:`\alpha = 0.05`, :math:`m` comparisons and a
    power of 0.8.

    Args:
        differences: Difference of two systems on each question, ``[Q]``. NaN marks excluded questions.
        difference: Mean difference to show, greater than 0.
        num_comparisons: Number of comparisons to correct for.

    Returns:
        Number of questions.

    Example:
        >>> num_questions(torch.tensor([1.0, -1.0, 0.5, -0.5]), 0.4)
        41
    """
    spread = float(differences[~differences.isnan()].double().std())
    return math.ceil((power_quantile(num_comparisons) * spread / difference) ** 2)


def rounded_up(count: int) -> int:
    """Round a number of questions up to two digits, and to a multiple of 5 below 100.

    Args:
        count: Number to round.

    Returns:
        Rounded number.

    Example:
        >>> rounded_up(12), rounded_up(96), rounded_up(421)
        (15, 100, 430)
    """
    step = 5 if count < 100 else 10 ** (len(str(count)) - 2)
    return -(-count // step) * step


def best_line(result: DatasetResult) -> str | None:
    """Return the line of a table about its best system, and about simpler systems that are not clearly behind.

    Args:
        result: Scores of all systems, with the tests of the primary system.

    Returns:
        One line. None if there is a single system or no finite mean.
    """
    measure = result.tested[0]
    means = {name: system.means[measure] for name, system in result.systems.items()}
    means = {name: mean for name, mean in means.items() if not math.isnan(mean)}
    if len(means) < 2:
        return None
    best, primary = max(means, key=lambda name: means[name]), result.primary
    line = f"best by {measure}: {row_name(best)} ({100 * means[best]:.2f})"
    tests = {test.baseline: test for test in result.tests if test.measure == measure}
    if best != primary:
        if (test := tests.get(best)) is None:
            return line
        clear = "" if test.p_holm < ALPHA else ", which is not clear"
        training = ". It needs no training" if is_untrained(result, best) else ""
        return (
            f"{line}, {-100 * test.difference:+.1f} points over {row_name(primary)} "
            f"({_p_with_correction(test)}){clear}{training}"
        )
    close = [
        f"{row_name(name)} ({-100 * test.difference:+.1f}, {_p_with_correction(test)})"
        for name, test in tests.items()
        if is_untrained(result, name) and not test.p_holm < ALPHA
    ]
    return f"{line}. Simpler and not clearly behind: {', '.join(close)}" if close else line


def is_untrained(result: DatasetResult, name: str) -> bool:
    """Return whether a row is the retriever or another system without a trained model.

    Args:
        result: Scores of all systems.
        name: Name of the row.
    """
    bases = (RETRIEVER, *OPTIONAL_BASELINES)
    return result.systems[name].kind == "operator" and name.partition("-")[0] in bases


def _simpler(result: DatasetResult, chosen: str, labels: Mapping[str, str], resamples: int, seed: int) -> str:
    """Return a sentence about the best simpler system that does not differ significantly, or an empty string."""
    rows = list(result.systems)
    simpler = rows[: rows.index(chosen)]
    tests = against(result, chosen, resamples=resamples, seed=seed)
    close = [
        test
        for test in tests
        if test.system in simpler and test.system != RETRIEVER and not test.p_randomization < ALPHA
    ]
    if not close:
        return ""
    nearest = max(close, key=lambda test: test.difference)
    return (
        f" {labels[nearest.system]} is simpler and does not differ clearly from it "
        f"({_points(nearest.difference)}, {p_text(nearest.p_randomization)})."
    )


def _amount(test: PairedTest) -> str:
    return f"{test.measure} {_points(test.difference)} ({interval_text(test.interval, '+.1f')})"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points"


def _p_with_correction(test: PairedTest) -> str:
    """Return the p-value of a test, with the corrected one if only the correction makes it insignificant."""
    text = p_text(test.p_randomization)
    if test.p_randomization < ALPHA <= test.p_holm:
        return f"{text}, {test.p_holm:.2g} after Holm's correction"
    return text
