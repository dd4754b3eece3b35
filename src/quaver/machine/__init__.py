"""The machine this runs on: what its processor can do, and what of that can be relied on."""
