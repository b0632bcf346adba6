"""Reads request bodies as Python's engines do, and says what it sees: the oracle of python_test.go.

A question is the operation's number, the body's length in four bytes, and the body. An answer is a line: the model in
hexadecimal, stream, include_usage, whether output is limited, the tokens asked for, the choices; or what is wrong.
"""
import json
import struct
import sys

CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES = range(1, 6)
LIMITS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    COMPLETIONS: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
    MESSAGES: ("max_tokens",),
}
MOST = 2**63 - 1


def boolean(of, name):
    value = of.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(name + " is no boolean")
    return bool(value)


def integer(of, name):
    value = of.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(name + " is no count")
    return value


def choices(op, body):
    if op == CHAT:
        return integer(body, "n") or 1
    if op != COMPLETIONS:
        return 1
    prompt, prompts = body.get("prompt"), 0
    if isinstance(prompt, list):
        prompts = sum(isinstance(p, (str, list)) for p in prompt)
    return max(integer(body, "n") or 1, integer(body, "best_of") or 1) * max(prompts, 1)


def read(op, raw):
    body = json.loads(raw)
    if not isinstance(body, dict):
        raise ValueError("no object")
    model, options = body.get("model"), body.get("stream_options")
    if not isinstance(model, str):
        raise ValueError("no model")
    limits = [n for n in (integer(body, name) for name in LIMITS.get(op, ())) if n is not None]
    answers = choices(op, body)
    output = min(max(limits) * answers, MOST) if limits else 0
    return " ".join(str(part) for part in (
        model.encode("utf-8", "surrogatepass").hex(), boolean(body, "stream"), boolean(options or {}, "include_usage"),
        bool(limits) or op == EMBEDDINGS, output, answers))


while True:
    head = sys.stdin.buffer.read(5)
    if len(head) < 5:
        break
    op, length = struct.unpack(">BI", head)
    try:
        answer = read(op, sys.stdin.buffer.read(length))
    except (ValueError, AttributeError, RecursionError) as wrong:
        answer = "wrong: " + ascii(str(wrong))
    print(answer, flush=True)
