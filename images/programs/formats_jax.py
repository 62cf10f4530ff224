"""Save and resume with JAX by Orbax' CheckpointManager, as its documentation does it."""

import formats
import jax
import numpy as np
import orbax.checkpoint as ocp
from formats import SAVES


class Orbax:
    """A folder for each save, which gets its name when it is complete."""

    def __init__(self) -> None:
        """Begin with step 0."""
        self.state = formats.arrays_of(0)
        self.manager = ocp.CheckpointManager(
            SAVES.absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=3)
        )

    def restore(self) -> int | None:
        """Load the latest step that the manager knows."""
        step = self.manager.latest_step()
        if step is None:
            return None
        like = jax.tree.map(jax.numpy.asarray, self.state)
        saved = self.manager.restore(step, args=ocp.args.StandardRestore(like))
        self.state = {name: np.asarray(saved[name]) for name in self.state}
        return int(step)

    def save(self, step: int) -> None:
        """Save, and wait until that is done."""
        state = jax.tree.map(jax.numpy.asarray, self.state)
        self.manager.save(step, args=ocp.args.StandardSave(state))
        self.manager.wait_until_finished()


if __name__ == "__main__":
    formats.train({"orbax": Orbax}, __doc__ or "")
