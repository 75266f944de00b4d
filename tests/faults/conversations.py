"""The options with which the conversation gates are run for faults in answers."""

from __future__ import annotations

# The miniature's longest answer has 251 tokens, and greedy answers need no samples.
SHORT = ("--checkpoint", "miniature", "--answer-tokens", "300", "--samples", "0")
# A ladder is climbed, a load driven and a sampler tried by requests of their own, which other
# gates' faults leave as they are. What a fault does to errors and fields breaks contracts, too,
# and what it does to chats it does in every dialect and to questions about pictures: no news.
NOT_LONG = (
    *SHORT,
    "-m",
    "not (long_context or load or contracts or sampling or dialects or vision)",
)
# The gates left out ask for no chat, or compare a server's answers with its own.
GATES = "boot or streaming or reasoning or tools or stop or structured"
# The two checks of how a stream arrives, which ask for it six times where it is late.
ARRIVAL = ("-m", "streaming", "-k", "arrive_as_they_are_made", "--answer-tokens", "40")
NOT_ARRIVAL = ("-k", "not arrive_as_they_are_made")
SAMPLED = ("--samples", "20")
