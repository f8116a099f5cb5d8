"""The LightningModule that trains any reranker with any ranking loss."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs, ModelInputs
from graphrerank.losses import divergence_from_retriever
from graphrerank.metrics import parse_measure
from graphrerank.training.training_module import TrainingModule
from graphrerank.utils.checks import UserError, check_not_negative

RankingLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


class RerankerModule(TrainingModule):
    """Train a reranker on batches of :class:`~graphrerank.core.CandidateGraphs`, in any ``lightning.Trainer``.

    Optimiser, schedule and reseeding are those of :class:`~graphrerank.training.training_module.TrainingModule`. Where
    processes share each batch, loss and gradient are the mean over the queries of all of them: up to rounding and
    dropout, training is that of one process.

    Args:
        model: Maps what its ``inputs`` name to scores ``[N]``.
        loss: Maps padded scores, relevance and mask, each ``[B, K]``, to a scalar.
        measures: Measures to log on the validation split, such as ``PR@10`` (as ``val/pr@10``).
        val_names: Names of the data sets of validation's loaders, where there are several: each measure is logged per
            data set (as ``val/<name>/pr@10``) and as their mean.
        learning_rate: Peak learning rate.
        weight_decay: AdamW's decay of matrices; biases, norms and scalars are not decayed.
        warmup_steps: Optimiser steps of linear warm-up.
        divergence: Weight of :func:`~graphrerank.losses.divergence_from_retriever` in the loss of training: how much a
            change of the retriever's order has to gain.
        seed: Seed of dropout.
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
        divergence: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(
            model, learning_rate=learning_rate, weight_decay=weight_decay, warmup_steps=warmup_steps, seed=seed
        )
        if not measures or len(set(measures)) != len(measures):
            raise UserError(f"`measures` must name at least one measure and none twice, got {list(measures)}")
        check_not_negative(divergence=divergence)
        self.inputs = cast(ModelInputs, model.inputs)
        self.loss = loss
        self.divergence = divergence
        self.val_names = tuple(val_names)
        self.measures = [parse_measure(name) for name in measures]
        # for each data set [2, 1 + M]: sums of the loss and the measures, and their numbers of queries
        self._val_sums: list[Tensor | float] = []

    def forward(self, graphs: CandidateGraphs) -> Tensor:
        """Return scores ``[N]``."""
        scores: Tensor = self.model(*graphs.model_inputs(self.inputs))
        return scores

    def training_step(self, graphs: CandidateGraphs, batch_idx: int) -> Tensor:
        """Return what this process adds to the loss of a batch; DDP averages the processes' gradients."""
        loss, num_queries = self._loss(graphs, self(graphs))
        total, all_queries = self._over_processes(torch.stack([loss.detach() * num_queries, num_queries]))
        all_queries = all_queries.clamp(min=1)
        self.log(
            "train/loss", total / all_queries, on_step=True, on_epoch=True, prog_bar=True, batch_size=int(all_queries)
        )
        return loss * (num_queries * self.trainer.world_size / all_queries)

    def on_validation_epoch_start(self) -> None:
        """Forget what an earlier validation summed."""
        self._val_sums = [0.0 for _ in self.val_names or [""]]

    def validation_step(self, graphs: CandidateGraphs, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add up the loss and the measures of a batch, ranked in the precision of the weights, on the CPU."""
        with torch.autocast(graphs.x.device.type, enabled=False):  # bfloat16 would tie what float32 tells apart
            scores = self(graphs)
        assert graphs.relevance is not None
        assert graphs.gains is not None
        order = graphs.order(scores)
        ranked, gains = graphs.relevance[order.clamp(min=0)].masked_fill(order < 0, 0.0).cpu(), graphs.gains.cpu()
        per_query = torch.stack([measure(ranked, gains) for measure in self.measures])
        loss, num_queries = self._loss(graphs, scores)
        of_loss = torch.stack([loss * num_queries, num_queries]).unsqueeze(1)
        sums = torch.stack([per_query.nansum(1), (~per_query.isnan()).sum(1)]).to(of_loss)
        self._val_sums[dataloader_idx] += torch.cat([of_loss, sums], dim=1)

    def on_validation_epoch_end(self) -> None:
        """Log the measures over each whole split, and their mean over the data sets."""
        parts = []
        keys = ["loss", *(measure.name.lower() for measure in self.measures)]
        for sums in self._val_sums:
            assert isinstance(sums, Tensor)
            total, num_queries = self._over_processes(sums)
            num_queries[:1].clamp_(min=1)
            parts.append(dict(zip(keys, total / num_queries, strict=True)))
        for name, part in zip(self.val_names, parts, strict=False):  # no names: a single data set
            self.log_dict({f"val/{name}/{key}": mean_score for key, mean_score in part.items()}, sync_dist=True)
        mean = {f"val/{key}": torch.stack([part[key] for part in parts]).mean() for key in parts[0]}
        self.log_dict(mean, prog_bar=True, sync_dist=True)

    def _loss(self, graphs: CandidateGraphs, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss of the queries with a relevant candidate, and how many they are."""
        assert graphs.relevance is not None
        padded = graphs.to_padded(scores, fill=0.0)
        relevance = graphs.to_padded(graphs.relevance, fill=0.0)
        mask = graphs.to_padded(torch.ones_like(scores, dtype=torch.bool), fill=False)
        loss = self.loss(padded, relevance, mask)
        if self.training and self.divergence:
            base_scores = graphs.to_padded(graphs.x[:, 0], fill=0.0)
            loss = loss + self.divergence * divergence_from_retriever(padded, base_scores, relevance, mask)
        return loss, (relevance > 0).any(1).sum().to(loss.dtype)

    def _over_processes(self, part: Tensor) -> Tensor:
        """Sum a tensor over the processes that share each batch."""
        if self.trainer.world_size > 1:
            dist.all_reduce(part)
        return part
