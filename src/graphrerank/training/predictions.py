"""Predictions of ``Trainer.predict``, and a callback that writes them as a run file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch.distributed as dist
from torch import Tensor

from graphrerank.evaluation.result import trec_lines
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_text


class RankedPassages(NamedTuple):
    """Reranked candidates of one query.

    Attributes:
        query_id: Id of the query.
        passage_ids: Ids of the ``K`` candidates, best first.
        scores: Scores ``[K]``, non-increasing. They are comparable within the query.
        probabilities: Probabilities of relevance ``[K]``, comparable between queries. None if the module is not
            calibrated.
    """

    query_id: str
    passage_ids: list[str]
    scores: Tensor
    probabilities: Tensor | None


class TrecRunWriter(L.Callback):
    """Write the rankings of ``Trainer.predict`` as a TREC run, which :func:`~graphrerank.evaluate` and trec_eval read.

    :func:`~graphrerank.fit` and ``train.py`` predict with the best epoch after a training that has this callback
    (``callbacks=trec_run``). In distributed prediction, the first process writes the rankings of all processes.

    Args:
        path: File to write. An existing file is replaced. Several data sets are written to one file.
        tag: Name of the system in the last column of the run.

    Example:
        >>> trainer = L.Trainer(callbacks=[TrecRunWriter("mine.trec", tag="mine")], accelerator="cpu", logger=False)
        >>> trainer.predict(module, data)  # doctest: +SKIP
    """

    def __init__(self, path: str | Path, *, tag: str = "graphrerank") -> None:
        self.path = Path(path)
        self.tag = tag
        self._ranked: list[RankedPassages] = []

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Discard the rankings of an earlier prediction.

        Args:
            trainer: Trainer of the prediction.
            pl_module: Module that predicts.
        """
        self._ranked = []

    def on_predict_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any) -> None:
        """Add the rankings of a batch.

        Args:
            trainer: Trainer of the prediction.
            pl_module: Module that predicts.
            outputs: Result of the module's ``predict_step``, a list of :class:`RankedPassages`.

        Raises:
            UserError: If the module predicts something else than :class:`RankedPassages`.
        """
        self._ranked += flat_predictions(outputs)

    def on_predict_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the file.

        Args:
            trainer: Trainer of the prediction.
            pl_module: Module that predicted.
        """
        ranked = _over_processes(self._ranked)
        if trainer.is_global_zero:
            lines = (trec_lines(*each[:2], each.scores.tolist(), tag=self.tag) for each in ranked)
            write_text(self.path, "".join(lines))
        self._ranked = []


def flat_predictions(predictions: Sequence[Any]) -> list[RankedPassages]:
    """Return the predictions of all batches as one list.

    Args:
        predictions: Result of ``Trainer.predict``: a list per batch, or a list of such lists per data set.

    Returns:
        One entry per query, in the order of the data.

    Raises:
        UserError: If an entry is not :class:`RankedPassages`.
    """
    flat: list[RankedPassages] = []
    for each in predictions:
        if isinstance(each, RankedPassages):
            flat.append(each)
        elif isinstance(each, Sequence) and not isinstance(each, str | tuple | Mapping):
            flat += flat_predictions(each)
        else:
            raise UserError(f"predictions must be RankedPassages, got {type(each).__name__}")
    return flat


def _over_processes(ranked: list[RankedPassages]) -> list[RankedPassages]:
    """Return the predictions of all processes, one process after the other."""
    if not dist.is_available() or not dist.is_initialized():
        return ranked
    of_processes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_processes, ranked)
    return [each for of_process in of_processes for each in of_process]
