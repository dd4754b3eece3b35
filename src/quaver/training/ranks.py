"""The processes that train together, and the few values they exchange."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this one is; alone, nothing is exchanged."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, in each of them."""
        if self.world > 1:
            distributed.all_reduce(values)
        return values

    def any(self, value: bool) -> bool:
        """Whether ``value`` is true in any process."""
        return any(self.gathered(value))

    def gathered(self, value: Any) -> list[Any]:
        """Everyone's value, in the order of the ranks."""
        values = [value] * self.world
        if self.world > 1:
            distributed.all_gather_object(values, value)
        return values

    def from_first(self, value: Any) -> Any:
        """The first process's value, in each of them."""
        values = [value]
        if self.world > 1:
            distributed.broadcast_object_list(values, src=0)
        return values[0]


def join(*, accelerator: bool) -> Ranks:
    """Meet the other processes that ``torchrun`` started; without it, this one is alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Ranks()
    if accelerator:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group("nccl" if accelerator else "gloo")
    return Ranks(distributed.get_rank(), world)


def leave(ranks: Ranks) -> None:
    """Leave the group of processes; the first does the rest alone."""
    if ranks.world > 1 and distributed.is_initialized():
        distributed.destroy_process_group()
