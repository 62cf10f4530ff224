"""Network faults as commands of tc and iptables (pure).

They run inside the tasks' own network namespaces, so that they affect nothing else. Every script
sets the whole state: a fault is healed by applying the remaining links.
Sources: tc-htb(8), tc-netem(8), tc-u32(8), iptables-extensions(8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

DEVICE = "eth0"
UNLIMITED = 100_000_000_000
"""Bits per second of a class that only delays."""
PACKETS = 100_000
"""Packets queued in a delay, at most; netem's default of 1000 loses some at high rates."""

PROBES: Mapping[str, str] = {
    "iptables": "iptables -A INPUT -s 192.0.2.1 -j DROP",
    "loss": "iptables -A INPUT -s 192.0.2.1 -m statistic --mode random --probability 0.5 -j DROP",
    "bandwidth": "tc qdisc add dev lo root handle 1: htb",
    "delay": "tc qdisc add dev lo root netem delay 1ms",
}
"""Parts of the kernel that a link may need, each with a command that tests it."""


@dataclass(frozen=True)
class Link:
    """The treatment of packets from one task to another."""

    source: str
    target: str
    delay: float = 0.0
    """Seconds."""
    jitter: float = 0.0
    """Seconds, give or take."""
    loss: float = 0.0
    """The share of packets that is lost; 1: the target can't be reached."""
    bandwidth: int | None = None
    """Bits per second, shared by all targets of a source that have the same."""

    @property
    def parts(self) -> frozenset[str]:
        """The keys of PROBES that the kernel must support."""
        needed = {
            "iptables": self.loss > 0,
            "loss": 0 < self.loss < 1,
            "bandwidth": bool(self.delay or self.bandwidth),
            "delay": self.delay > 0,
        }
        return frozenset(part for part, is_needed in needed.items() if is_needed)


def between_all(tasks: Sequence[str], delay: float, bandwidth: int | None) -> tuple[Link, ...]:
    """Return the links of a cluster whose whole network has a delay or a bandwidth limit."""
    if not delay and bandwidth is None:
        return ()
    return tuple(Link(a, b, delay=delay, bandwidth=bandwidth) for a, b in permutations(tasks, 2))


def merged(links: Iterable[Link]) -> list[Link]:
    """Return one link per pair: sum of delays, minimum of bandwidths, losses independent."""
    by_pair: dict[tuple[str, str], Link] = {}
    for link in links:
        pair = (link.source, link.target)
        if (other := by_pair.get(pair)) is None:
            by_pair[pair] = link
            continue
        bandwidths = [bits for bits in (other.bandwidth, link.bandwidth) if bits is not None]
        by_pair[pair] = Link(
            *pair,
            delay=other.delay + link.delay,
            jitter=other.jitter + link.jitter,
            loss=1 - (1 - other.loss) * (1 - link.loss),
            bandwidth=min(bandwidths, default=None),
        )
    return list(by_pair.values())


def script(task: str, links: Iterable[Link], addresses: Mapping[str, str]) -> str:
    """Return the shell script that applies `links`, and nothing else, to one task's packets.

    Delay and bandwidth apply where packets leave, losses where they arrive: the sender must not get
    an error. `addresses` has the tasks that have an address now; others can't be reached anyway.
    """
    lines = [
        "iptables -F INPUT 2> /dev/null",  # neither has to exist
        f"tc qdisc del dev {DEVICE} root 2> /dev/null",
        "set -e",
    ]
    mine = [link for link in links if task in (link.source, link.target)]
    reachable = [link for link in merged(mine) if {link.source, link.target} <= addresses.keys()]
    for link in reachable:
        if link.loss and link.target == task:
            rule = f"iptables -A INPUT -s {addresses[link.source]}"
            if link.loss < 1:
                rule += f" -m statistic --mode random --probability {link.loss:.6f}"
            lines.append(f"{rule} -j DROP")
    classes: dict[tuple[float, float, int | None], list[str]] = {}
    for link in reachable:
        if link.source == task and (link.delay or link.bandwidth):
            key = (link.delay, link.jitter, link.bandwidth)
            classes.setdefault(key, []).append(addresses[link.target])
    if classes:
        # Packets that match no filter have no limit.
        lines.append(f"tc qdisc add dev {DEVICE} root handle 1: htb")
    for number, ((delay, jitter, bandwidth), targets) in enumerate(classes.items(), 1):
        rate = UNLIMITED if bandwidth is None else bandwidth
        lines.append(
            f"tc class add dev {DEVICE} parent 1: classid 1:{number:x} htb rate {rate}bit "
            "quantum 60000"
        )
        if delay:
            variation = f" {_us(jitter)}" if jitter else ""
            lines.append(
                f"tc qdisc add dev {DEVICE} parent 1:{number:x} handle {number + 1:x}: "
                f"netem delay {_us(delay)}{variation} limit {PACKETS}"
            )
        lines += [
            f"tc filter add dev {DEVICE} parent 1: protocol ip prio 1 u32 "
            f"match ip dst {target}/32 flowid 1:{number:x}"
            for target in targets
        ]
    return "\n".join(lines) + "\n"


def probe_script(parts: Iterable[str]) -> str:
    """Return a script that prints each of `parts` that this kernel supports."""
    probes = [
        f"{PROBES[part]} > /dev/null 2>&1 && echo {part}; tc qdisc del dev lo root 2> /dev/null"
        for part in sorted(parts)
    ]
    return "\n".join([*probes, "true"])


def _us(seconds: float) -> str:
    return f"{round(seconds * 1e6)}us"
