import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from graphrerank.answers import Prompt
from tests.support import CONF


def test_texts_are_put_in_as_they_are() -> None:
    prompt = Prompt("p", "{a} {b} {a}")
    assert prompt.fill(a="{b}", b="{x} \\1") == "{b} {x} \\1 {b}"
    with pytest.raises(ValueError, match=r"prompt 'p' must have the places \['a'\], got \['a', 'b'\]"):
        prompt.fill(a="")


@pytest.mark.parametrize("file", sorted((CONF / "prompt").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_prompt_of_conf(file) -> None:  # type: ignore[no-untyped-def]
    prompt = instantiate(OmegaConf.load(file))
    assert prompt.name == file.stem
    assert prompt.user.strip()
