"""Objects that the engines of one process share."""

import pickle
from functools import partial

from graphrerank.serving.setup.once_per_process import OncePerProcess


def test_factories_that_are_pickled_together_share_the_object_of_the_other_process() -> None:
    shared = OncePerProcess(partial(list, "abc"))
    here = shared()
    first, second = pickle.loads(pickle.dumps([shared, partial(shared)]))
    assert shared() is here
    assert first() is second()
    assert first() == here
    assert first() is not here


def test_nothing_is_built_before_the_first_call() -> None:
    calls: list[int] = []
    shared = OncePerProcess(lambda: calls.append(1))
    assert calls == []
    shared()
    shared()
    assert calls == [1]
