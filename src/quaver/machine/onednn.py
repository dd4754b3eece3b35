"""oneDNN, which computes for OpenVINO and, on a processor, for torch: how far it may go here.

Some hypervisors announce AMX and hide the description of its tiles. oneDNN then configures tiles of size 0 and dies of an
illegal instruction: every int8 model of OpenVINO, every bfloat16 product of torch. Without AMX all is well.
"""

import logging
import os
from collections.abc import MutableMapping

from quaver.machine.cpu import CPU, LIMITS, cpu

WITHOUT_AMX = "AVX512_CORE_FP16"
"""All that comes before AMX: a limit, not a claim, so it is right for processors without FP16 or AVX512 as well."""


def keep_off_doubtful_amx(processor: CPU | None = None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Keep oneDNN off an AMX that would kill it, and say so; a limit that the user set is left as it is.

    oneDNN looks once, at the first thing it computes: this must come before.
    """
    if any(environment.get(name) for name in LIMITS):
        return
    processor = processor or cpu()
    if not processor.amx_doubt:
        return
    environment[LIMITS[0]] = WITHOUT_AMX
    logging.getLogger("quaver").warning(
        f"quaver: this processor announces AMX, but {processor.amx_doubt}: OpenVINO and torch could die of it, and go "
        f"without ({LIMITS[0]}={WITHOUT_AMX}). Set {LIMITS[0]} to choose otherwise."
    )
