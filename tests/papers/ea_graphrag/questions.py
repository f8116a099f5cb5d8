"""Files of routing questions."""

import json
from pathlib import Path
from typing import Any


def write_questions(folder: Path, dense: list[str], graph: list[str], validation: dict[str, str]) -> Path:
    """Write training questions of both paths, and validation questions with their paths. Returns the file."""
    entries: list[dict[str, Any]] = [{"text": text, "right": "dense", "part": "training", "label": 0} for text in dense]
    entries += [{"text": text, "right": "graph"} for text in graph]
    entries += [{"text": text, "right": right, "part": "validation"} for text, right in validation.items()]
    file = folder / "disagreements.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file
