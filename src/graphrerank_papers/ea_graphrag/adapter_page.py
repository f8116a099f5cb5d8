"""The report of ``model=complexity_adapter``: which path was right, and how the adapter was trained."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from graphrerank.evaluation.tables import markdown_table
from graphrerank.graphs.routes import ROUTES
from graphrerank_papers.ea_graphrag.adapter_calibration import Calibration
from graphrerank_papers.ea_graphrag.two_paths import TwoPaths

THRESHOLDS_PNG, CURVE_PNG = "thresholds.png", "learning_curve.png"


@dataclass(frozen=True, eq=False)
class Judged:
    """The questions of one data set, and which path was right."""

    name: str  # of the data set, as the plan calls it
    paths: TwoPaths  # what both paths retrieved
    right: Tensor  # `[Q, 2]` bool, dense and graph
    held: Tensor  # `[Q]` bool, for validation
    features: Tensor  # `[Q, F]` syntax

    @property
    def disagree(self) -> Tensor:
        """``[Q]`` bool, exactly one path was right."""
        return self.right[:, 0] != self.right[:, 1]

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of questions: all, those for validation, and by which path was right."""
        dense, graph = self.right.unbind(1)
        return {
            "questions": len(self.paths),
            "validation": int(self.held.sum()),
            "both": int((dense & graph).sum()),
            "neither": int((~dense & ~graph).sum()),
            "dense_only": int((dense & ~graph).sum()),
            "graph_only": int((graph & ~dense).sum()),
        }


def disagreements(sets: Sequence[Judged]) -> str:
    """Write a line of JSON for each question that exactly one path gets right."""
    lines = []
    for judged in sets:
        for row in judged.disagree.nonzero().flatten().tolist():
            graph_right = bool(judged.right[row, 1])
            entry = {
                "data": judged.name,
                "part": "validation" if judged.held[row] else "training",
                "query_id": judged.paths.query_ids[row],
                "text": judged.paths.texts[row],
                "right": ROUTES[graph_right],
                "label": int(graph_right),
            }
            lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    return "".join(lines)


def agreement_table(sets: Sequence[Judged]) -> str:
    """Lay out in Markdown which path was right on how many questions."""
    header = ["data set", "questions", "validation", "both", "neither", "dense only", "graph only", "graph's share"]
    header += ["dense ms", "graph ms"]
    lines = []
    for judged in sets:
        counts = judged.counts
        differ = counts["dense_only"] + counts["graph_only"]
        share = f"{100 * counts['graph_only'] / differ:.0f}%" if differ else "none differ"
        times = [f"{1000 * seconds:.1f}" for seconds in judged.paths.seconds]
        lines.append([judged.name, *(str(count) for count in counts.values()), share, *times])
    return (
        f"{markdown_table(header, lines)}\n\nThe graph's share is its share of the questions that exactly one path "
        "gets right; they are in `disagreements.jsonl`. ms: per question, many at once, without encoding the question."
    )


def adapter_text(manifest: Mapping[str, Any], num_train: int, num_held: int, system: str) -> str:
    """Describe a trained adapter."""
    calibration, choice = Calibration(**manifest["calibration"]), manifest["thresholds"]
    header = ["on the validation questions", "right", "ms", *ROUTES]
    shares = [f"{100 * choice['shares'][route]:.0f}%" for route in ROUTES]
    lines = [["routed", f"{100 * choice['accuracy']:.1f}%", f"{1000 * choice['seconds']:.1f}", *shares]]
    alone = ", ".join(f"{route} {choice['alone'][route]:.3f}" for route in ROUTES)
    ends = {name: choice[f"{name}_interval"] for name in ("low", "high")}
    low, high = (f"{choice[name]:.3f} ({first:.3f} to {last:.3f})" for name, (first, last) in ends.items())
    return (
        f"Trained on {num_train} disagreements, best epoch {manifest['best_epoch']}; AUC on the {num_held} of "
        f"validation {manifest['metrics']['val/auc']:.3f}. Temperature {calibration.temperature:.2f}: log loss "
        f"{calibration.nll_before:.3f} to {calibration.nll_after:.3f}, calibration error {calibration.ece_before:.3f} "
        f"to {calibration.ece_after:.3f} on the rows that it was fitted on.\n\n"
        f"Thresholds, chosen on all validation questions at {choice['price']:g} of accuracy per second, with 95% "
        f"bootstrap intervals: low {low}, high {high}. Accuracy less price: routed {choice['objective']:.3f}; all "
        f"questions on one path: {alone}.\n\n{markdown_table(header, lines)}\n\n"
        f"![thresholds]({system}/{THRESHOLDS_PNG})"
    )
