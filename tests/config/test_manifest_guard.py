from typing import Any

import pytest

from graphrerank.config.manifest_guard import check_no_code, portable_arguments, trusted_arguments


def test_portable_arguments_have_no_device_and_no_class() -> None:
    settings = {"_target_": "m.Encoder", "device": "cuda", "model": {"_target_": "m.Body", "name": "x", "cache": "/c"}}
    assert portable_arguments(settings) == {"model": {"name": "x"}}


@pytest.mark.parametrize(
    ("settings", "defaults"),
    [({"package": "ours"}, {"package": "ours"}), ({"path": "../films"}, None), ({"prompt": "../x"}, None)],
)
def test_defaults_paths_of_data_and_free_texts_are_accepted(settings: dict[str, Any], defaults: Any) -> None:
    check_no_code("data", settings, None if defaults is None else {**defaults})
    assert trusted_arguments("data", settings, defaults) == settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"package": "evil"}, "`data.package` in a file must equal its default in conf, None, got 'evil'"),
        ({"steps": ["~/x"]}, "`data.steps` in a file must not be a path or an address, got '~/x'"),
        ({"path": "http://evil"}, "`data.path` in a file must not be a path or an address, got 'http://evil'"),
    ],
)
def test_code_paths_and_addresses_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_no_code("data", settings, None)


def test_settings_that_edges_auto_ignores_are_left_out() -> None:
    arguments = {"edges": "auto", "mentions": False, "adjacency": False, "entities": None, "knn": 0}
    assert trusted_arguments("data", arguments, None) == {"edges": "auto"}
