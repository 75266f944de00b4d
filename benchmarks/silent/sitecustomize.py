"""Makes a server compute something different from its configuration, by `$SILENT_CHANGE`.

It is on a lane's `PYTHONPATH`, after the lane's overlay, whose `sitecustomize` runs this one.
"""

import os

import silent_change  # type: ignore[import-not-found, unused-ignore]

silent_change.apply(os.environ.get("SILENT_CHANGE", ""))
