"""The state of torch's random numbers, as tensors."""

import torch
from torch import Tensor


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Where the generators of the processor and of ``device`` are."""
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Put the generators where they were; one that was not there is left alone."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
