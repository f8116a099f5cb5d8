from dataclasses import replace

import pytest

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.encoder_checks import check_encoder, own_encoder
from graphrerank.models.checkpoint import load_primary
from tests.support.encoders import HashPairEncoder


def test_a_checkpoint_of_scores_takes_any_encoder(prepared: PreparedDataset) -> None:
    check_encoder(load_primary("base"), prepared)


@pytest.mark.parametrize("pair_encoder", [None, HashPairEncoder()])
def test_only_a_cross_encoder_of_transformers_has_a_head_to_train(
    prepared: PreparedDataset, pair_encoder: HashPairEncoder | None
) -> None:
    with pytest.raises(ValueError, match="`pair_encoder` must be a CrossEncoder with a trained head, got"):
        own_encoder(replace(prepared, pair_encoder=pair_encoder))
