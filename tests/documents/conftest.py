import json
import os
from collections.abc import Iterable, Iterator
from importlib import import_module

import pytest

from graphrerank_documents.limited_processes import LimitedProcesses, ProcessReply, Task


@pytest.fixture(autouse=True)
def _one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read documents in one process by default: for a few files a second one only costs its start.

    Tests of several processes say how many.
    """
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


@pytest.fixture
def parses_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse files in this process, because each process costs more than the rest of such a test.

    ``test_reading.py``, ``test_index_folder.py``, ``test_command.py`` and ``test_git_attacks.py`` parse in processes.
    """

    def call(pool: LimitedProcesses, tasks: Iterable[Task]) -> Iterator[ProcessReply]:
        module, name = pool._factory.split(":")
        handler = getattr(import_module(module), name)(json.loads(json.dumps(pool._settings)))
        for task in tasks:
            yield ProcessReply(handler(json.loads(json.dumps(task.message))))

    monkeypatch.setattr(LimitedProcesses, "call", call)
