"""Failure detector: the timeout and the state of each peer, by node address.

It learns from answered and missed calls. It does no I/O: `now` is an argument, in seconds on any clock that never goes
back. Missed calls make a peer suspect (lookups route around it) and then dead (the lists drop it). Refused connections
make a peer dead sooner. Any sign of life makes it alive again.

States expire. A peer that has been dead for `reprobe_first_s` counts as suspect, one miss from dead. After a while, a
peer that left counts as unknown, so that a report of its return is worth a probe.
"""

from __future__ import annotations

from collections import Counter

from chord.config import Timing
from chord.events import PeerChanged
from chord.wire.messages import ADDRESS_CHARS_MAX, LIST_ENTRIES_MAX, TEXT_CHARS_MAX, PeerInfo, PeerState

PEERS_MAX = 1024


class _Peer:
    __slots__ = ("backoff", "misses", "reason", "refusals", "rttvar", "since", "srtt", "state")

    def __init__(self, now: float) -> None:
        self.state: PeerState = "alive"
        self.since = now
        self.reason = ""
        self.misses = 0
        self.refusals = 0
        self.backoff = 0  # misses since the last answer; other signs of life do not clear it, unlike `misses`
        self.srtt: float | None = None
        self.rttvar = 0.0


class FailureDetector:
    """The states and timeouts of all peers, as one node sees them.

    A method that learns something returns the change of a peer's state that it caused; None if no state changed. The
    times `now` are in seconds on one clock, which never goes back.

    Args:
        timing: the timeouts, and the numbers of misses until a peer is suspect or dead.
        peers_max: largest number of peers to remember. Beyond it, the peer without news for longest is dropped.
    """

    __slots__ = ("_left_for_s", "_max", "_now", "_peers", "_timing")

    def __init__(self, timing: Timing, peers_max: int = PEERS_MAX) -> None:
        self._timing = timing
        self._max = peers_max
        self._peers: dict[str, _Peer] = {}  # the least recently heard of first
        self._now = 0.0
        self._left_for_s = 2 * (timing.timeout_cap_s + timing.stabilize_s)  # a leaver answers "moved" for less time

    # -- learning -------------------------------------------------------------------------------

    def answered(self, address: str, now: float, rtt_s: float | None) -> PeerChanged | None:
        """Note that a peer answered a call: it is alive, unless it has left.

        Args:
            address: the peer's address.
            now: the current time.
            rtt_s: the round-trip time in seconds, or None if the peer had to wait for other nodes. A time above the
                largest timeout is ignored: either process was suspended, so it says nothing about the network.

        Returns:
            The change of the peer's state; None without a change.
        """
        peer = self._touch(address, now)
        peer.misses = peer.refusals = peer.backoff = 0
        if rtt_s is not None and rtt_s <= self._timing.timeout_cap_s:
            self._sample(peer, rtt_s)
        if peer.state == "alive" or peer.state == "left":
            return None
        return self._become(address, peer, "alive", "answered")

    def heard_from(self, address: str, now: float) -> PeerChanged | None:
        """Note a sign of life of a peer, such as a call: it is alive, even if it had left.

        Return the change of its state; None without a change.
        """
        peer = self._touch(address, now)
        peer.misses = peer.refusals = 0
        return None if peer.state == "alive" else self._become(address, peer, "alive", "heard from")

    def missed(self, address: str, now: float, refused: bool, reason: str) -> PeerChanged | None:
        """Note that a peer did not answer a call, or could not be reached.

        A paused peer has announced its absence. Misses make it dead only after `down_out_s`; see `paused`.

        Args:
            address: the peer's address.
            now: the current time.
            refused: whether the machine refused the connection, because no process listens at the address.
            reason: why the peer did not answer, for the event and for `peers`.

        Returns:
            The change of the peer's state to suspect or dead; None without a change.
        """
        peer = self._touch(address, now)
        timing = self._timing
        peer.misses += 1
        peer.backoff += 1
        peer.refusals = peer.refusals + 1 if refused else 0
        if peer.state in ("left", "dead") or (peer.state == "paused" and now - peer.since < timing.down_out_s):
            return None
        if peer.misses >= timing.dead_misses or peer.refusals >= timing.dead_refusals:
            return self._become(address, peer, "dead", reason)
        if peer.misses >= timing.suspect_misses and peer.state == "alive":
            return self._become(address, peer, "suspect", reason)
        return None

    def left(self, address: str, now: float) -> PeerChanged | None:
        """Note that a peer left the ring for good.

        Return the change of its state; None if it had already left.
        """
        peer = self._touch(address, now)
        return None if peer.state == "left" else self._become(address, peer, "left", "left the ring")

    def paused(self, address: str, now: float) -> PeerChanged | None:
        """Note that a peer pauses: lookups avoid it, and no vnode takes its arcs over.

        The peer is paused until it answers, calls, leaves or announces its stop. In the first `down_out_s` seconds,
        missed calls do not make it dead. Return the change of its state; None if it was already paused.
        """
        peer = self._touch(address, now)
        return None if peer.state == "paused" else self._become(address, peer, "paused", "paused")

    def stopped(self, address: str, now: float) -> PeerChanged | None:
        """Note that a peer announced its stop: it counts as dead without a missed call.

        Return the change of its state; None if it was already dead.
        """
        peer = self._touch(address, now)
        peer.misses, peer.refusals = self._timing.dead_misses, self._timing.dead_refusals
        return None if peer.state == "dead" else self._become(address, peer, "dead", "stopped")

    # -- questions ------------------------------------------------------------------------------

    def timeout(self, address: str) -> float:
        """Return how long to wait for a peer's answer, in seconds.

        It is the smoothed round-trip time plus four times its mean variation, between `timeout_floor_s` and
        `timeout_cap_s`. Each missed call since the last answer doubles it, up to `timeout_stranger_s`, because a peer
        that stalls is not dead. A peer without a measured time has `timeout_stranger_s`.

        Source: RFC 6298, sections 2 and 5.5.
        """
        timing = self._timing
        peer = self._peers.get(address)
        if peer is None or peer.srtt is None:
            return timing.timeout_stranger_s
        usual = min(max(peer.srtt + 4 * peer.rttvar, timing.timeout_floor_s), timing.timeout_cap_s)
        if peer.backoff:
            return max(usual, min(usual * (1 << min(peer.backoff, 16)), timing.timeout_stranger_s))
        return usual

    def srtt(self, address: str) -> float | None:
        """Return the smoothed round-trip time to a peer in seconds, or None if none was measured."""
        peer = self._peers.get(address)
        return None if peer is None else peer.srtt

    def state(self, address: str) -> PeerState:
        """Return the present state of a peer; an unknown peer counts as alive.

        A state may have expired: for example, a peer that has been dead for `reprobe_first_s` is suspect.
        """
        peer = self._peers.get(address)
        return "alive" if peer is None or peer.state == "alive" else self._state(peer)

    def is_dead(self, address: str) -> bool:
        """Return whether the successor lists and other lists drop a peer, because it is dead or has left."""
        peer = self._peers.get(address)
        return peer is not None and peer.state != "alive" and self._state(peer) in ("dead", "left")

    def since(self, address: str) -> float:
        """Return when the last noted state of a peer began, in seconds on the clock of the detector.

        An expired state counts until a method notes something about the peer. For an unknown peer, return the latest
        time that any method got as `now`.
        """
        peer = self._peers.get(address)
        return self._now if peer is None else peer.since

    def alive(self) -> list[str]:
        """Return the addresses of the known peers that are alive, in the order of their latest news.

        News of a peer is an answer, a missed call or any other sign; the peer with the newest is last.
        """
        return [address for address, peer in self._peers.items() if peer.state == "alive"]

    def states(self) -> Counter[PeerState]:
        """Return the number of known peers in each state."""
        return Counter(self._state(peer) for peer in self._peers.values())

    def peers(self, now: float) -> list[PeerInfo]:
        """Return the peers for a status report.

        They are sorted by address. If there are more than a message holds, those with the latest answer or miss come
        first. `now` is the current time.
        """
        self._now = max(self._now, now)
        everyone = list(self._peers.items())
        recent, others = everyone[-LIST_ENTRIES_MAX:], everyone[:-LIST_ENTRIES_MAX]
        return [
            PeerInfo(
                address=address,
                state=self._state(peer),
                rtt_ms=None if peer.srtt is None else 1000 * peer.srtt,
                since_ms=int(1000 * max(0.0, now - peer.since)),
                reason="" if self._state(peer) == "alive" else peer.reason,
                misses=peer.misses,
            )
            for address, peer in (*sorted(recent), *sorted(others))
            if 0 < len(address) <= ADDRESS_CHARS_MAX
        ]

    def check(self) -> list[str]:
        """Return a sentence for each violated invariant of this class."""
        timing = self._timing
        wrong = []
        if len(self._peers) > self._max:
            wrong.append(f"{len(self._peers)} peers are remembered, at most {self._max} may be")
        for address, peer in self._peers.items():
            if peer.state == "alive" and peer.misses >= timing.suspect_misses:
                wrong.append(f"{address} counts as alive after {peer.misses} misses")
        return wrong

    # -- inside ---------------------------------------------------------------------------------

    def _touch(self, address: str, now: float) -> _Peer:
        """Return the entry of a peer, now the latest, with an expired state replaced."""
        self._now = max(self._now, now)
        peer = self._peers.pop(address, None)
        if peer is None:
            peer = _Peer(now)
            if len(self._peers) >= self._max:
                del self._peers[next(iter(self._peers))]
        elif peer.state != "alive":
            self._expire(peer)
        self._peers[address] = peer
        return peer

    def _state(self, peer: _Peer) -> PeerState:
        """Return the state of a peer as of the latest `now` that any method got."""
        age = self._now - peer.since
        if peer.state == "dead" and age >= self._timing.reprobe_first_s:
            return "suspect"
        if peer.state == "left" and age >= self._left_for_s:
            return "alive"
        return peer.state

    def _expire(self, peer: _Peer) -> None:
        state = self._state(peer)
        if state == peer.state:
            return
        peer.state, peer.since = state, self._now
        peer.misses = self._timing.dead_misses - 1 if state == "suspect" else 0
        peer.refusals = self._timing.dead_refusals - 1 if state == "suspect" else 0

    def _become(self, address: str, peer: _Peer, state: PeerState, reason: str) -> PeerChanged:
        peer.state, peer.since = state, self._now
        # An error may quote text of the operating system that UTF-8 cannot encode.
        peer.reason = "" if state == "alive" else reason.encode(errors="replace").decode()[:TEXT_CHARS_MAX]
        return PeerChanged(address, state, reason)

    def _sample(self, peer: _Peer, rtt_s: float) -> None:
        if peer.srtt is None:
            peer.srtt, peer.rttvar = rtt_s, rtt_s / 2
        else:
            peer.rttvar += (abs(peer.srtt - rtt_s) - peer.rttvar) / 4
            peer.srtt += (rtt_s - peer.srtt) / 8
