"""Evaluating classifiers on few rows: nested cross-validation and a learning curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.checks import check_positive_share
from graphrerank.files import save_figure
from graphrerank.metrics import area_under_roc
from graphrerank_papers.ea_graphrag.adapter_classifiers import Classifier
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows

MEASURES = ("AUC", "accuracy", "log loss")
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Fold:
    """One outer fold."""

    setting: Mapping[str, Any]  # what the inner folds chose
    measures: dict[str, float]  # on the rows of the fold, by name
    selected: list[int]  # columns that the classifier reads


@dataclass(frozen=True)
class CrossValidated:
    """A classifier's outer folds."""

    folds: list[Fold]  # in order
    scores: Tensor  # `[n]` float64, each row's probability of class 1 from the fold that did not see it

    def mean_and_std(self, measure: str) -> tuple[float, float]:
        """Return the mean over the folds and their standard deviation (no estimate of the mean's error)."""
        return _mean_and_std([fold.measures[measure] for fold in self.folds])


@dataclass(frozen=True)
class CurvePoint:
    """A classifier trained on some of the rows."""

    classifier: str
    num_rows: float  # training rows, the mean over folds
    measures: dict[str, tuple[float, float]]  # mean and deviation over folds, by name


def nested_cross_validation(
    rows: LabelledRows, classifiers: Mapping[str, Classifier], *, num_folds: int = 5, num_inner_folds: int = 3
) -> dict[str, CrossValidated]:
    """Estimate how good each classifier is on rows that nothing of it has seen.

    For each outer fold the other rows choose the setting, by the mean AUC of their own inner folds, and then train; the
    fold is only scored. Features, z-scores, early stopping and temperature are of the training rows at each level.

    Source: Stone, "Cross-validatory choice and assessment of statistical predictions", 1974; Varma and Simon, "Bias in
    error estimation when using cross-validation for model selection", 2006.

    Args:
        rows: All rows.
        classifiers: By name.
        num_folds: Outer folds.
        num_inner_folds: Inner folds.

    Raises:
        ValueError: If the rarer class has fewer rows than there are folds, outer or inner.
    """
    folds: dict[str, list[Fold]] = {name: [] for name in classifiers}
    scores = {name: torch.full((len(rows),), torch.nan, dtype=torch.float64) for name in classifiers}
    for train_index, test_index in rows.folds(num_folds):
        train, test = rows.take(train_index), rows.take(test_index)
        inner = [(train.take(a), train.take(b)) for a, b in train.folds(num_inner_folds)]
        for name, classifier in classifiers.items():
            setting = _best_setting(classifier, inner)
            score, selected = classifier.fit(train, **setting)
            scores[name][test_index] = score(test.features).double()
            folds[name].append(Fold(setting, measure(scores[name][test_index], test.labels), selected.tolist()))
    return {name: CrossValidated(folds[name], scores[name]) for name in classifiers}


def learning_curve(
    rows: LabelledRows,
    classifiers: Mapping[str, Classifier],
    results: Mapping[str, CrossValidated],
    *,
    shares: Sequence[float] = SHARES,
) -> list[CurvePoint]:
    """Train on growing shares of each fold's training rows, and score the whole fold.

    Each fold keeps the setting that its own inner folds chose, on all of its training rows.

    Args:
        rows: All rows, the same as of ``results``.
        classifiers: By name, the same as of ``results``.
        results: Of :func:`nested_cross_validation`.
        shares: Of the training rows, in (0, 1]; 1 repeats the results.

    Raises:
        ValueError: If a share is out of range or leaves too few rows.
    """
    for share in shares:
        check_positive_share(shares=share)
    points = []
    splits = rows.folds(len(next(iter(results.values())).folds))
    for share in shares:
        fold_measures: dict[str, list[dict[str, float]]] = {name: [] for name in classifiers}
        sizes = []
        for fold, (train_index, test_index) in enumerate(splits):
            test = rows.take(test_index)
            train = rows.take(train_index).first(round(share * len(train_index)))
            sizes.append(float(len(train)))
            for name, classifier in classifiers.items():
                score, _ = classifier.fit(train, **results[name].folds[fold].setting)
                fold_measures[name].append(measure(score(test.features).double(), test.labels))
        for name, measures in fold_measures.items():
            means = {key: _mean_and_std([fold[key] for fold in measures]) for key in MEASURES}
            points.append(CurvePoint(name, sum(sizes) / len(sizes), means))
    return points


def measure(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Measure probabilities ``[n]``: AUC, accuracy at one half, and log loss in nats."""
    p, y = scores.double().clamp(1e-7, 1 - 1e-7), labels.double()
    return {
        "AUC": area_under_roc(scores, labels),
        "accuracy": float(((p >= 0.5) == (y == 1)).double().mean()),
        "log loss": float(F.binary_cross_entropy(p, y)),
    }


def comparison_table(results: Mapping[str, CrossValidated]) -> str:
    """Write nested cross-validation as Markdown: mean over outer folds and the deviation between them."""
    lines = [
        f"| classifier | {' | '.join(MEASURES)} | features | settings chosen |",
        f"| --- |{' ---: |' * len(MEASURES)} ---: | --- |",
    ]
    for name, result in results.items():
        numbers = [_text(result.mean_and_std(key)) for key in MEASURES]
        widths = sorted({len(fold.selected) for fold in result.folds})
        settings = [", ".join(f"{k}={v}" for k, v in fold.setting.items()) or "-" for fold in result.folds]
        counted = "; ".join(f"{settings.count(setting)}x {setting}" for setting in dict.fromkeys(settings))
        lines.append(f"| {name} | {' | '.join(numbers)} | {', '.join(map(str, widths))} | {counted} |")
    return "\n".join(lines)


def learning_curve_table(points: Sequence[CurvePoint], measure: str = "AUC") -> str:
    """Write one measure of a learning curve as Markdown, a row per classifier and a column per number of rows."""
    sizes = sorted({point.num_rows for point in points})
    names = list(dict.fromkeys(point.classifier for point in points))
    numbers = {(point.classifier, point.num_rows): point.measures[measure] for point in points}
    header = " | ".join(f"{size:.0f}" for size in sizes)
    lines = [f"| {measure} after training on rows | {header} |", f"| --- |{' ---: |' * len(sizes)}"]
    lines += [f"| {name} | {' | '.join(_text(numbers[name, size]) for size in sizes)} |" for name in names]
    return "\n".join(lines)


def draw_learning_curve(path: Path, points: Sequence[CurvePoint]) -> None:
    """Draw AUC and accuracy against training rows as PNG; the bands are one deviation between folds."""
    from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axes, key in zip(figure.subplots(1, 2), ("AUC", "accuracy"), strict=True):
        for name in dict.fromkeys(point.classifier for point in points):
            curve = [point for point in points if point.classifier == name]
            sizes = [point.num_rows for point in curve]
            means, stds = zip(*(point.measures[key] for point in curve), strict=True)
            (line,) = axes.plot(sizes, means, marker="o", label=name)
            low, high = zip(*((m - s, m + s) for m, s in zip(means, stds, strict=True)), strict=True)
            axes.fill_between(sizes, low, high, color=line.get_color(), alpha=0.1)
        axes.set(xlabel="training rows", ylabel=key)
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(path, figure)


def _best_setting(classifier: Classifier, inner: Sequence[tuple[LabelledRows, LabelledRows]]) -> Mapping[str, Any]:
    """Choose the setting of the highest mean AUC over the inner folds."""
    if len(classifier.grid) == 1:
        return classifier.grid[0]
    means = []
    for setting in classifier.grid:
        fits = [(classifier.fit(train, **setting)[0], test) for train, test in inner]
        means.append(sum(area_under_roc(score(test.features), test.labels) for score, test in fits))
    return classifier.grid[means.index(max(means))]


def _mean_and_std(numbers: Sequence[float]) -> tuple[float, float]:
    values = torch.tensor(numbers, dtype=torch.float64)
    return float(values.mean()), float(values.std(correction=0))


def _text(mean_and_std: tuple[float, float]) -> str:
    return f"{mean_and_std[0]:.3f} ± {mean_and_std[1]:.3f}"
