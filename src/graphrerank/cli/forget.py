"""``graphrerank forget LOG USER``: delete what a service remembers of a user, also while it runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    described = argparse.ArgumentParser(prog="graphrerank forget", description=__doc__)
    described.add_argument("log", type=Path, help="the folder of a service's feedback.path")
    described.add_argument(
        "user", help="`sub` of tokens, else principals (a JSON list, or commas between), or the requests' `user`"
    )
    kinds = "which of these USER is: sub, principals or name; users of all kinds by default"
    described.add_argument("--kind", choices=["sub", "principals", "name"], help=kinds)
    return described


def main(arguments: Sequence[str]) -> int:
    """Delete all events of a user (:func:`~graphrerank.serving.feedback_log.forget_user`), and print their number."""
    given = parser().parse_args(arguments)
    from graphrerank.serving.feedback_log import forget_user

    print(f"{forget_user(given.log, given.user, given.kind)} events deleted")
    return 0
