import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from graphrerank.cli.completion import completion_script


def on_path(folder: Path) -> dict[str, str]:
    """An environment that finds this Python's command line as ``graphrerank``, which is written to the folder."""
    command = folder / "graphrerank"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m graphrerank.cli.main "$@"\n')
    command.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


def completed(words: list[str], folder: Path) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(words)
    listed = " ".join(f"'{word}'" for word in words)
    script = (
        f"{completion_script('bash')}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'\n"
        '_graphrerank; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=on_path(folder))
    return done.stdout.split()


def test_bash_completes_commands(tmp_path: Path) -> None:
    assert completed(["graphrerank", "ev"], tmp_path) == ["evaluate"]
    assert completed(["graphrerank", "index", "x"], tmp_path) == []


@pytest.mark.slow
def test_bash_completes_settings(tmp_path: Path) -> None:
    assert completed(["graphrerank", "train", "data=attack_p"], tmp_path) == ["data=attack_paths"]
    assert "retriever=hybrid" in completed(["graphrerank", "evaluate", "seed=1", "retriever=hyb"], tmp_path)
    assert completed(["graphrerank", "doctor", "my_data", "checkp"], tmp_path) == ["checkpoint="]
    assert completed(["graphrerank", "demo", "browse"], tmp_path) == ["browser="]


@pytest.mark.slow
@pytest.mark.skipif(which("fish") is None, reason="fish is not installed")
def test_fish_completes_settings(tmp_path: Path) -> None:
    script = completion_script("fish")
    for words, expected in (("demo browse", "browser="), ("doctor my_data checkp", "checkpoint="), ("ev", "evaluate")):
        asked = f'{script}\ncomplete -C "graphrerank {words}"'
        done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, check=True, env=on_path(tmp_path))
        assert done.stdout.split() == [expected]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str) -> None:
    assert "graphrerank" in completion_script(shell)
