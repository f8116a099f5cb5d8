"""Systems that rerank a data set's candidates: the retriever's order, frozen operators and models, trained models."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.pair_cache import PairCache
from graphrerank.evaluation.records import RETRIEVER
from graphrerank.evaluation.reranking import measure_queries
from graphrerank.evaluation.systems import Scorer, System, base_ranking
from graphrerank.graphs import CandidateGraphs, ModelInputs
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.granker_layers import frozen_grankers
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR

RESTART_GRID = tuple(round(0.1 * step, 1) for step in range(1, 10))


def reranking_systems(
    models: Mapping[str, nn.Module],
    restart_probs: Mapping[str, float],
    *,
    device: torch.device,
    scorers: Iterable[System] = (),
) -> list[System]:
    """List the rows of a table of rerankers: the retriever, PPR, GCS, further scorers, the models.

    Args:
        models: Trained models by name.
        restart_probs: Of the frozen operators, ``gcs`` and ``ppr``.
        device: Where models run.
        scorers: Further systems.
    """
    return [
        System(RETRIEVER, base_ranking, reads_graph=False),
        System("ppr", PPR(restart_prob=restart_probs["ppr"]).score),
        System("gcs", GCS(restart_prob=restart_probs["gcs"]).score),
        *scorers,
        *(trained_system(name, model, device) for name, model in models.items()),
    ]


def tune_restart_probs(
    prepared: PreparedDataset, split: str, given: Mapping[str, float | None] | None = None
) -> dict[str, float]:
    """Choose the restart probabilities of GCS and PPR on a split, except those that are given."""
    build = {"gcs": lambda p: GCS(restart_prob=p).score, "ppr": lambda p: PPR(restart_prob=p).score}
    return {name: (given or {}).get(name) or tune_restart_prob(prepared, split, build[name]) for name in build}


def tune_restart_prob(
    prepared: PreparedDataset,
    split: str,
    build: Callable[[float], Scorer],
    *,
    grid: Sequence[float] = RESTART_GRID,
    measure: str = "PR@10",
) -> float:
    """Search a grid for the restart probability with the best mean of a measure on a split; the first of equals wins.

    Source: GraphER, appendix A.3 (grid 0.1 to 0.9 on one training set). We search each data set's validation split.
    """
    means = []
    for restart_prob in grid:
        (values,) = measure_queries(prepared, split, System("tuned", build(restart_prob)), measures=[measure]).values()
        means.append(float(values.nanmean()))
    return grid[means.index(max(means))]


def with_frozen(models: Mapping[str, nn.Module], prepared: PreparedDataset) -> dict[str, nn.Module]:
    """Put the frozen models that trained ones are compared with before them: for models of pairs, GRanker's."""
    inputs = model_inputs(list(models.values())[-1])
    return {**(frozen_grankers(own_encoder(prepared), inputs) if inputs.reads_pairs else {}), **models}


def model_inputs(model: nn.Module) -> ModelInputs:
    """Return a model's inputs."""
    return cast(ModelInputs, model.inputs)


def own_encoder(prepared: PreparedDataset) -> CrossEncoder:
    """Return the cross-encoder that reads a data set's pairs, which must be one of transformers."""
    encoder = prepared.pair_encoder.encoder if isinstance(prepared.pair_encoder, PairCache) else prepared.pair_encoder
    if not isinstance(encoder, CrossEncoder):
        raise ValueError(f"`pair_encoder` must be a CrossEncoder, whose head is trained, got {type(encoder).__name__}")
    return encoder


def check_encoder(checkpoint: Checkpoint, prepared: PreparedDataset) -> None:
    """Refuse a data set with vectors of another encoder, of texts or of pairs, than a model was trained on."""
    inputs = checkpoint.reranker.inputs
    if inputs.reads_vectors:
        checkpoint.check_encoder(prepared.encoder_name, prepared.encoder_fingerprint)
    if inputs.reads_pairs and prepared.pair_encoder is not None:
        checkpoint.check_pair_encoder(prepared.pair_encoder.fingerprint)


def trained_system(name: str, model: nn.Module, device: torch.device) -> System:
    """Let a trained model rerank on a device."""
    model = model.to(device).eval()
    inputs = model_inputs(model)

    def score(graphs: CandidateGraphs) -> Tensor:
        scores: Tensor = model(*graphs.to(device).model_inputs(inputs))
        return scores

    return System(name, score, inputs=inputs)
