"""Check that a data set was encoded with the encoders that a checkpoint requires."""

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.vector_cache import PairCache
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.utils.checks import UserError


def check_encoder(checkpoint: Checkpoint, prepared: PreparedDataset) -> None:
    """Check that a data set has the vectors of the encoders that a checkpoint was trained with.

    Args:
        checkpoint: Checkpoint that will rerank the data set.
        prepared: Data set with encoded texts. A checkpoint that uses pair vectors also requires a cross-encoder.

    Raises:
        UserError: If the checkpoint was trained with another text encoder or cross-encoder.
    """
    inputs = checkpoint.reranker.inputs
    if inputs.reads_vectors:
        checkpoint.check_encoder(prepared.encoder_name, prepared.encoder_fingerprint)
    if inputs.reads_pairs and prepared.pair_encoder is not None:
        checkpoint.check_encoder("another", prepared.pair_encoder.fingerprint, of_pairs=True)


def own_encoder(prepared: PreparedDataset) -> CrossEncoder:
    """Return the cross-encoder of a data set, without its cache.

    Args:
        prepared: Data set with a cross-encoder.

    Returns:
        Cross-encoder of transformers.

    Raises:
        UserError: If the data set has no cross-encoder, or one of another class.
    """
    encoder = prepared.pair_encoder.encoder if isinstance(prepared.pair_encoder, PairCache) else prepared.pair_encoder
    if not isinstance(encoder, CrossEncoder):
        raise UserError(f"`pair_encoder` must be a CrossEncoder with a trained head, got {type(encoder).__name__}")
    return encoder
