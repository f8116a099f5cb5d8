"""Share an engine fairly between clients, and between the connections of each client."""

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from ipaddress import IPv6Address, IPv6Network
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Sender(NamedTuple):
    """Sender of a request.

    Attributes:
        client: User of the request's token or principals header, otherwise the network address of the peer.
        connection: Address and port of the peer.
    """

    client: str = ""
    connection: str = ""


def client_network(address: str) -> str:
    """Return the network that counts as one client.

    Args:
        address: Address of a peer, as reported by the server.

    Returns:
        The address itself for IPv4, including IPv4 addresses mapped to IPv6. For IPv6, the /64 network, because one
        client may have all of its addresses. Any other string is returned unchanged.
    """
    if ":" in address:
        with suppress(ValueError):
            parsed = IPv6Address(address.partition("%")[0])
            mapped = parsed.ipv4_mapped
            return str(IPv6Network((parsed, 64), strict=False) if mapped is None else mapped)
    return address


def peer_sender(peer: Sequence[Any] | None, user: str | None = None) -> Sender:
    """Return the sender of a request.

    Args:
        peer: Address and port of the peer. None if they are unknown. All addresses of an IPv6 /64 network are one
            client, because providers assign at least such a network to each customer.
        user: User of the request's token or principals header. None if there is none.

    Returns:
        The sender.
    """
    if not peer:
        return Sender("" if user is None else f"user {user}")
    client = client_network(str(peer[0])) if user is None else f"user {user}"
    return Sender(client, f"{peer[0]} {peer[1]}")


@dataclass(eq=False)
class _WaitingItem(Generic[T]):
    """Item of the queue.

    Attributes:
        item: Queued object.
        sender: Sender of the item.
        seconds: Estimated seconds of work.
        finish: Virtual time at which the share of its connection has paid for the item.
        arrival: Time of the caller's clock at which the item was added.
        is_taken: Whether the item was taken or discarded.
    """

    item: T
    sender: Sender
    seconds: float
    finish: float
    arrival: float
    is_taken: bool = False


def _service_order(entry: _WaitingItem[Any]) -> tuple[float, float]:
    """Return the key by which the items of one client are ordered."""
    return entry.finish, entry.arrival


@dataclass
class _Client(Generic[T]):
    """Items of one client in the order of service.

    Attributes:
        time: Virtual time up to which the client has been served.
        clock: Virtual time among the connections of the client.
        flows: Virtual finish time of the last item of each connection.
        entries: Waiting items.
    """

    time: float
    clock: float = 0.0
    flows: dict[str, float] = field(default_factory=dict)
    entries: list[_WaitingItem[T]] = field(default_factory=list)

    def drop_taken(self) -> None:
        """Remove the items that were taken or discarded."""
        self.entries = [entry for entry in self.entries if not entry.is_taken]


class FairQueue(Generic[T]):
    """Queue that shares an engine fairly on two levels: among clients, and among the connections of each client.

    An unused share is divided among the others, so a single client gets all of it. An item waits for items of another
    sender only as long as the items of its own sender take, so cheap requests overtake expensive ones. In every second
    call of :meth:`take`, items that have waited for more than ``patience`` seconds come first, in order of arrival, so
    that no item waits forever.

    Source: Golestani, *A self-clocked fair queueing scheme for broadband applications*, 1994, applied on two levels.

    Args:
        patience: Waiting time in seconds after which an item may overtake the fair order.

    Example:
        >>> queue = FairQueue()
        >>> for item, client in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        ...     queue.add(item, Sender(client), seconds=1.0, now=0.0)
        >>> queue.take(lambda item: True, now=0.0)
        ['a1', 'b1', 'a2']
    """

    def __init__(self, patience: float = float("inf")) -> None:
        self._patience = patience
        self._clients: dict[str, _Client[T]] = {}
        self._entries: dict[_WaitingItem[T], None] = {}  # entries of all clients, the oldest first
        self._clock = 0.0  # virtual time among the clients
        self._turn = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, item: T, sender: Sender, seconds: float, now: float) -> None:
        """Add an item to the queue.

        Args:
            item: Object to queue.
            sender: Sender of the item.
            seconds: Estimated seconds of work.
            now: Current time of the caller's clock.
        """
        client = self._clients.get(sender.client)
        if client is None:
            client = self._clients[sender.client] = _Client(self._clock)
        finish = max(client.flows.get(sender.connection, 0.0), client.clock) + seconds
        client.flows[sender.connection] = finish
        entry = _WaitingItem(item, sender, seconds, finish, now)
        insort(client.entries, entry, key=_service_order)
        self._entries[entry] = None

    def take(self, choose: Callable[[T], bool | None], now: float) -> list[T]:
        """Remove items in the order of service and return them.

        Args:
            choose: Function called with the next item. True takes the item, False leaves it in the queue, and None
                leaves it and stops.
            now: Current time of the caller's clock.

        Returns:
            The items that were taken.
        """
        taken = list[_WaitingItem[T]]()
        for entry in self._in_order(now):
            chosen = choose(entry.item)
            if chosen is None:
                break
            if chosen:
                entry.is_taken = True
                taken.append(entry)
        for entry in taken:
            client = self._clients[entry.sender.client]
            client.time = max(client.time, self._clock) + entry.seconds
            client.clock = max(client.clock, entry.finish)
        if taken:
            self._remove(taken)
            self._advance()
        return [entry.item for entry in taken]

    def discard(self, is_unwanted: Callable[[T], bool]) -> None:
        """Remove items that are no longer needed. Their senders do not pay for them.

        Args:
            is_unwanted: Function that returns whether to remove an item.
        """
        discarded = [entry for entry in self._entries if is_unwanted(entry.item)]
        for entry in discarded:
            entry.is_taken = True
            flows = self._clients[entry.sender.client].flows
            if entry.sender.connection in flows:
                flows[entry.sender.connection] -= entry.seconds
        self._remove(discarded)

    def _remove(self, entries: Sequence[_WaitingItem[T]]) -> None:
        """Remove entries that are marked as taken."""
        for entry in entries:
            del self._entries[entry]
        for name in {entry.sender.client for entry in entries}:
            self._clients[name].drop_taken()

    def _in_order(self, now: float) -> Iterator[_WaitingItem[T]]:
        """Yield each entry once, in the order of service."""
        self._turn ^= 1
        tried = set[_WaitingItem[T]]()
        if self._turn:
            for entry in self._entries:
                if now - entry.arrival <= self._patience:
                    break
                tried.add(entry)
                yield entry
                if entry.is_taken:
                    break
        queues, heads = [], []
        for number, client in enumerate(client for client in self._clients.values() if client.entries):
            queues.append(iter(client.entries))
            head = next(queues[-1])
            heads.append((max(client.time, self._clock) + head.seconds, head.arrival, number, head))
        heapify(heads)
        while heads:
            finish, _, number, entry = heads[0]
            if entry not in tried:
                yield entry
            if (following := next(queues[number], None)) is None:
                heappop(heads)
            else:
                heapreplace(heads, (finish + following.seconds, following.arrival, number, following))

    def _advance(self) -> None:
        """Advance the virtual time to that of the least served waiting client, and forget idle senders."""
        waiting = [client.time for client in self._clients.values() if client.entries]
        times = waiting or [client.time for client in self._clients.values()]
        self._clock = max(self._clock, min(times))
        for name, client in list(self._clients.items()):
            if not client.entries and client.time <= self._clock:
                del self._clients[name]
            else:
                client.flows = {name: time for name, time in client.flows.items() if time > client.clock}


class _RequestWork(NamedTuple):
    """Remaining work of an unanswered request.

    Attributes:
        sender: Sender of the request.
        kind: Kind of work.
        estimated: Estimated seconds.
        measured: Estimated seconds times the rate of ``kind`` when the request was counted.
    """

    sender: Sender
    kind: str
    estimated: float
    measured: float


@dataclass
class _Share:
    """Unanswered work of one client.

    Attributes:
        seconds: Measured seconds of work of all requests.
        requests: Number of requests.
        connections: Measured seconds of work by connection.
    """

    seconds: float = 0.0
    requests: int = 0
    connections: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class Backlog:
    """Unanswered work of an engine, from which the waiting time of a new request is estimated.

    Args:
        rate: Function that returns the measured seconds per estimated second of a kind of work.
    """

    def __init__(self, rate: Callable[[str], float]) -> None:
        self._rate = rate
        self._requests: dict[str, _RequestWork] = {}
        self._shares: defaultdict[str, _Share] = defaultdict(_Share)
        self._seconds = 0.0  # sum over all shares

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def seconds(self) -> float:
        """Measured seconds of all unanswered work, an upper bound of :meth:`wait`."""
        return self._seconds

    def count(self, uid: str, sender: Sender, kind: str, seconds: float) -> None:
        """Set how much work of a request is left.

        Args:
            uid: Id of the request.
            sender: Sender of the request.
            kind: Kind of work.
            seconds: Estimated seconds of the remaining work.
        """
        if uid in self._requests:
            self.forget(uid)
        measured = self._rate(kind) * seconds
        self._requests[uid] = _RequestWork(sender, kind, seconds, measured)
        share = self._shares[sender.client]
        share.requests += 1
        share.seconds += measured
        share.connections[sender.connection] += measured
        self._seconds += measured

    def start(self, uid: str, seconds: float) -> None:
        """Record that some work of a request has started and is no longer waiting.

        Args:
            uid: Id of the request. Unknown ids are ignored.
            seconds: Estimated seconds of the work.
        """
        if uid not in self._requests:
            return
        work = self._requests[uid]
        remaining = max(0.0, work.estimated - seconds)
        measured = self._rate(work.kind) * remaining
        self._requests[uid] = work._replace(estimated=remaining, measured=measured)
        share = self._shares[work.sender.client]
        share.seconds += measured - work.measured
        share.connections[work.sender.connection] += measured - work.measured
        self._seconds += measured - work.measured

    def forget(self, uid: str) -> None:
        """Remove a request.

        Args:
            uid: Id of the request.
        """
        work = self._requests.pop(uid)
        sender, measured = work.sender, work.measured
        share = self._shares[sender.client]
        share.requests -= 1
        share.seconds -= measured
        share.connections[sender.connection] -= measured
        # reset to zero when nothing is left, so that rounding errors do not accumulate
        self._seconds = self._seconds - measured if self._requests else 0.0
        if not share.requests:
            del self._shares[sender.client]
        elif share.connections[sender.connection] < 1e-9:
            del share.connections[sender.connection]

    def reprice(self) -> None:
        """Estimate all work again after a rate has changed."""
        requests, self._requests, self._shares = self._requests, {}, defaultdict(_Share)
        self._seconds = 0.0
        for uid, work in requests.items():
            self.count(uid, work.sender, work.kind, work.estimated)

    def requests_of(self, client: str) -> int:
        """Return the number of unanswered requests of a client.

        Args:
            client: Name of the client.
        """
        return self._shares[client].requests if client in self._shares else 0

    @property
    def clients(self) -> set[str]:
        """Clients that have unanswered requests."""
        return set(self._shares)

    def wait(self, sender: Sender, seconds: float) -> float:
        """Estimate the work that a fair queue does before a new request.

        Args:
            sender: Sender of the new request.
            seconds: Measured seconds of work of the new request.

        Returns:
            Seconds of work that precede it.
        """
        work_of_client = 0.0
        share = self._shares.get(sender.client)
        if share is not None:
            work_of_connection = share.connections.get(sender.connection, 0.0)
            others = (work for name, work in share.connections.items() if name != sender.connection)
            work_of_client = _work_before(work_of_connection, seconds, others)
        others = (other.seconds for name, other in self._shares.items() if name != sender.client)
        return _work_before(work_of_client, seconds, others)


def _work_before(earlier: float, seconds: float, others: Iterable[float]) -> float:
    """Return the seconds of work that fair sharing among clients, or among connections, does before a request.

    Until the request is answered, each of the others gets at most as much work done as the sender of the request.

    Args:
        earlier: Seconds of earlier work of the same client or connection.
        seconds: Seconds of work of the request.
        others: Seconds of unanswered work of each other client or connection.
    """
    return earlier + sum(min(work, earlier + seconds) for work in others)
