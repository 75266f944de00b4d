"""The here-document of a command is its data, as a shell gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import curl

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://127.0.0.1:8000/v1/chat/completions"
BODY = '{"model": "qwen3.5",\n\t"messages": [{"role": "user", "content": "It\'s\u2028 100\\\\"}]}'
ANSWER = '{"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}'
STUB = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"


@pytest.mark.parametrize(
    "command",
    [
        f"curl {URL} -d @- <<'EOF'\n{BODY}\nEOF",
        f"curl {URL} --data-binary @- << 'EOF'\n{BODY}\nEOF\n",
        f"curl {URL} -d @- <<\"A B\" -H 'Content-Type: application/json'\n{BODY}\nA B\n",
        f"curl {URL} \\\n  --json @- <<\\EOF | jq .\n{BODY}\nEOF\n$ ls",
        f"$ curl {URL} -d @- <<-'EOF'\n\t{BODY}\n\tEOF\n",
        f"curl {URL} -d @- <<'EOF'\r\n{BODY}\r\nEOF\r\n",
    ],
)
def test_here_document_is_the_data(tmp_path: Path, command: str) -> None:
    (sent,) = curl.requests(command, tmp_path)
    assert json.loads(sent.body) == json.loads(BODY.replace("\n\t", "\n"))


def test_answer_below_a_here_document_is_kept(tmp_path: Path) -> None:
    text = f"curl {URL} -d @- <<'EOF'\n{BODY}\nEOF\n{ANSWER}\n"
    (sent,), notes = curl.read(text, tmp_path)
    assert (sent.status, sent.answer.decode()) == (200, ANSWER)
    assert notes[0].startswith("the text below the command was recorded")


QUOTED, OPEN = ("<<'END'", '<<-"END"', "<< \\END"), ("<<END", "<<-END")


@pytest.mark.parametrize(
    ("start", "text"),
    [
        *((start, '{"a": "b"}') for start in (*QUOTED, *OPEN)),
        *((start, '\t{"a":\n\t\t"b\\\\n $HOME `x`"}') for start in QUOTED),
        *((start, '\t{"a": "\\$5 \\`x\\` \\" \\\\n",\\\n"b":\n\t1}') for start in OPEN),
    ],
)
def test_reading_agrees_with_a_real_shell(tmp_path: Path, start: str, text: str) -> None:
    document = f"{start}\n{text}\nEND\n"
    output = subprocess.run(
        ["bash", "-c", f'"$PYTHON" -c "{STUB}" {document}'],
        capture_output=True, check=True, env={**os.environ, "PYTHON": sys.executable},
    ).stdout  # fmt: skip
    assert json.loads(output)
    (sent,) = curl.requests(f"curl {URL} --data-binary @- {document}", tmp_path)
    assert sent.body == output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"curl {URL} -d @- <<'EOF'\n{BODY}\n", "has no line 'EOF' at its end: is it cut off"),
        (f"curl {URL} -d @- <<'EOF'", "has no line 'EOF' at its end: is it cut off"),
        (f"curl {URL} -d @- <<\n{BODY}\n", "does not name its last line"),
        (f"curl {URL} -d @- <<< '{{}}'", "does not name its last line"),
        (f"curl {URL} -d @- <<A <<B\n{{}}\nA\n{{}}\nB\n", "has two here-documents"),
        (f'curl {URL} -d @- <<EOF\n{{"a": "$(id)"}}\nEOF\n', "nothing is executed here"),
        (f'curl {URL} -d @- <<EOF\n{{"a": "$HOME"}}\nEOF\n', "nothing is executed here"),
        (f"curl {URL} -d @-", "only a here-document"),
    ],
)
def test_unreadable_here_document_is_refused(tmp_path: Path, command: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        curl.requests(command, tmp_path)
    assert message in str(error.value)
