"""Instants, against `datetime` and by hand."""

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest

from graphrerank.corpus.times import as_text, now, parse_time

EPOCH = datetime(1, 1, 1, tzinfo=UTC)


def instant(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


DAYS = "20250131 2025-W05-5 2025W055 2025-031 2025031 2025-01-31T00 2025-01-30T24:00 2025-01-31T00:00Z 20250131T0000"
SAME = {
    "2025-01-31": [*DAYS.split(), " 2025-01-31 ", "2025-01-31 01:00+01", "2025-01-30T22:30:00.000-0130"],
    "2025-01-31T10:30:15.5": ["2025-01-31t10:30:15,5z", "20250131T103015.50", "2025-01-31 12:30:15.5000000009 +02:00"],
    "2025-01-31T10:30:00": ["2025-01-31T10.5", "2025-01-31T10:30Z", "20250131T1030Z", "2025-01-31T10:30:00+00:00"],
    "2025-01-01": ["2025", "2025-01", "2025-001", "2024-12-31T24:00:00Z"],
    "2024-12-30": ["2025-W01", "2025W01", "2025-W01-1", "2024-365"],
}


@pytest.mark.parametrize("time", SAME)
def test_forms_of_one_time_by_hand(time: str) -> None:
    expected = instant(datetime.fromisoformat(time).replace(tzinfo=UTC))
    assert {written: parse_time(written) for written in [time, *SAME[time]]} == dict.fromkeys(
        [time, *SAME[time]], expected
    )


def test_against_datetime() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        zone = timezone(timedelta(minutes=rng.randint(-14 * 60, 14 * 60)))
        time = datetime(rng.randint(2, 9998), rng.randint(1, 12), rng.randint(1, 28), tzinfo=zone)
        time += timedelta(microseconds=rng.randrange(86_400_000_000))
        assert parse_time(time.isoformat()) == instant(time)
        assert parse_time(time.strftime("%Y%m%dT%H%M%S.%f%z").rjust(27, "0")) == instant(time)


def test_texts_of_instants_ascend_over_all_years() -> None:
    times = ["0001", "0999", "2025-01-31T10:00", "2025-01-31T10:00:00.000001", "9999-12-31T23:59:59.999999"]
    instants = [parse_time(time) for time in times]
    assert instants[0] >= 0
    assert instants == sorted(instants)
    texts = list(map(as_text, instants))
    assert texts == sorted(texts)
    assert len(set(map(len, texts))) == 1


def test_the_present_is_that_of_the_clock() -> None:
    before = instant(datetime.now(UTC))
    assert before <= now() <= instant(datetime.now(UTC))


WRONG = """yesterday 31.01.2025 2025-1-31 202501 2025-13 2025-02-29 2025-366 2025-000 0000 2025-W54 2025-W05-8
2025-01-31T 2025-01-31T25 2025-01-31T24:00:01 2025-01-31T10:60 2025-01-31x10:00 2025-01-31T10:00CET 2025-01-31Z
2025-01-31T10:00+24:00 \uff12\uff10\uff12\uff15 0001-01-01T00:00+14:00 9999-12-31T23:59:59-14:00"""


@pytest.mark.parametrize("written", [*WRONG.split(), "", "2025-\n01", 20250131, 2025.5, None, True, ["2025"]])
def test_what_is_no_time_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"expected a time in ISO 8601, such as 2025-01-31, .* got "):
        parse_time(written)
