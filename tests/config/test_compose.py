import pytest

from graphrerank.config.compose import compose_root, flatten_settings, group_choices


def test_a_composed_configuration_is_a_copy() -> None:
    compose_root("+encoder=none").seed = 7
    assert compose_root("+encoder=none").seed == 0


def test_choices_include_files_that_hold_several() -> None:
    assert {"minilm", "none", "sentence_transformer"} <= set(group_choices("encoder"))


def test_settings_of_a_class_stay_whole() -> None:
    model = {"_target_": "m.Model", "heads": 4}
    assert dict(flatten_settings({"a": {"b": 1, "model": model}})) == {"a.b": 1, "a.model": model}


def test_an_unknown_file_is_refused() -> None:
    with pytest.raises(ValueError, match="minilmm"):
        compose_root("+encoder=minilmm")
