"""A router without training: questions near those that the graph got right take the graph."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.data.encoder import Encoder
from graphrerank.graphs.routes import DENSE, GRAPH, ROUTES

TRAINING, VALIDATION = "training", "validation"  # parts of the questions


class PrototypeScorer:
    r"""Score how much queries need the graph by their nearest prototypes, in place of a complexity adapter.

    .. math:: s(q) = \sigma\bigl((\bar c_{\mathrm{graph}}(q) - \bar c_{\mathrm{dense}}(q)) / t\bigr)

    with :math:`\bar c` the mean cosine of the query with the ``num_nearest`` nearest questions of a path.

    Source: semantic routing by examples, ours for the paths of "EA-GraphRAG", 2026, Algorithm 1, line 2. The questions
    are those of ``disagreements.jsonl``, which ``train.py experiment=complexity_adapter`` writes: each was answered by
    exactly one path. Only those for training are prototypes.

    Args:
        questions: A file with a line of JSON for each question: its ``text``, the path that is ``right`` (``dense`` or
            ``graph``) and, if given, its ``part`` (``training`` or ``validation``).
        encoder: Encoder of questions.
        low: Up to this score a query takes the dense path.
        high: From this score on it takes the graph path.
        num_nearest: Prototypes of each path that are compared, at least 1.
        temperature: :math:`t`, positive.

    Raises:
        ValueError: If a setting is out of range, the file has another form, or a path has no prototype.
    """

    def __init__(
        self,
        questions: str | Path,
        *,
        encoder: Encoder,
        low: float = 0.4,
        high: float = 0.6,
        num_nearest: int = 5,
        temperature: float = 0.05,
    ) -> None:
        if not low < high:
            raise ValueError(f"`low` must be below `high`, got {low} and {high}")
        if num_nearest < 1 or temperature <= 0:
            raise ValueError(
                f"`num_nearest` must be at least 1 and `temperature` positive, got {num_nearest} and {temperature}"
            )
        self.low, self.high = low, high
        self.num_nearest, self.temperature = num_nearest, temperature
        self._encoder = encoder
        self._prototypes = [encoder.encode(own) for own in read_questions(Path(questions), TRAINING)]

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU; 0.5 for a query without a vector."""
        if not texts:
            return torch.zeros(0)
        vectors = self._encoder.encode(texts)
        near = []
        for prototypes in self._prototypes:
            count = min(self.num_nearest, len(prototypes))
            near.append(torch.topk(vectors @ prototypes.T, count, dim=1).values.mean(1))
        return torch.sigmoid((near[GRAPH] - near[DENSE]) / self.temperature)


def read_questions(path: Path, part: str) -> list[list[str]]:
    """Read a part of the questions: the texts of those that the dense path gets right, and of the graph path's.

    Of :data:`TRAINING`, neither may be empty.
    """
    texts: list[list[str]] = [[], []]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: needed a file of questions ({error})") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            text, right, own_part = entry["text"], entry["right"], entry.get("part", TRAINING)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: needed an object with `text` and `right`, got {line[:80]!r}") from error
        if not isinstance(text, str) or right not in ROUTES[:2]:
            raise ValueError(f"{path}:{number}: needed a text, and `right` of {list(ROUTES[:2])}, got {line[:80]!r}")
        if own_part == part:
            texts[ROUTES.index(right)].append(text)
    for name, own in zip(ROUTES, texts, strict=False):
        if not own and part == TRAINING:
            raise ValueError(f"{path}: needed a question for training that the path {name!r} gets right, got none")
    return texts
