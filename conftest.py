"""What holds for every run of pytest from a checkout."""

import signal

# A shell that starts a job in the background has it ignore Ctrl-C, and every child inherits that.
# Tests that interrupt a child need one that listens.
signal.signal(signal.SIGINT, signal.default_int_handler)
