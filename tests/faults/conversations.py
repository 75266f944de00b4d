"""The options with which the conversation gates are run for faults in answers."""

from __future__ import annotations

# The miniature's longest answer has 251 tokens, and greedy answers need no samples.
SHORT = ("--checkpoint", "miniature", "--answer-tokens", "300", "--samples", "0")
# The ladder, the load and the sampler send their own requests, which other gates' faults leave
# unchanged. A fault in errors and fields breaks contracts, too, and a fault in chats shows in every
# dialect and in questions about pictures: these gates add nothing new.
NOT_LONG = (
    *SHORT,
    "-m",
    "not (long_context or load or contracts or sampling or dialects or vision)",
)
# The other gates send no chats, or compare a server's answers with each other.
GATES = "boot or streaming or reasoning or tools or stop or structured"
# The two checks of a stream's timing, which request it six times if it is late.
ARRIVAL = ("-m", "streaming", "-k", "arrive_as_they_are_made", "--answer-tokens", "40")
NOT_ARRIVAL = ("-k", "not arrive_as_they_are_made")
SAMPLED = ("--samples", "20")
