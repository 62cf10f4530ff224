"""The images of a manifest, with those that `--image` gives in their place (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from emulator.errors import Problem
from emulator.validation.similar import closest


@dataclass
class Images:
    """What `--image` gives, and what it could be given for."""

    given: Mapping[str, str]
    """Role, image reference or container name -> the image to use instead."""
    known: dict[str, None] = field(default_factory=dict)
    """All names that could have been given."""

    def instead(self, image: str, container: str, role: str = "") -> str:
        """Return what to use for an image: by its role first, then by itself, then by container.

        A role is that of the container that trains; others have none.
        """
        names = [name for name in (role, image, container) if name]
        self.known |= dict.fromkeys(names)
        return next((self.given[name] for name in names if name in self.given), image)

    def problems(self) -> Iterator[Problem]:
        """Yield the names that nothing in the manifest has."""
        for name, image in self.given.items():
            if name not in self.known:
                message = f"there is no container, role or image {name}"
                hint = closest(name, self.known) or f"known: {', '.join(list(self.known)[:8])}"
                yield Problem(f"--image {name}={image}", "", message, hint)
