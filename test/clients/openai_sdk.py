"""Uses the official OpenAI client against a door, as its users do, and prints what it got as one JSON object.

Environment: SPOKEGATE_URL, SPOKEGATE_KEY (may use sim-small and sim-large), SPOKEGATE_KEY_SMALL (sim-small only),
SPOKEGATE_KEY_RATED (one request, and then a limit).
"""

import json
import os

import openai

URL = os.environ["SPOKEGATE_URL"] + "/v1"
MESSAGES = [{"role": "user", "content": "Hello from Python"}]
PATIENCE = 180  # seconds that a slow machine may take for a request
LONG = 100_000  # tokens that take the engine minutes


def client(key):
    return openai.OpenAI(base_url=URL, api_key=key, max_retries=0, timeout=PATIENCE)


def chat(c):
    r = c.chat.completions.create(model="sim-small", messages=MESSAGES, max_tokens=16)
    return {"text": r.choices[0].message.content, "completion": r.usage.completion_tokens, "request_id": r._request_id}


def completion(c):
    r = c.completions.create(model="sim-small", prompt="Once", max_tokens=16)
    return {"text": r.choices[0].text, "completion": r.usage.completion_tokens, "request_id": r._request_id}


def response(c):
    r = c.responses.create(model="sim-small", input="Hello", max_output_tokens=16)
    return {"text": r.output_text, "completion": r.usage.output_tokens, "request_id": r._request_id}


def stream(c):
    """Reads to the end; the client stops at [DONE] and closes the connection, or keeps it, as it likes."""
    text, chunks, used = "", 0, None
    with c.chat.completions.create(
        model="sim-small", messages=MESSAGES, max_tokens=16, stream=True, stream_options={"include_usage": True}
    ) as s:
        for chunk in s:
            chunks += 1
            if chunk.choices and chunk.choices[0].delta.content:
                text += chunk.choices[0].delta.content
            if chunk.usage:
                used = chunk.usage.completion_tokens
        request_id = s.response.headers["x-request-id"]
    return {"text": text, "chunks": chunks, "completion": used, "request_id": request_id}


def left(c):
    """Leaves a long stream after eight chunks."""
    chunks = 0
    with c.chat.completions.create(model="sim-small", messages=MESSAGES, max_tokens=LONG, stream=True) as s:
        for _ in s:
            chunks += 1
            if chunks == 8:
                break
        request_id = s.response.headers["x-request-id"]
    return {"chunks": chunks, "request_id": request_id}


def response_stream(c):
    text, types = "", []
    with c.responses.create(model="sim-small", input="Hello", max_output_tokens=16, stream=True) as s:
        for event in s:
            types.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
    return {"text": text, "types": types}


def error(call):
    try:
        call()
    except openai.APIStatusError as e:
        return {"class": type(e).__name__, "code": e.code, "status": e.status_code, "request_id": e.request_id}
    return {"class": "none", "code": "", "status": 0, "request_id": ""}


def ask(c, model, **more):
    return lambda: c.chat.completions.create(model=model, messages=MESSAGES, max_tokens=1, **more)


def main():
    c = client(os.environ["SPOKEGATE_KEY"])
    small = client(os.environ["SPOKEGATE_KEY_SMALL"])
    rated = client(os.environ["SPOKEGATE_KEY_RATED"])
    ask(rated, "sim-small")()
    print(
        json.dumps(
            {
                "chat": chat(c),
                "completion": completion(c),
                "response": response(c),
                "stream": stream(c),
                "left": left(c),
                "response_stream": response_stream(c),
                "embeddings": [
                    len(d.embedding) for d in c.embeddings.create(model="sim-small", input=["a", "b"]).data
                ],
                "models": [m.id for m in c.models.list()],
                "errors": {
                    "bad_key": error(ask(client("sk-nonsense"), "sim-small")),
                    "not_allowed": error(ask(small, "sim-large")),
                    "not_found": error(ask(c, "gpt-17")),
                    "bad_body": error(ask(c, "sim-small", extra_body={"priority": 1})),
                    "rate": error(ask(rated, "sim-small")),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
