from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_dir

from graphrerank.api import prompts_of, short_names
from graphrerank.cli import schema
from graphrerank.evaluation.evaluate import FROZEN
from graphrerank.language_models.prompt import shipped_prompt
from tests.support import ROOT

MODEL = "{_target_: graphrerank.language_models.client.LanguageModel, base_url: u, model: m}"


@pytest.fixture(autouse=True)
def _composing() -> Iterator[None]:
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        yield


def listed(*names: str) -> list[str]:
    return [f"{name} {shipped_prompt(name).fingerprint}" for name in names]


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["pipeline=light_rag"], []),
        (["pipeline=light_rag", f"pipeline.steps.1.language_model={MODEL}"], ["light_rag_keywords"]),
        (["pipeline=hipporag2", f"pipeline.steps.1.language_model={MODEL}"], []),
        (["pipeline=ircot", "prompt@shared.prompts.thought=kgp_evidence"], ["kgp_evidence"]),
        (["pipeline=ket", "extractor@shared.extractor=ket"], ["ket_entities", "ket_relations"]),
        (["pipeline=retag"], []),
    ],
)
def test_prompts_that_are_told_and_those_that_are_not(overrides: list[str], names: list[str]) -> None:
    cfg = compose("evaluate", overrides=[*overrides, "checkpoint=none"])
    assert prompts_of(cfg.pipeline) == listed(*names)


def test_prompts_of_answers_and_of_no_part() -> None:
    cfg = compose("evaluate", overrides=["answers=judged", "prompt@answers.writer.prompt=short_answer"])
    assert prompts_of(None, cfg.answers) == listed("short_answer", "grapher_judge")
    retag = compose("evaluate", overrides=["pipeline=retag", "pipeline.steps.0.setup.language=llm"])
    assert len(prompts_of(retag.pipeline)) == 6


def test_graphers_extraction_is_a_choice_for_the_edges_of_a_data_set() -> None:
    overrides = ["data=2wikimultihopqa_conceptual", "+extractor@data.entities=grapher", "paths.datasets=x"]
    assert prompts_of(compose("evaluate", overrides=overrides).data) == listed("grapher_entities")


def test_short_names() -> None:
    assert short_names(["runs/1/gatv2", "runs/2/gatv2"]) == ["1-gatv2", "2-gatv2"]
    assert short_names(["a/x.trec", "b/x.trec.gz", "re2"]) == ["a-x", "b-x", "re2"]
    with pytest.raises(ValueError, match="must have different names"):
        short_names(["a/x.trec", "a/x.run"])


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_rows_name_is_taken_by_nothing_else(name: str) -> None:
    assert short_names([f"runs/{name}", "base"]) == [f"runs-{name}", "base"]
    assert short_names([f"/runs/{name}.trec"]) == [f"runs-{name}"]
    assert short_names([f"a/{name}", f"b/{name}"]) == [f"a-{name}", f"b-{name}"]
    with pytest.raises(ValueError, match=rf"a frozen row's name .*, got \['{name}'\]; write the path with its parent"):
        short_names([f"{name}.trec", "base"])
