"""Texts for property tests: some characters of every kind, since all of Unicode is slow to list."""

from hypothesis import strategies as st

CHARACTERS = (
    "aZ09 .,-_/:|\t\r\x00\x1b\x7f\x85\u00a0\u00df\u0301\u200b\u200d\u2028\u202e"
    "\u3042\u5317\ufeff\ufffd\U0001f680\u21b5"
)
texts = st.text(st.sampled_from(CHARACTERS), max_size=24)
