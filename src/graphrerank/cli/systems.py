"""Systems that rerank a data set's candidates: frozen operators, frozen cross-encoders, and trained models."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphrerank.data import PairCache, PreparedDataset
from graphrerank.evaluation import System
from graphrerank.graphs import CandidateGraphs
from graphrerank.models import GRankerHead
from graphrerank.models.checkpoint import reads_vectors
from graphrerank.models.granker_layers import GRankerLayers
from graphrerank.operators import CrossEncoder
from graphrerank.operators.first_layers import FirstLayers


def frozen_grankers(prepared: PreparedDataset) -> dict[str, nn.Module]:
    """Build the rows that a trained head is compared with: the cross-encoder, and GRanker with its own head.

    Empty where the data set has no pair encoder.
    """
    if prepared.pair_encoder is None:
        return {}
    encoder, first = own_encoder(prepared), prepared.state_encoder
    smoothing = {"cross_encoder": 0.0, "granker": 0.2}
    if isinstance(first, FirstLayers):  # the rows read what the trained model reads
        layers = first.without_last
        return {name: GRankerLayers.from_encoder(encoder, layers, smoothing=s) for name, s in smoothing.items()}
    head = encoder.classification_head
    return {name: GRankerHead.from_head(head, smoothing=s) for name, s in smoothing.items()}


def own_encoder(prepared: PreparedDataset) -> CrossEncoder:
    """Return the cross-encoder that reads a data set's pairs.

    Raises:
        ValueError: If it is not one of transformers.
    """
    encoder = prepared.pair_encoder.encoder if isinstance(prepared.pair_encoder, PairCache) else prepared.pair_encoder
    if not isinstance(encoder, CrossEncoder):
        raise ValueError(f"`pair_encoder` must be a CrossEncoder, whose head is trained, got {type(encoder).__name__}")
    return encoder


def trained_layers(arguments: Mapping[str, Mapping[str, Any]]) -> int:
    """Return how many of a cross-encoder's last layers models have of their own.

    Args:
        arguments: Of each model, by name.

    Raises:
        ValueError: If the models differ in it.
    """
    layers: dict[str, int] = {name: entry.get("train_last_layers", 0) for name, entry in arguments.items()}
    if len(set(layers.values())) > 1:
        raise ValueError(f"`train_last_layers` must be the same for all systems of a run, got {layers}")
    return next(iter(layers.values()))


def check_encoder(path: str, manifest: Mapping[str, Any], prepared: PreparedDataset) -> None:
    """Refuse vectors of another encoder than a model was trained on.

    Args:
        path: Of the checkpoint, for the message.
        manifest: The checkpoint's.
        prepared: The data set, as the model would read it.

    Raises:
        ValueError: If the encoder of texts, or that of pairs, is another one.
    """
    trained = manifest["encoder"]
    if reads_vectors(manifest) and prepared.encoder_fingerprint != trained["fingerprint"]:
        now = f"{prepared.encoder_name} ({str(prepared.encoder_fingerprint)[:12]})"
        raise ValueError(
            f"{path}: was trained on vectors of {trained['name']} ({trained['fingerprint'][:12]}), the encoder now is "
            f"{now}; only features=scores changes encoders"
        )
    if prepared.pair_encoder is not None:
        trained_on_pairs = manifest["pair_encoder"]
        if prepared.pair_encoder.fingerprint != trained_on_pairs["fingerprint"]:
            raise ValueError(
                f"{path}: was trained on vectors of the cross-encoder {trained_on_pairs['fingerprint'][:12]}, "
                f"`pair_encoder` now is {prepared.pair_encoder.fingerprint[:12]}"
            )


def trained_system(name: str, model: nn.Module, device: torch.device) -> System:
    """Let a trained model rerank on a device."""
    model = model.to(device).eval()

    def score(graphs: CandidateGraphs) -> Tensor:
        scores: Tensor = model(*graphs.to(device).model_inputs())
        return scores

    return System(name, score, reads_vectors=bool(model.uses_vectors))
