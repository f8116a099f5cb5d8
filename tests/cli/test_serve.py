import pytest

from tests.support.commands import RunCommand


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mode=serve", "`mode` must be one of ['http', 'bench', 'export', 'demo'], got 'serve'"),
        ("mode=bench", "mode=bench needs `artifact`: a folder that `graphrerank export` wrote"),
        ("limits.body_bytes=many", "`limits.body_bytes`: input should be a valid integer"),
        ("limits.body_bytes=0", "`limits.body_bytes` must be positive, got 0"),
        ("limits.bodies=1", "Key 'bodies' is not in struct"),
        ("bench.rounds=0", "`rounds` must be a positive integer, got 0"),
    ],
)
def test_what_is_missing_or_mistyped(run_command: RunCommand, setting: str, message: str) -> None:
    mode = () if "mode=" in setting else (("mode=bench",) if "bench" in setting else ())
    done = run_command("serve.py", *mode, setting, *(() if "mode=" in setting else ("artifact=attack",)), status=1)
    assert message in done.stderr
