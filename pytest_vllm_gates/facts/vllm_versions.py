"""When vLLM changed what decides a memory plan.

Read in the sources of 0.30 and 0.32 and from what public logs of older versions print. Where only
logs speak, the first version that was seen to do the new thing is given.
"""

from __future__ import annotations

import re

from pytest_vllm_gates.errors import UserError

Version = tuple[int, int, int]

HYBRID_MANAGER: Version = (0, 9, 1)
"""From here on windows and full attention have groups of their own; before, all was kept whole."""
TOKENS_ARE_WHOLE_REQUESTS: Version = (0, 20, 2)
"""From here on the printed KV cache size is concurrency times context; before, one group's."""
BATCHES_IN_FLIGHT: Version = (0, 26, 0)
"""From here on a window makes room for every batch in flight, two with asynchronous scheduling."""
UNEVEN_GROUPS: Version = (0, 21, 0)
"""From here on kinds of layers may differ by half in number and still share a group size."""
HYBRID_PREFIX_CACHING: Version = (0, 29, 0)
"""From here on models with recurrent states cache prefixes unless told not to; 0.27 did not."""
NULL_BLOCK_RESERVED: Version = (0, 28, 0)
"""From here on the check at startup counts the block the pool keeps for itself; 0.26 did not."""
SPARSE_KEEPS_ITS_TYPE: Version = (0, 11, 1)
"""From here on sparse latent attention keeps 16 bits unless told otherwise; before, fp8_ds_mla."""
SPARSE_PLAIN_FP8: Version = (0, 26, 0)
"""From here on sparse latent attention knows plain fp8 beside fp8_ds_mla, by its full name."""
UTILIZATION_092: Version = (0, 19, 0)
"""From here on vLLM takes 0.92 of a device unless told otherwise; before, 0.9."""


def parsed(text: str) -> Version:
    """Return a version as numbers; "0.20.2rc1.dev3+g12" is 0.20.2."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if not found:
        raise UserError(f"no version of vLLM: {text!r}; such as 0.32.0")
    return int(found[1]), int(found[2]), int(found[3] or 0)
