"""Settings of ``conf/serve.yaml`` that are read before the service is set up."""

import pytest
from omegaconf import OmegaConf

from graphrerank.cli.http_service import ends_with_checkpoint, shared_encoder

SEARCH = {"_target_": "graphrerank.pipelines.steps.VectorSearch"}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([SEARCH, {"scorer": {"_target_": "graphrerank.rerank.checkpoint_scorer.CheckpointScorer"}}], True),
        ([{"scorer": {"_target_": "graphrerank.rerank.checkpoint_scorer.CheckpointScorer"}}, SEARCH], False),
        ([SEARCH, {"scorer": {"_target_": "tests.pipelines.test_with_checkpoint.CheckpointScorer"}}], False),
        ([SEARCH, {"scorer": {"_target_": "tests.pipelines.test_with_checkpoint.Trained"}}], True),
        ([SEARCH], False),
        ([], False),
    ],
)
def test_whether_a_pipeline_ends_with_a_checkpoint(steps: list[object], expected: bool) -> None:
    assert ends_with_checkpoint(OmegaConf.create({"steps": steps})) is expected


def test_equal_settings_share_an_encoder() -> None:
    settings = "_target_: tests.support.encoders.HashEncoder\ndim: 8\n"
    assert shared_encoder(settings) is shared_encoder(settings)
    assert shared_encoder(settings)() is shared_encoder(settings)()
    assert shared_encoder(settings)() is not shared_encoder(settings.replace("8", "16"))()
