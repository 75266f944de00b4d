"""Starts Python without root's right to write read-only files: `PROGRAM ARGUMENT...`.

Root may write any file (`CAP_DAC_OVERRIDE`, capabilities(7)), so in most containers a folder
without write permission does not stop a server. A capability that is dropped from the bounding set
is gone with `exec`. It imports nothing of ours: it runs in the lane's environment.
"""

import ctypes
import os
import sys

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1

if __name__ == "__main__":
    dropped = ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)
    if dropped and os.geteuid() == 0:
        reason = os.strerror(ctypes.get_errno())
        sys.exit(f"root keeps its right to write everywhere (CAP_DAC_OVERRIDE): {reason}")
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - that is the purpose
