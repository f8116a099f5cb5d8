from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from graphrerank.cli.overrides import quoted, read_override

NAMES = [
    "Käse",
    "a b",
    "a=b",
    "[x]",
    "a,b",
    "it's",
    'say "no"',
    "{x}",
    "a#b&c;d",
    "日本",
    "a(1)",
    "12",
    "back\\slash",
    "~x",
]


def value(argument: str) -> object:
    return OverridesParser.create().parse_override(argument).value()


@pytest.mark.parametrize("name", NAMES)
def test_any_path_is_read_as_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra refused most of them: LexerNoViableAltException."""
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    for key in ("data.path", "index", "artifact", "checkpoint", "retriever.path", "+data.path"):
        for path in (name, str(tmp_path / name)):
            assert value(read_override(f"{key}={path}")) == path
    if name != "12":
        assert value(read_override(f"datasets=[./{name}]")) == [f"./{name}"]
    if "," not in name:
        assert value(read_override(f"datasets=[./{name}, attack]")) == [f"./{name}", "attack"]


@pytest.mark.parametrize(
    "argument",
    [
        "seed=1",
        "seed=1,2",
        "-m",
        "data.splits={train: 'train[:90%]', test: test}",
        "data.path=${paths.datasets}/x",
        "datasets=[attack,'./a b']",
        "checkpoint=null",
        "lr=interval(0,1)",
        "~logger",
        "data.path=",
        "'data.path'",
    ],
)
def test_what_hydra_reads_stays(argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1", "null", "attack"):
        Path(name).touch()
    assert read_override(argument) == argument


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1).filter(lambda text: "$" not in text))
def test_quoted_is_read_back(text: str) -> None:
    assert value(f"x={quoted(text)}") == text
