"""From answered and missed calls to timeouts and alive / suspect / dead, per node address.

Pure: `now` is an argument, in seconds on any clock that never goes back. Silence makes a peer
suspect (routed around), then dead (leaves the lists); refused connections do it sooner. Any sign of
life undoes it. Verdicts do not last for ever: a peer long dead is one miss from dead again, and one
that left is a stranger after a while, so that hearsay of its return is worth a probe.
"""

from __future__ import annotations

from chord.config import Timing
from chord.events import PeerChanged
from chord.wire.messages import ADDRESS_CHARS_MAX, LIST_ENTRIES_MAX, PeerInfo, PeerState

PEERS_MAX = 1024


class _Peer:
    __slots__ = ("backoff", "misses", "refusals", "rttvar", "since", "srtt", "state")

    def __init__(self, now: float) -> None:
        self.state: PeerState = "alive"
        self.since = now
        self.misses = 0
        self.refusals = 0
        self.backoff = 0  # misses since the last answer: unlike `misses` not cleared by other signs of life
        self.srtt: float | None = None
        self.rttvar = 0.0


class Suspicion:
    """What we think of other nodes. Every method that learns something returns the change it made, or None."""

    def __init__(self, timing: Timing, peers_max: int = PEERS_MAX) -> None:
        self._timing = timing
        self._max = peers_max
        self._peers: dict[str, _Peer] = {}  # the one longest unheard of first
        self._now = 0.0
        self._left_for_s = 2 * (timing.timeout_cap_s + timing.stabilize_s)  # it answers "moved" for less than that

    # -- learning -------------------------------------------------------------------------------

    def answered(self, address: str, now: float, rtt_s: float | None) -> PeerChanged | None:
        """The peer answered a call: it is alive, except that one that left stays away.

        Args:
            rtt_s: the round-trip time, or None if the peer had to wait for others. A time beyond the largest timeout
                is that of a process that stood still, and says nothing of the network.
        """
        peer = self._touch(address, now)
        peer.misses = peer.refusals = peer.backoff = 0
        if rtt_s is not None and rtt_s <= self._timing.timeout_cap_s:
            self._sample(peer, rtt_s)
        if peer.state == "alive" or peer.state == "left":
            return None
        return self._become(address, peer, "alive", "answered")

    def heard_from(self, address: str, now: float) -> PeerChanged | None:
        """The peer called us or said anything at all: it is alive, also if it had left; then it is back."""
        peer = self._touch(address, now)
        peer.misses = peer.refusals = 0
        return None if peer.state == "alive" else self._become(address, peer, "alive", "heard from")

    def missed(self, address: str, now: float, refused: bool, reason: str) -> PeerChanged | None:
        """The peer did not answer, could not be reached, or (`refused`) nobody listens at its address.

        A paused peer said that it would be silent: it dies of that only after `down_out_s`.
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
        """The peer said goodbye for good."""
        peer = self._touch(address, now)
        return None if peer.state == "left" else self._become(address, peer, "left", "left the ring")

    def paused(self, address: str, now: float) -> PeerChanged | None:
        """The peer stops for a while and keeps its data: route around it, do not replace it."""
        peer = self._touch(address, now)
        return None if peer.state == "paused" else self._become(address, peer, "paused", "paused")

    def stopped(self, address: str, now: float) -> PeerChanged | None:
        """The peer says that it stops: it need not be missed first."""
        peer = self._touch(address, now)
        peer.misses, peer.refusals = self._timing.dead_misses, self._timing.dead_refusals
        return None if peer.state == "dead" else self._become(address, peer, "dead", "stopped")

    # -- questions ------------------------------------------------------------------------------

    def timeout(self, address: str) -> float:
        """Return how long to wait for the peer's answer, in seconds.

        srtt + 4 rttvar within floor and cap. After misses it doubles, up to a stranger's: a stall is not a death.

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
        """Return the smoothed round-trip time in seconds, None for a stranger."""
        peer = self._peers.get(address)
        return None if peer is None else peer.srtt

    def state(self, address: str) -> PeerState:
        """Return what we think of the peer; a stranger is alive until it proves otherwise."""
        peer = self._peers.get(address)
        return "alive" if peer is None or peer.state == "alive" else self._state(peer)

    def is_dead(self, address: str) -> bool:
        """Return whether the peer leaves the lists: it is dead, or has left."""
        peer = self._peers.get(address)
        return peer is not None and peer.state != "alive" and self._state(peer) in ("dead", "left")

    def since(self, address: str) -> float:
        """Return when the peer's state began, on the clock of `now`; a stranger's begins now."""
        peer = self._peers.get(address)
        return self._now if peer is None else peer.since

    def alive(self) -> list[str]:
        """Return the addresses of the peers that are alive, the one heard of most recently last."""
        return [address for address, peer in self._peers.items() if peer.state == "alive"]

    def peers(self, now: float) -> list[PeerInfo]:
        """Return what we think of the peers heard of most recently, by address, as many as a message holds."""
        self._now = max(self._now, now)
        recent = list(self._peers.items())[-LIST_ENTRIES_MAX:]
        return [
            PeerInfo(
                address=address,
                state=self._state(peer),
                rtt_ms=None if peer.srtt is None else 1000 * peer.srtt,
                since_ms=int(1000 * max(0.0, now - peer.since)),
            )
            for address, peer in sorted(recent)
            if 0 < len(address) <= ADDRESS_CHARS_MAX
        ]

    def check(self) -> list[str]:
        """Return what is wrong, in words; nothing, if all is well."""
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
        """Return the peer, as the latest of those heard of, with a verdict that is too old taken back."""
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
        """Return the state as of the latest `now` any method was told."""
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
        return PeerChanged(address, state, reason)

    def _sample(self, peer: _Peer, rtt_s: float) -> None:
        if peer.srtt is None:
            peer.srtt, peer.rttvar = rtt_s, rtt_s / 2
        else:
            peer.rttvar += (abs(peer.srtt - rtt_s) - peer.rttvar) / 4
            peer.srtt += (rtt_s - peer.srtt) / 8
