"""Which prompts a step trains on: a seeded permutation of the train split for every epoch."""

from __future__ import annotations

import random
from collections.abc import Sequence

from stepladder.core.prompt import Prompt
from stepladder.core.rng import seed_for


class PromptOrder:
    """The endless sequence of training prompts; a step's share depends on its number alone."""

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        assert prompts, "the train split is empty"
        self.prompts = prompts
        self._seed = seed
        self._epochs: dict[int, list[int]] = {}

    def of_step(self, step: int, count: int) -> list[Prompt]:
        """Return the `count` prompts of a 1-based step."""
        places = range((step - 1) * count, step * count)
        return [self.prompts[self._index(place)] for place in places]

    def _index(self, place: int) -> int:
        epoch, offset = divmod(place, len(self.prompts))
        if epoch not in self._epochs:
            order = list(range(len(self.prompts)))
            random.Random(seed_for("prompts", self._seed, epoch)).shuffle(order)
            self._epochs = {epoch - 1: self._epochs.get(epoch - 1, []), epoch: order}
        return self._epochs[epoch][offset]
