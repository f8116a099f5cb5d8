import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from graphrerank.cli import schema
from graphrerank.installation.conf_folder import listed_choices
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from tests.support import CONF


def test_texts_are_put_in_as_they_are() -> None:
    prompt = Prompt("p", "{a} {b} {a}")
    assert prompt.fill(a="{b}", b="{x} \\1") == "{b} {x} \\1 {b}"
    with pytest.raises(ValueError, match=r"prompt 'p' must have the placeholders \['a'\], got \['a', 'b'\]"):
        prompt.fill(a="")


@pytest.mark.parametrize("name", sorted(listed_choices("prompt")))
def test_every_prompt_that_ships_is_a_choice(name: str) -> None:
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        prompt = instantiate(compose("part", overrides=[f"+prompt={name}"]).prompt)
    assert prompt.name == name
    assert prompt.user.strip()
    assert prompt == shipped_prompt(name)


def test_settings_stand_in_the_system_message_if_it_names_them() -> None:
    assert Prompt("p", "", system='{limit} of {"a": 1}').instructions(limit=3, words=2) == '3 of {"a": 1}'
    assert Prompt("p", "").instructions(limit=3) is None
    with pytest.raises(ValueError, match=r"prompt 'p' must only have the placeholders \['limit'\], got \['words'\]"):
        Prompt("p", "", system="{words}").instructions(limit=3)


def test_the_fingerprint_is_of_the_wording_and_not_of_the_name() -> None:
    plain = Prompt("p", "a")
    assert plain.fingerprint == Prompt("q", "a").fingerprint
    others = [Prompt("p", "b"), Prompt("p", "a", system="a"), Prompt("p", "a", abstention="a")]
    assert len({prompt.fingerprint for prompt in (plain, *others)}) == 4
    assert Prompt("p", "Text: {text}", system="List {limit}.").wording == "List .\n\nText:"


@pytest.mark.parametrize("form", ["yes|(no", "{type: object", '{"type": '])
def test_a_form_that_is_none(form: str) -> None:
    with pytest.raises(ValueError, match="the `form` of prompt 'p' must be a JSON schema"):
        Prompt("p", "{context}{question}", form=form)


def test_a_prompt_that_does_not_ship() -> None:
    with pytest.raises(ValueError, match=r"one of the shipped prompts .*'drafted_question', .*got 'mine'"):
        shipped_prompt("mine")
