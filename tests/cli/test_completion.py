import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphrerank.cli.completion import completion_script


def completed(words: list[str], folder: Path) -> list[str]:
    """What bash offers for the last word, with this Python's command line as ``graphrerank``."""
    command = folder / "graphrerank"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m graphrerank.cli.main "$@"\n')
    command.chmod(0o755)
    line = " ".join(words)
    listed = " ".join(f"'{word}'" for word in words)
    script = (
        f"{completion_script('bash')}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'\n"
        '_graphrerank; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split()


def test_bash_completes_commands(tmp_path: Path) -> None:
    assert completed(["graphrerank", "ev"], tmp_path) == ["evaluate"]
    assert completed(["graphrerank", "doctor", "x"], tmp_path) == []


@pytest.mark.slow
def test_bash_completes_settings(tmp_path: Path) -> None:
    assert completed(["graphrerank", "train", "data=attack_p"], tmp_path) == ["data=attack_paths"]
    assert "retriever=hybrid" in completed(["graphrerank", "evaluate", "seed=1", "retriever=hyb"], tmp_path)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str) -> None:
    assert "graphrerank" in completion_script(shell)
