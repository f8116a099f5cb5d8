"""Systems that rerank a data set's candidates: frozen operators, frozen cross-encoders, and trained models."""

from collections.abc import Mapping
from typing import cast

import torch
from hydra.utils import get_object
from omegaconf import DictConfig
from torch import Tensor, nn

from graphrerank.cli.compose import plain_arguments
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.pair_cache import PairCache
from graphrerank.evaluation.system import System
from graphrerank.graphs import CandidateGraphs, ModelInputs
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.granker_layers import frozen_grankers
from graphrerank.models.registry import read_inputs
from graphrerank.operators.cross_encoder import CrossEncoder


def with_frozen(models: Mapping[str, nn.Module], prepared: PreparedDataset) -> dict[str, nn.Module]:
    """Put the frozen models that trained ones are compared with before them: for models of pairs, GRanker's."""
    inputs = model_inputs(list(models.values())[-1])
    return {**(frozen_grankers(own_encoder(prepared), inputs) if inputs.reads_pairs else {}), **models}


def model_inputs(model: nn.Module) -> ModelInputs:
    """Return a model's inputs."""
    return cast(ModelInputs, model.inputs)


def declared_inputs(model: DictConfig) -> ModelInputs:
    """Return the inputs of a configuration's model, before it is built."""
    return read_inputs(get_object(model._target_), plain_arguments(model))


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
