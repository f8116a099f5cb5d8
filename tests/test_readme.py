import re
import shlex

import pytest
from hydra import compose, initialize_config_dir

from graphrerank.cli import schema
from tests.support import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    (command, shlex.split(rest, comments=True))
    for command, rest in re.findall(r"^python (train|evaluate|serve)\.py(.*)$", README, re.MULTILINE)
]


def test_readme_names_every_command() -> None:
    assert {command for command, _ in COMMANDS} == {"train", "evaluate", "serve"}
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize(("command", "arguments"), COMMANDS)
def test_every_command_of_the_readme_composes(command: str, arguments: list[str]) -> None:
    schema.register()
    sweep = "-m" in arguments
    overrides = [argument.split(",")[0] if sweep else argument for argument in arguments if argument != "-m"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        compose(command, overrides=overrides)


def test_first_screen_holds_the_two_commands() -> None:
    first_screen = "\n".join(README.splitlines()[:40])
    for command in ("python train.py", "pytest"):
        assert f'pip install -c constraints.txt -e ".[dev]" && {command}' in first_screen


@pytest.mark.parametrize("room", sorted(p.name for p in (ROOT / "src" / "graphrerank").iterdir() if p.is_dir()))
def test_map_names_every_room(room: str) -> None:
    if room not in ("__pycache__", "pretrained"):
        assert f"`{room}/`" in README
