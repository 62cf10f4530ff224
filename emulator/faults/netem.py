"""What the network does to packets between tasks -> arguments of tc and iptables (pure).

Everything is done inside the tasks' own network namespaces, so that nothing else can notice.
Every script builds the whole state anew: healing is applying what is left.
Sources: tc-htb(8), tc-netem(8), tc-u32(8), iptables-extensions(8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

__all__ = ["PROBES", "Link", "between_all", "merged", "probe_script", "script"]

DEVICE = "eth0"
UNLIMITED = 100_000_000_000
"""Bits per second of a class that only delays."""
PACKETS = 100_000
"""Packets that may wait in a delay; netem's own limit of 1000 would lose some at high rates."""

PROBES: Mapping[str, str] = {
    "iptables": "iptables -A INPUT -s 192.0.2.1 -j DROP",
    "loss": "iptables -A INPUT -s 192.0.2.1 -m statistic --mode random --probability 0.5 -j DROP",
    "bandwidth": "tc qdisc add dev lo root handle 1: htb",
    "delay": "tc qdisc add dev lo root netem delay 1ms",
}
"""One command for each part of the kernel that a link may need."""


@dataclass(frozen=True)
class Link:
    """What packets from one task to another meet."""

    source: str
    target: str
    delay: float = 0.0
    """Seconds."""
    jitter: float = 0.0
    """Seconds, give or take."""
    loss: float = 0.0
    """The share that is lost; 1: there is no way."""
    bandwidth: int | None = None
    """Bits per second, shared by all targets of a source that have the same."""

    @property
    def parts(self) -> frozenset[str]:
        """What of PROBES the kernel must have."""
        found = {
            "iptables": bool(self.loss),
            "loss": 0 < self.loss < 1,
            "bandwidth": bool(self.delay or self.bandwidth),
            "delay": bool(self.delay),
        }
        return frozenset(part for part, needed in found.items() if needed)


def between_all(tasks: Sequence[str], delay: float, bandwidth: int | None) -> tuple[Link, ...]:
    """Return the links of a cluster whose whole network is slow or narrow; none where it is not."""
    if not delay and bandwidth is None:
        return ()
    return tuple(
        Link(one, other, delay=delay, bandwidth=bandwidth) for one, other in permutations(tasks, 2)
    )


def merged(links: Iterable[Link]) -> list[Link]:
    """Return one link for each pair: delays add up, the narrowest counts, each loses its share."""
    by_pair: dict[tuple[str, str], Link] = {}
    for link in links:
        pair = (link.source, link.target)
        there = by_pair.get(pair)
        if there is None:
            by_pair[pair] = link
            continue
        widths = [w for w in (there.bandwidth, link.bandwidth) if w is not None]
        by_pair[pair] = Link(
            *pair,
            delay=there.delay + link.delay,
            jitter=there.jitter + link.jitter,
            loss=1 - (1 - there.loss) * (1 - link.loss),
            bandwidth=min(widths, default=None),
        )
    return list(by_pair.values())


def script(task: str, links: Iterable[Link], addresses: Mapping[str, str]) -> str:
    """Return the shell script that makes packets of one task meet `links`, and nothing else.

    Delay and bandwidth are made where packets leave, losses where they arrive: a sender must not
    notice. `addresses` maps the tasks that have an address now to it; the others can't be reached
    anyway.
    """
    lines = [
        "iptables -F INPUT 2> /dev/null",  # neither has to be there
        f"tc qdisc del dev {DEVICE} root 2> /dev/null",
        "set -e",
    ]
    mine = [link for link in links if task in (link.source, link.target)]
    there = [link for link in merged(mine) if {link.source, link.target} <= addresses.keys()]
    for link in there:
        if link.loss and link.target == task:
            rule = f"iptables -A INPUT -s {addresses[link.source]}"
            if link.loss < 1:
                rule += f" -m statistic --mode random --probability {link.loss:.6f}"
            lines.append(f"{rule} -j DROP")
    classes: dict[tuple[float, float, int | None], list[str]] = {}
    for link in there:
        if link.source == task and (link.delay or link.bandwidth):
            key = (link.delay, link.jitter, link.bandwidth)
            classes.setdefault(key, []).append(addresses[link.target])
    if classes:
        # What no filter matches passes by without a limit.
        lines.append(f"tc qdisc add dev {DEVICE} root handle 1: htb")
    for number, ((delay, jitter, bandwidth), targets) in enumerate(classes.items(), 1):
        rate = UNLIMITED if bandwidth is None else bandwidth
        lines.append(
            f"tc class add dev {DEVICE} parent 1: classid 1:{number:x} htb rate {rate}bit "
            "quantum 60000"
        )
        if delay:
            around = f" {_us(jitter)}" if jitter else ""
            lines.append(
                f"tc qdisc add dev {DEVICE} parent 1:{number:x} handle {number + 1:x}: "
                f"netem delay {_us(delay)}{around} limit {PACKETS}"
            )
        lines += [
            f"tc filter add dev {DEVICE} parent 1: protocol ip prio 1 u32 "
            f"match ip dst {target}/32 flowid 1:{number:x}"
            for target in targets
        ]
    return "\n".join(lines) + "\n"


def probe_script(parts: Iterable[str]) -> str:
    """Return a script that prints each of `parts` that this kernel has."""
    tries = [
        f"{PROBES[part]} > /dev/null 2>&1 && echo {part}; tc qdisc del dev lo root 2> /dev/null"
        for part in sorted(parts)
    ]
    return "\n".join([*tries, "true"])


def _us(seconds: float) -> str:
    return f"{round(seconds * 1e6)}us"
