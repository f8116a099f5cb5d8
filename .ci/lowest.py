"""Print the lowest versions that the core and the service allow, but for torch, as pip takes them."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
requirements = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
print(*(each.replace(">=", "==") for each in requirements if not each.startswith("torch")), sep="\n")
