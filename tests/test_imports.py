import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphrerank

PACKAGE = Path(graphrerank.__file__).parent
FLOORS = [  # DESIGN.md, section 2: a room sees the floors below its own, never its siblings
    {"files"},
    {"graphs"},
    {"data", "operators", "losses", "metrics"},
    {"models"},
    {"training"},
    {"evaluation"},
    {"serving"},
    {"doors"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
NARROWER = {  # where a room may see less than all floors below
    "models": {"files", "graphs", "operators"},
    "training": {"files", "graphs", "losses", "metrics"},
}
HEAVY = ("torch_geometric", "transformers", "sentence_transformers", "wandb", "lightning", "hydra", "fastapi")


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def own_imports(path: Path) -> Iterator[str]:
    """Modules of this package that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "graphrerank")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module is not None and node.module.split(".")[0] == "graphrerank":
                below = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name if name in MODULES else node.module for name in below)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_room_has_a_floor() -> None:
    assert {room(module) for module in MODULES} - {""} <= set(FLOOR_OF)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_downward(module: str) -> None:
    own = room(module)
    if not own:
        assert list(own_imports(MODULES[module])) == []
        return
    allowed = NARROWER.get(own, {other for other, floor in FLOOR_OF.items() if floor < FLOOR_OF[own]})
    upward = [name for name in own_imports(MODULES[module]) if room(name) not in allowed | {own}]
    assert upward == []


def test_no_import_goes_in_a_circle() -> None:
    graph = {module: {name for name in own_imports(path) if name != module} for module, path in MODULES.items()}
    while leaves := [module for module, below in graph.items() if not below]:
        for leaf in leaves:
            del graph[leaf]
        for below in graph.values():
            below.difference_update(leaves)
    assert graph == {}


@pytest.mark.parametrize(
    ("module", "light"),
    [
        ("graphrerank", HEAVY),
        ("graphrerank.operators", HEAVY),
        ("graphrerank.models", HEAVY),
        ("graphrerank.data", tuple(name for name in HEAVY if name != "lightning")),
        # lightning loads torchmetrics, and that transformers
        ("graphrerank.training", tuple(name for name in HEAVY if name not in {"lightning", "transformers"})),
    ],
)
def test_importing_loads_nothing_heavy(module: str, light: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*[name for name in {light!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
