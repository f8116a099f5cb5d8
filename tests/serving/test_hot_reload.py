import threading
from pathlib import Path

import pytest

from graphrerank.serving.hot_reload import WatchedFolder


@pytest.mark.parametrize(("look_seconds", "num_threads"), [(None, 0), (3600.0, 1)])
def test_a_thread_polls_the_folder_if_it_has_a_time_between_two_looks(
    look_seconds: float | None, num_threads: int, tmp_path: Path
) -> None:
    before = set(threading.enumerate())
    watched = WatchedFolder(tmp_path, lambda folder: folder.name, "folder", look_seconds=look_seconds)
    assert watched.current[1] == tmp_path.name
    assert len(set(threading.enumerate()) - before) == num_threads
