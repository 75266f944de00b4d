"""Broken kernels' output is recognised, and language of any kind is not reported."""

# ruff: noqa: RUF001 - other scripts are what this is about

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from texts import texts

from pytest_vllm_gates.client.sameness import why_degenerate

MARKERS = ("<|im_end|>", "<think>", "</think>", "<tool_call>")

DEGENERATE = {
    "empty": ("", "empty"),
    "only space": (" \n\t ", "empty"),
    "bangs": ("!!!!!!!", "only punctuation"),
    "many bangs": ("!" * 1024, "only punctuation"),
    "dots": ("." * 200, "only punctuation"),
    "spaced bangs": ("! ! ! ! ! ! ! ! !", "only punctuation"),
    "brackets": ("}}}}]]]]", "only punctuation"),
    "one letter": ("a" * 64, "repeats 'a'"),
    "one digit": ("0" * 200, "repeats '0'"),
    "one word": ("the " * 40, "repeats"),
    "one word at the end": ("The capital of France is Paris" + " Paris" * 30, "repeats"),
    "one Chinese character": ("的" * 50, "repeats '的'"),
    "two words": ("yes no " * 20, "repeats 'yes no ' 19 times"),
    "a short loop": ("a" * 10, "repeats 'a' 10 times"),
    "half of the answer": ("It is -" + " no" * 8 + " to all of what you asked.", "repeats ' no' 8"),
    "a phrase": ("I am not sure what you mean. " * 10, "repeats"),
    "a line": ("- The answer is 4.\n" * 12, "repeats"),
    "a line between spaces": ("and so on  \n and so on\n\n" * 10, "repeats"),
    "one emoji": ("😀" * 40, "repeats '😀'"),
    "the family's stop token": ("Paris.<|im_end|>", "marker '<|im_end|>'"),
    "the family's thinking tag": ("Hm.</think>Paris.", "marker '</think>'"),
    "another family's token": ("Paris.<|eot_id|>", "special token '<|eot_id|>'"),
    "full-width bars": ("Paris.<｜end▁of▁sentence｜>", "special token"),
    "broken bytes": ("Caf\N{REPLACEMENT CHARACTER} au lait", "do not decode"),
    "nothing but broken bytes": ("\N{REPLACEMENT CHARACTER}" * 9, "9 characters"),
    "a loop after a ruler": ("-" * 30 + "\n" + "the same " * 20, "repeats"),
    "an answer that ends in bangs": ("Paris is the capital" + "!" * 300, "repeats '!'"),
    "few words in any order": (
        " ".join(["alpha beta", "beta alpha", "alpha alpha beta", "beta beta alpha"] * 6),
        "repeats few words: 'alpha' is 30 of its 60 words",
    ),
    "few words in a short answer": (
        "Oak ash elm yew fir oak yew ash fir elm elm oak ash fir yew "
        "ash elm oak yew fir fir yew oak elm ash yew fir ash oak elm",
        "repeats few words: 'oak' is 6 of its 30 words",
    ),
}

HEALTHY = {
    "a sentence": "The capital of France is Paris.",
    "a number": "42",
    "a decimal": "-3.14",
    "one letter": "B",
    "yes": "Yes.",
    "agreement": "No, no, no! That is very, very, very good.",
    "laughter": "Hahahaha, that's a good one!",
    "hesitation": "Hmmm... well... let me think...",
    "excited": "Wow!!!!! That is great!!!",
    "a knock": "knock " * 7 + "- who is there?",
    "a byte": "It is 0b00000000 here.",
    "some words often": "oak ash elm yew fir bay oak yew ash fir elm bay elm oak ash "
    "bay fir yew ash elm oak yew fir bay fir yew oak elm ash bay",
    "German": "Die Hauptstadt von Frankreich ist Paris, und sie liegt an der Seine.",
    "Russian": "Столица Франции — Париж. Она стоит на берегах Сены.",
    "Greek": "Η πρωτεύουσα της Γαλλίας είναι το Παρίσι.",
    "Arabic": "عاصمة فرنسا هي باريس، وتقع على نهر السين.",
    "Hebrew": "בירת צרפת היא פריז.",
    "Hindi": "फ्रांस की राजधानी पेरिस है।",
    "Thai": "เมืองหลวงของประเทศฝรั่งเศสคือปารีส",
    "Chinese": "法国的首都是巴黎，位于塞纳河畔。",
    "Japanese": "フランスの首都はパリです。セーヌ川のほとりにあります。",
    "Korean": "프랑스의 수도는 파리입니다.",
    "long Chinese": "人工智能是计算机科学的一个分支，它研究如何让机器像人一样思考、学习和解决问题。"
    "近年来，深度学习的发展使得语音识别、图像识别和自然语言处理取得了很大的进步。",
    "emoji": "🎉",
    "a few emoji": "Congratulations! 🎉🎉🎉",
    "a family emoji": "👨‍👩‍👧‍👦 is one character.",
    "a flag": "🇫🇷",
    "Python": "```python\ndef f(n):\n    if n < 2:\n        return n\n    return f(n - 1)\n```",
    "C": "for (i = 0; i < 10; i++) {\n        a[i] = 0;\n}\n",
    "deep indentation": "if a:\n" + " " * 40 + "b = 1\n" + " " * 40 + "c = 2\n",
    "JSON": '{"city": "Oslo", "days": [1, 2, 3], "metric": true, "more": {"a": null, "b": {}}}',
    "a zero matrix": "[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]",
    "a table": "| name | size |\n|------|------|\n| a | 1 |\n| b | 2 |\n| c | 3 |\n",
    "a wide table": "| a | b | c | d | e | f | g | h | i | j |\n" + "| --- " * 10 + "|\n"
    "| 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 0 |",
    "an aligned table": "| a | b |\n" + "|:---:" * 12 + "|\n| 1 | 2 |",
    "a ruler": "First part.\n\n----------------------------------------\n\nSecond part.",
    "an underlined title": "Title\n=====================\n\nText under it.",
    "a box": "┌────────────────────┐\n│ hello              │\n└────────────────────┘",
    "asterisks": "Chapter one\n" + "* " * 30 + "\nChapter two",
    "a table of contents": "1. Introduction ................ 3\n2. Method .................... 12",
    "a form": "Name: ____________________\nDate: ____________________",
    "a checklist": "- [ ] milk\n- [ ] eggs\n- [ ] bread\n- [ ] tea\n- [ ] salt\n- [ ] rice\n"
    "- [ ] flour\n- [ ] sugar\n- [ ] oil",
    "a large number": "One million is 1000000, and 2^64 is 18446744073709551616.",
    "a billion": "One billion is 1000000000, and one byte is 0b00000000 to 0b11111111.",
    "a long cry": "Nooooooooooo! That cannot be true.",
    "colour": "White is #FFFFFFFF with its alpha channel.",
    "a googol": "A googol is 1" + "0" * 6 + "... with a hundred zeros.",
    "a list of numbers": ", ".join(map(str, range(1, 60))),
    "a poem with a refrain": "Row, row, row your boat,\nGently down the stream.\n"
    "Merrily, merrily, merrily, merrily,\nLife is but a dream.\n" * 2,
    "a song": "Ninety-nine bottles of beer on the wall, ninety-nine bottles of beer.\n"
    "Take one down and pass it around, ninety-eight bottles of beer on the wall.\n"
    "Ninety-eight bottles of beer on the wall, ninety-eight bottles of beer.\n"
    "Take one down and pass it around, ninety-seven bottles of beer on the wall.\n",
    "mathematics": r"$\int_0^1 x^2\,dx = \frac{1}{3}$",
    "a URL": "See https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
    "less than and bars": "In C, a < b || c > d, and x <| y |> z is F#.",
    "HTML": "<ul><li>one</li><li>two</li><li>three</li></ul>",
    "a haiku": "An old silent pond…\nA frog jumps into the pond,\nsplash! Silence again.",
    "combining accents": "ra\u0301pido, man\u0303ana",
}


@pytest.mark.parametrize(("text", "sentence"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_output_is_named(text: str, sentence: str) -> None:
    why = why_degenerate(text, MARKERS)
    assert why is not None
    assert sentence in why
    assert why.startswith("the answer ")


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_answer_is_not_degenerate(text: str) -> None:
    assert why_degenerate(text, MARKERS) is None


@given(texts.map(lambda text: text[:12]), st.integers(8, 40))
def test_anything_over_and_over_is_degenerate(unit: str, times: int) -> None:
    if unit.strip(" -=_*#.~|+\t\n\r") and not unit.isspace():
        assert why_degenerate(f"{unit} " * times * 4) is not None


@given(st.lists(st.sampled_from(["oak", "ash", "elm", "yew", "fir", "bay", "fig"]), unique=True))
def test_different_words_in_a_row_are_language(words: list[str]) -> None:
    text = " ".join(words)
    assert (why_degenerate(text) is None) == bool(words)
