"""Questions that exactly one of the two paths answers, as the training of the complexity adapter writes them."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.data.readers.records import bad_line, read_jsonl
from graphrerank.pipelines.router import ROUTES
from graphrerank.utils.checks import UserError

#: Parts of the questions: for training and for validation.
QUESTION_PARTS = TRAINING, VALIDATION = ("training", "validation")


class RoutingQuestions(NamedTuple):
    """Questions with the path that answers them.

    Attributes:
        texts: Texts of ``n`` questions.
        labels: Labels ``[n]`` float32: 1 if the graph path is right, 0 if the dense path is.
    """

    texts: list[str]
    labels: Tensor


def read_routing_questions(path: str | Path, part: str) -> RoutingQuestions:
    """Read one part of the questions.

    Args:
        path: ``disagreements.jsonl`` of a run of ``graphrerank train experiment=complexity_adapter``, or a file of the
            same format: a JSON object per line with ``text``, with ``right`` (``dense`` or ``graph``) and optionally
            with ``part`` (``training``, the default, or ``validation``).
        part: ``training`` or ``validation``.

    Returns:
        Questions of the dense path, followed by those of the graph path.

    Raises:
        UserError: If a line has another format, or a path has no question for training.
    """
    file = Path(path)
    texts: tuple[list[str], list[str]] = ([], [])
    for number, record in read_jsonl(file):
        text, right = record.get("text"), record.get("right")
        if not isinstance(text, str) or right not in ROUTES[:2]:
            needed = f"an object with `text`, and with `right` from {list(ROUTES[:2])}"
            raise bad_line(file, number, needed=needed, actual=record)
        if record.get("part", TRAINING) == part:
            texts[ROUTES.index(right)].append(text)
    if part == TRAINING and not all(texts):
        raise UserError(f"{file} must have training questions of both paths, got {list(map(len, texts))}")
    labels = torch.tensor([0.0] * len(texts[0]) + [1.0] * len(texts[1]))
    return RoutingQuestions([*texts[0], *texts[1]], labels)
