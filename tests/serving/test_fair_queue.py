"""Fair sharing of an engine between clients and their connections."""

import pytest

from graphrerank.serving.fair_queue import Backlog, FairQueue, Sender, peer_sender


def take_one(queue: FairQueue[str], now: float = 0.0) -> str:
    taken: list[str] = []

    def choose(item: str) -> bool | None:
        if taken:
            return None
        taken.append(item)
        return True

    queue.take(choose, now)
    return taken[0]


def drained(queue: FairQueue[str], now: float = 0.0) -> list[str]:
    return [take_one(queue, now) for _ in range(len(queue))]


def test_one_connection_is_served_in_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for name, seconds in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        queue.add(name, Sender("one", "1"), seconds, 0.0)
    assert drained(queue) == ["a", "b", "c"]


def test_cheap_requests_pass_the_expensive_ones_of_other_senders() -> None:
    """While a sender waits for two seconds of work, each other sender may get two seconds of work done."""
    for heavy in ([Sender("heavy", "1")] * 3, [Sender("light", f"h{number}") for number in range(3)]):
        queue: FairQueue[str] = FairQueue()
        for number, sender in enumerate(heavy):
            queue.add(f"heavy {number}", sender, 2.0, 0.0)
        for number in range(4):
            queue.add(f"light {number}", Sender("light", f"l{number % 2}"), 0.4, 0.0)
        assert drained(queue)[:4] == [f"light {number}" for number in range(4)]


def test_clients_have_equal_shares_however_many_connections_they_have() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(30):
        queue.add("many", Sender("many", f"{number}"), 1.0, 0.0)
    for _ in range(10):
        queue.add("one", Sender("one", "1"), 1.0, 0.0)
    first = drained(queue)[:20]
    assert first.count("one") == first.count("many") == 10


def test_a_share_that_was_not_used_is_not_saved() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(20):
        queue.add("busy", Sender("busy", "1"), 1.0, 0.0)
    for _ in range(10):
        take_one(queue)
    for _ in range(10):
        queue.add("idle until now", Sender("idle", "1"), 1.0, 0.0)
    assert drained(queue)[:10].count("busy") == 5


def test_items_beyond_the_patience_come_first_in_every_second_turn() -> None:
    queue: FairQueue[str] = FairQueue(patience=5.0)
    queue.add("heavy", Sender("client", "h"), 100.0, 0.0)
    queue.add("another heavy", Sender("client", "i"), 100.0, 0.0)
    for number in range(4):
        queue.add(f"light {number}", Sender("client", f"{number}"), 0.1, 4.0)
    assert sorted([take_one(queue, 4.0), take_one(queue, 4.0)]) == ["light 0", "light 1"]
    assert sorted([take_one(queue, 6.0), take_one(queue, 6.0)]) == ["heavy", "light 2"]


def test_items_of_a_client_are_in_order_while_others_come_and_go() -> None:
    """Items are served by the virtual time at which they end, in whatever order they arrived."""
    queue: FairQueue[str] = FairQueue()
    for name, connection, seconds in (("a 2", "a", 2.0), ("b 1", "b", 1.0), ("b 4", "b", 3.0), ("c 3", "c", 3.0)):
        queue.add(name, Sender("one", connection), seconds, 0.0)
    queue.discard(lambda item: item == "c 3")
    assert take_one(queue) == "b 1"
    queue.add("d 1.5", Sender("one", "d"), 0.5, 0.0)  # from the virtual time 1 on
    assert len(queue) == 3
    assert drained(queue) == ["d 1.5", "a 2", "b 4"]


def test_no_wait_exceeds_the_sum_of_the_backlog() -> None:
    rate = 2.0
    backlog = Backlog(lambda kind: rate)
    assert backlog.seconds == 0
    for number, seconds in enumerate((1.0, 2.0, 4.0)):
        backlog.count(f"r{number}", Sender(f"client {number % 2}", f"{number}"), "a", seconds)
    assert backlog.seconds == pytest.approx(14)
    assert backlog.wait(Sender("another", "1"), 100.0) == pytest.approx(backlog.seconds)
    backlog.start("r2", 3.0)
    assert backlog.seconds == pytest.approx(8)
    rate = 1.0
    backlog.reprice()
    assert backlog.seconds == pytest.approx(4)
    for uid in ("r0", "r1", "r2"):
        backlog.forget(uid)
    assert backlog.seconds == 0


def test_senders_do_not_pay_for_discarded_items() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("gone", Sender("one", "1"), 100.0, 0.0)
    queue.discard(lambda item: item == "gone")
    assert len(queue) == 0
    queue.add("next", Sender("one", "1"), 1.0, 0.0)
    queue.add("other", Sender("one", "2"), 2.0, 0.0)
    assert drained(queue) == ["next", "other"]


def test_an_item_that_was_not_taken_keeps_its_position() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in ("a", "b", "c"):
        queue.add(name, Sender("one", "1"), 1.0, 0.0)
    assert queue.take(lambda item: item != "a", 0.0) == ["b", "c"]
    assert drained(queue) == ["a"]


def backlog(*work: tuple[str, str, float], rate: float = 1.0) -> Backlog:
    made = Backlog(lambda kind: rate)
    for number, (client, connection, seconds) in enumerate(work):
        made.count(f"{number}", Sender(client, connection), "kind", seconds)
    return made


@pytest.mark.parametrize(
    ("work", "seconds", "expected"),
    [
        ([], 1.0, 0.0),
        ([("me", "1", 3.0)], 1.0, 3.0),  # the connection's own work comes before
        ([("me", "2", 3.0)], 1.0, 1.0),  # another connection's as much as this one's
        ([("me", "2", 0.2), ("me", "3", 5.0)], 1.0, 1.2),
        ([("other", str(number), 2.0) for number in range(50)], 1.0, 1.0),  # another client's likewise
        ([("me", "1", 3.0), ("other", "1", 100.0)], 1.0, 7.0),
        ([("me", "2", 100.0)] * 4, 20.0, 20.0),
    ],
)
def test_the_wait_of_a_further_request(work, seconds, expected) -> None:
    assert backlog(*work).wait(Sender("me", "1"), seconds) == pytest.approx(expected)


def test_the_wait_follows_the_rates_and_the_remaining_work() -> None:
    rate = 1.0
    made = Backlog(lambda kind: rate)
    me = Sender("me", "1")
    made.count("r", me, "kind", 3.0)
    rate = 2.0
    assert made.wait(me, 1.0) == 3.0
    made.reprice()
    assert made.wait(me, 1.0) == 6.0
    made.start("r", 1.0)
    assert made.wait(me, 1.0) == 4.0
    assert (made.requests_of("me"), made.clients, len(made)) == (1, {"me"}, 1)
    made.forget("r")
    assert (made.wait(me, 1.0), made.requests_of("me"), made.clients) == (0.0, 0, set())


def test_who_sent_a_request() -> None:
    assert peer_sender(("192.0.2.1", 5)) == ("192.0.2.1", "192.0.2.1 5")
    assert peer_sender(("192.0.2.1", 5), "ann") == ("user ann", "192.0.2.1 5")
    assert peer_sender(("2001:db8::1", 5)).client == peer_sender(("2001:db8::2", 6)).client
    assert peer_sender(("2001:db8::1", 5)).client != peer_sender(("2001:db8:0:1::1", 5)).client
    assert peer_sender(("::ffff:192.0.2.1", 5)).client == "192.0.2.1"
    assert peer_sender(("fe80::1%eth0", 5)).client == "fe80::/64"
    assert peer_sender(None) == ("", "")
