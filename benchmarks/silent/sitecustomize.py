"""Makes a server compute something else than it was asked to, as `$SILENT_CHANGE` says.

It lies on a lane's `PYTHONPATH`, behind the lane's overlay, whose `sitecustomize` runs this one.
"""

import os

import silent_change  # type: ignore[import-not-found, unused-ignore]

silent_change.apply(os.environ.get("SILENT_CHANGE", ""))
