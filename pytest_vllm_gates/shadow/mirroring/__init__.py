"""Work that no client waits for: sending copies, judging pairs, answering controllers."""
