"""Lightning module that trains any reranker with any ranking loss."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs, ModelInputs
from graphrerank.losses import divergence_from_retriever
from graphrerank.metrics import parse_measure
from graphrerank.training.optimizers import OptimizerFactory, ParameterGroups
from graphrerank.training.schedules import SchedulerFactory, cosine
from graphrerank.training.training_module import TrainingModule
from graphrerank.training.validation_means import ValidationMeans
from graphrerank.training.weighted_loss import reads_teacher
from graphrerank.utils.checks import UserError, check_not_negative

#: Loss of padded scores, relevance and mask and, for a distillation loss, the keyword argument ``teacher_scores``.
RankingLoss = Callable[..., Tensor]


class RerankerModule(TrainingModule):
    """Train a reranker on batches of :class:`~graphrerank.core.CandidateGraphs`, in any ``lightning.Trainer``.

    :class:`~graphrerank.training.training_module.TrainingModule` defines the optimiser, the schedule and the reseeding.
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
        warmup_steps: Number of optimiser steps of the linear warm-up. 0 disables the warm-up. A warm-up that takes more
            than a fifth of the training is shortened to a tenth of it.
        optimizer: Callable that receives parameter groups and returns an optimiser.
        scheduler: Callable that receives the optimiser and returns a learning-rate schedule.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix of the names
            of the model's parameters. If None, all parameters use the settings above.
        divergence: Weight of :func:`~graphrerank.losses.divergence_from_retriever` in the training loss, a penalty
            for deviating from the retriever's ranking. 0 disables it.
        seed: Seed of dropout.

    Attributes:
        inputs: Inputs of the model.
        reads_teacher: Whether the loss uses the scores of a teacher.
        measures: Parsed measures of the validation split.

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
        self._val_means: list[ValidationMeans] = []  # one per validation data set

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
        names = [measure.name.lower() for measure in self.measures]
        self._val_means = [ValidationMeans(names) for _ in self.val_names or [""]]

    def validation_step(self, graphs: CandidateGraphs, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch to the validation means of its data set. Scores are computed in the precision of the weights.

        Args:
            graphs: Batch of candidates with ``relevance`` and with the ``gains`` of all relevant passages.
            batch_idx: Index of the batch. Ignored.
            dataloader_idx: Index of the data set in ``val_names``.
        """
        with torch.autocast(graphs.x.device.type, enabled=False):  # bfloat16 would create ties between scores
            scores = self(graphs)
        loss, num_queries = self.loss_of(graphs, scores)
        self._val_means[dataloader_idx].update(loss, num_queries, self._measure(graphs, scores))

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the measures of each validation data set, and their means over the data sets."""
        by_dataset = [means.compute(self._over_processes) for means in self._val_means]
        for name, means in zip(self.val_names, by_dataset, strict=False):  # val_names is empty for a single data set
            self.log_dict({f"val/{name}/{key}": mean for key, mean in means.items()}, sync_dist=True)
        overall = {f"val/{key}": torch.stack([means[key] for means in by_dataset]).mean() for key in by_dataset[0]}
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
            UserError: If the loss needs the scores of a teacher and the batch has none.
        """
        assert graphs.relevance is not None
        padded = graphs.to_padded(scores, fill=0.0)
        relevance = graphs.to_padded(graphs.relevance, fill=0.0)
        mask = graphs.to_padded(torch.ones_like(scores, dtype=torch.bool), fill=False)
        counted = (relevance > 0).any(1)
        further: dict[str, Tensor] = {}
        if self.reads_teacher:
            if graphs.teacher_scores is None:
                raise UserError("`teacher` must be set for a distillation loss, but the batch has no `teacher_scores`")
            teacher_scores = graphs.to_padded(graphs.teacher_scores, fill=torch.nan)
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
