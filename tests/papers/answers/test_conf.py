"""The settings of the stage of answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from graphrerank.cli import schema
from graphrerank.installation.plugins import settings_folders
from graphrerank_papers.answers.local import TransformersLanguageModel
from tests.support import CONF

CHOICES = sorted(file.stem for folder in settings_folders() for file in (folder / "answers").glob("*.yaml"))
LOCAL = ("language_model@answers.writer.model=transformers", "answers.writer.model.model=nowhere")


@pytest.fixture(autouse=True)
def _hydra() -> Iterator[None]:
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


@pytest.mark.parametrize("choice", CHOICES)
def test_every_stage_instantiates(choice: str, tmp_path: Path) -> None:
    model = LOCAL[1:] if choice == "transformers" else ()
    stage = instantiate(compose("evaluate", overrides=[f"answers={choice}", f"paths.cache={tmp_path}", *model]).answers)
    assert stage.packing.top_k == (None if choice == "map_reduce" else 10)
    assert (stage.judge is not None) == (choice == "judged")
    assert (stage.comparison is not None) == choice.startswith(("compared", "map_reduce"))
    assert choice != "compared_fastinsight" or list(stage.comparison.criteria)[-1] == "overall"
    request = getattr(getattr(stage.writer, "model", None), "request", None)
    assert request == (None if choice in ("extractive", "transformers") else {} if choice == "map_reduce"
                       else {"max_tokens": 256})  # fmt: skip


def test_a_local_model_in_the_place_of_an_endpoint() -> None:
    for choice in ("judged", "map_reduce"):
        stage = instantiate(compose("evaluate", overrides=[f"answers={choice}", *LOCAL]).answers)
        assert isinstance(stage.writer.model, TransformersLanguageModel)
        assert stage.judge is None or stage.judge.model.model == "nowhere"
        assert stage.comparison is None or stage.comparison.model.model.model == "nowhere"
