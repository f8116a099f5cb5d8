"""Lightning module that trains any reranker with any ranking loss."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphrerank.calibration.fitting import fit_logistic
from graphrerank.calibration.logistic import Calibration
from graphrerank.core import CandidateGraphs, ModelInputs
from graphrerank.data.datamodule import CandidateDataModule, PredictionBatch
from graphrerank.losses import divergence_from_retriever
from graphrerank.metrics import parse_measure
from graphrerank.training.hyperparameters import loss_entry
from graphrerank.training.optimizers import OptimizerFactory, ParameterGroups
from graphrerank.training.predictions import RankedPassages
from graphrerank.training.schedules import SchedulerFactory, cosine
from graphrerank.training.training_module import TrainingModule
from graphrerank.training.validation_means import ValidationMeans
from graphrerank.training.weighted_loss import reads_teacher
from graphrerank.utils.checks import UserError, check_not_negative

#: Loss of padded scores, relevance and mask and, for a distillation loss, the keyword argument ``teacher_scores``.
RankingLoss = Callable[..., Tensor]
CALIBRATION = "calibration"  # key of the calibration in checkpoints


class RerankerModule(TrainingModule):
    """Train a reranker on batches of :class:`~graphrerank.core.CandidateGraphs`, in any ``lightning.Trainer``.

    :class:`~graphrerank.training.training_module.TrainingModule` defines the optimiser, the schedule and the reseeding.
    ``Trainer.test`` logs the measures of the test split (log key ``test/pr@10``). ``Trainer.predict`` returns
    :class:`~graphrerank.training.predictions.RankedPassages` for each query, with probabilities of relevance. They come
    from a logistic calibration on the validation split, which each validation by a single process fits again and which
    checkpoints contain. :meth:`load_from_checkpoint` rebuilds the module. The steps run eagerly in a module compiled by
    ``torch.compile``; ``forward`` is compiled.

    In distributed training, loss and gradient are means over the queries of all processes, so that the result equals
    that of a single process up to rounding and dropout.

    Args:
        model: Network whose ``forward`` returns scores ``[N]``, one for each candidate of the batch. Its attribute
            ``inputs`` names the tensors of ``forward``.
        loss: Function or ``nn.Module`` of padded scores, relevance and mask, each ``[B, K]``, that returns a scalar. If
            it has an argument ``teacher_scores``, it also receives the scores of the teacher, NaN where there are none.
            The parameters of a module are trained with those of the model.
        measures: Measures to log on the validation split, such as ``PR@10`` (log key ``val/pr@10``). At least one.
        val_names: Names of the data sets of the validation loaders, in order. Each measure is logged per data set (log
            key ``val/<name>/pr@10``) and as a mean over the data sets (``val/pr@10``). Empty for a single data set.
        learning_rate: Peak learning rate, reached at the end of the warm-up. Must be positive.
        weight_decay: Weight decay. Applied to weight matrices only, not to biases, norms or scalars.
        warmup_steps: Number of optimiser steps of the linear warm-up. 0 disables the warm-up. It is
            shortened to at most a tenth of the training.
        optimizer: Callable that receives parameter groups and returns an optimiser, such as ``torch.optim.SGD`` or
            ``functools.partial(torch.optim.SGD, momentum=0.9)``. Keywords ``lr`` and ``weight_decay`` of a partial
            replace ``learning_rate`` and ``weight_decay``.
        scheduler: Callable that receives the optimiser and returns a learning-rate schedule: a function of
            :mod:`graphrerank.training.schedules`, or a class of ``torch.optim.lr_scheduler``.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix of the names
            of the model's parameters, such as ``{"lin_in": 1e-4}``. All other parameters use the settings above. If
            None, all parameters do.
        divergence: Weight of :func:`~graphrerank.losses.divergence_from_retriever` in the training loss, a penalty
            for deviating from the retriever's ranking. 0 disables it.
        seed: Seed of all random numbers of the training, such as those of dropout.

    Attributes:
        inputs: Inputs of the model.
        reads_teacher: Whether the loss uses the scores of a teacher.
        measures: Parsed measures of the validation split.
        calibration: Calibration of the scores, or None before the first validation.

    Raises:
        ValueError: If ``measures`` is empty or contains duplicates or unknown names, or a number is out of range.

    Example:
        >>> from graphrerank.losses import listwise_softmax_cross_entropy
        >>> from graphrerank.models.gatv2_reranker import GATv2Reranker
        >>> network = GATv2Reranker(features="scores", num_scores=3)
        >>> module = RerankerModule(network, listwise_softmax_cross_entropy, measures=["PR@5", "nDCG@10"])
        >>> [measure.name for measure in module.measures], module.learning_rate
        (['PR@5', 'nDCG@10'], 0.001)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: RankingLoss,
        *,
        measures: Sequence[str] = ("PR@5", "PR@10", "R@10", "nDCG@10"),
        val_names: Sequence[str] = (),
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        warmup_steps: int = 100,
        optimizer: OptimizerFactory = torch.optim.AdamW,
        scheduler: SchedulerFactory = cosine,
        parameter_groups: ParameterGroups | None = None,
        divergence: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(
            model,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup_steps=warmup_steps,
            optimizer=optimizer,
            scheduler=scheduler,
            parameter_groups=parameter_groups,
            seed=seed,
        )
        if not measures or len(set(measures)) != len(measures):
            raise UserError(f"`measures` must contain at least one measure and no duplicates, got {list(measures)}")
        check_not_negative(divergence=divergence)
        self.inputs = cast(ModelInputs, model.inputs)
        self.loss = loss
        self.reads_teacher = reads_teacher(loss)
        self.divergence = divergence
        self.val_names = tuple(val_names)
        self.measures = [parse_measure(name) for name in measures]
        self.calibration: Calibration | None = None
        self._means: list[ValidationMeans] = []  # one per data set of the validation or test
        self._retriever_means: list[ValidationMeans] = []  # before the first epoch
        self._validated: list[tuple[Tensor, Tensor]] = []  # scores and relevance of each validation batch
        self.save_settings(
            loss=loss_entry(loss), measures=list(measures), val_names=list(val_names), divergence=divergence
        )

    def further_modules(self) -> Mapping[str, nn.Module]:
        """Return the loss as ``loss`` if it is a module, whose parameters are trained with those of the model."""
        return {"loss": self.loss} if isinstance(self.loss, nn.Module) else {}

    def forward(self, graphs: CandidateGraphs) -> Tensor:
        """Return the scores of the model, ``[N]``.

        Args:
            graphs: Batch with ``N`` candidates.
        """
        scores: Tensor = self.model(*graphs.model_inputs(self.inputs))
        return scores

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def training_step(self, graphs: CandidateGraphs, batch_idx: int) -> Tensor:
        """Return the training loss of a batch and log its mean over all processes.

        Args:
            graphs: Batch of candidates with ``relevance``.
            batch_idx: Index of the batch. Ignored.

        Returns:
            Scalar loss, scaled so that DDP's mean over the processes is the mean over the queries of all processes.
        """
        loss, num_queries = self.loss_of(graphs, self(graphs))
        total, all_queries = self._over_processes(torch.stack([loss.detach() * num_queries, num_queries]))
        all_queries = all_queries.clamp(min=1)
        self.log(
            "train/loss", total / all_queries, on_step=True, on_epoch=True, prog_bar=True, batch_size=int(all_queries)
        )
        return loss * (num_queries * self.trainer.world_size / all_queries)

    def on_validation_epoch_start(self) -> None:
        """Reset the means of each validation data set."""
        self._start_evaluation(self.val_names)
        self._retriever_means = [ValidationMeans(means.names) for means in self._means]
        self._validated = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def validation_step(self, graphs: CandidateGraphs, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Add a batch to the validation means of its data set. Scores are computed in the precision of the weights.

        Before the first epoch, the ranking of the retriever is measured as well.

        Args:
            graphs: Batch of candidates with ``relevance`` and with the ``gains`` of all relevant passages.
            batch_idx: Index of the batch. Ignored.
            dataloader_idx: Index of the data set in ``val_names``.

        Returns:
            Entry ``scores`` with the scores ``[N]`` of the candidates.
        """
        assert graphs.relevance is not None
        scores = self._evaluate(graphs, dataloader_idx)
        if self.trainer.world_size == 1:
            self._validated.append((scores.detach(), graphs.relevance))
        if self.trainer.sanity_checking:
            measured = self._measure(graphs, graphs.x[:, 0])
            self._retriever_means[dataloader_idx].update(scores.new_zeros(()), scores.new_zeros(()), measured)
        return {"scores": scores}

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the measures of each validation data set and their means, and calibrate the scores.

        Before the first epoch, the measures of the retriever are logged as ``retriever/<measure>``.
        """
        self._log_means("val", self.val_names)
        if self.trainer.sanity_checking:
            retriever = _overall([means.compute(self._over_processes) for means in self._retriever_means])
            self.log_dict(
                {f"retriever/{key}": mean for key, mean in retriever.items() if key != "loss"}, sync_dist=True
            )
        if self._validated and not self.trainer.sanity_checking:
            scores = torch.cat([batch_scores for batch_scores, _ in self._validated]).cpu()
            relevance = torch.cat([batch_relevance for _, batch_relevance in self._validated]).cpu()
            self._validated = []
            if len(scores) and bool(scores.isfinite().all()):
                self.calibration = fit_logistic(scores.double(), (relevance > 0).long())

    def on_test_epoch_start(self) -> None:
        """Reset the means of each test data set."""
        self._start_evaluation(self._test_names)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def test_step(self, graphs: CandidateGraphs, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch to the means of its test data set, as :meth:`validation_step` does.

        Args:
            graphs: Batch of candidates with ``relevance`` and with the ``gains`` of all relevant passages.
            batch_idx: Index of the batch. Ignored.
            dataloader_idx: Index of the data set.
        """
        self._evaluate(graphs, dataloader_idx)

    def on_test_epoch_end(self) -> None:
        """Log the loss and the measures of each test data set, and their means over the data sets."""
        self._log_means("test", self._test_names)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def predict_step(self, batch: PredictionBatch, batch_idx: int, dataloader_idx: int = 0) -> list[RankedPassages]:
        """Rank the candidates of each query of a batch.

        Args:
            batch: Candidate graphs with the ids of their queries and passages, from
                :meth:`~graphrerank.data.datamodule.CandidateDataModule.predict_dataloader`.
            batch_idx: Index of the batch. Ignored.
            dataloader_idx: Index of the data set. Ignored.

        Returns:
            One entry per query.

        Raises:
            UserError: If the batch has no ids.
        """
        if not isinstance(batch, PredictionBatch):
            raise UserError(
                "Trainer.predict needs batches with the ids of queries and passages, from "
                f"CandidateDataModule.predict_dataloader, got {type(batch).__name__}"
            )
        scores = self._scores(batch.graphs).float().cpu()
        ranked = []
        for query_id, order in zip(batch.query_ids, batch.graphs.to("cpu").order(scores), strict=True):
            order = order[order >= 0]
            in_order = scores[order]
            probabilities = None if self.calibration is None else self.calibration.probabilities(in_order)
            passage_ids = [batch.passage_ids[node] for node in order.tolist()]
            ranked.append(RankedPassages(query_id, passage_ids, in_order, probabilities))
        return ranked

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the calibration to a checkpoint.

        Args:
            checkpoint: Content of the checkpoint, which is changed.
        """
        if self.calibration is not None:
            checkpoint[CALIBRATION] = self.calibration.model_dump()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the calibration from a checkpoint.

        Args:
            checkpoint: Content of the checkpoint.
        """
        if (entry := checkpoint.get(CALIBRATION)) is not None:
            self.calibration = Calibration(**entry)

    @property
    def _test_names(self) -> Sequence[str]:
        """Names of the test data sets. Empty for a single data set."""
        data = cast(Any, self.trainer).datamodule
        if isinstance(data, CandidateDataModule):
            return data.tested if len(data.parts) > 1 else ()
        return self.val_names

    def _scores(self, graphs: CandidateGraphs) -> Tensor:
        """Return the scores in the precision of the weights. bfloat16 would create ties between scores."""
        with torch.autocast(graphs.x.device.type, enabled=False):
            scores: Tensor = self(graphs)
        return scores

    def _start_evaluation(self, names: Sequence[str]) -> None:
        measures = [measure.name.lower() for measure in self.measures]
        self._means = [ValidationMeans(measures) for _ in names or [""]]

    def _evaluate(self, graphs: CandidateGraphs, dataloader_idx: int) -> Tensor:
        """Add a batch to the means of its data set, and return the scores."""
        scores = self._scores(graphs)
        loss, num_queries = self.loss_of(graphs, scores)
        self._means[dataloader_idx].update(loss, num_queries, self._measure(graphs, scores))
        return scores

    def _log_means(self, stage: str, names: Sequence[str]) -> None:
        """Log the loss and the measures of each data set, and their means over the data sets."""
        by_dataset = [means.compute(self._over_processes) for means in self._means]
        for name, means in zip(names, by_dataset, strict=False):  # no names for a single data set
            self.log_dict({f"{stage}/{name}/{key}": mean for key, mean in means.items()}, sync_dist=True)
        overall = {f"{stage}/{key}": mean for key, mean in _overall(by_dataset).items()}
        self.log_dict(overall, prog_bar=True, sync_dist=True)

    def _measure(self, graphs: CandidateGraphs, scores: Tensor) -> Tensor:
        """Return each measure for each query, ``[M, B]``, on the CPU."""
        assert graphs.relevance is not None
        assert graphs.gains is not None
        order = graphs.order(scores)
        ranked = graphs.relevance[order.clamp(min=0)].masked_fill(order < 0, 0.0).cpu()
        gains = graphs.gains.cpu()
        return torch.stack([measure(ranked, gains) for measure in self.measures])

    def loss_of(self, graphs: CandidateGraphs, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss of a batch over the queries that contribute to it, and the number of these queries.

        These are the queries with a relevant candidate and, for a distillation loss, those with scores of the teacher.

        Args:
            graphs: Batch of candidates with ``relevance`` and, for a distillation loss, ``teacher_scores``.
            scores: Scores ``[N]`` of the candidates.

        Returns:
            Two scalars.

        Raises:
            UserError: If the loss needs the scores of a teacher and a training batch has none. In evaluation, the loss
                is then computed as if no candidate had a score.
        """
        assert graphs.relevance is not None
        padded = graphs.to_padded(scores, fill=0.0)
        relevance = graphs.to_padded(graphs.relevance, fill=0.0)
        mask = graphs.to_padded(torch.ones_like(scores, dtype=torch.bool), fill=False)
        counted = (relevance > 0).any(1)
        further: dict[str, Tensor] = {}
        if self.reads_teacher:
            if graphs.teacher_scores is None and self.training:
                raise UserError("`teacher` must be set for a distillation loss, but the batch has no `teacher_scores`")
            per_candidate = (
                torch.full_like(scores, torch.nan) if graphs.teacher_scores is None else graphs.teacher_scores
            )
            teacher_scores = graphs.to_padded(per_candidate, fill=torch.nan)
            further["teacher_scores"] = teacher_scores
            counted |= (~teacher_scores.isnan()).sum(1) > 1
        loss = self.loss(padded, relevance, mask, **further)
        if self.training and self.divergence:
            base_scores = graphs.to_padded(graphs.x[:, 0], fill=0.0)
            loss = loss + self.divergence * divergence_from_retriever(padded, base_scores, relevance, mask)
        return loss, counted.sum().to(loss.dtype)

    def _over_processes(self, sums: Tensor) -> Tensor:
        """Sum a tensor in place over the processes of the training."""
        if self.trainer.world_size > 1:
            dist.all_reduce(sums)
        return sums


def _overall(by_dataset: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each measure over the data sets."""
    return {key: torch.stack([means[key] for means in by_dataset]).mean() for key in by_dataset[0]}
