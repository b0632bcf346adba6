"""The official Anthropic client on /v1/messages."""

import asyncio
import time

import anthropic

from told import (
    ENGINE_KEY, ENGINE_URL, HTTP2, IMAGE, KEY, LIMIT, LONG, MODEL, PATIENCE, RATED_KEY, SMALL_KEY, UNICODE, URL, WEATHER,
    Heard, patiently, raises, retried_once, run, scripted, usage,
)  # fmt: skip

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hello from the matrix"}]}
SCRIPTED = {"model": "cheap", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"name": "weather", "description": "Forecast", "input_schema": WEATHER}
SYSTEM = [{"type": "text", "text": "Be brief. " * 40, "cache_control": {"type": "ephemeral"}}]


def client(heard, key=KEY, url=URL, **more):
    more = {"max_retries": 0, "timeout": PATIENCE, **more}
    return anthropic.Anthropic(
        base_url=url,
        api_key=key,
        http_client=anthropic.DefaultHttpxClient(http2=HTTP2, event_hooks={"response": [heard]}),
        **more,
    )


def playing(heard, name, **more):
    return client(heard, ENGINE_KEY, ENGINE_URL, default_headers=scripted(name), **more)


def of(u, id, **more):
    """Anthropic counts what was cached apart."""
    cached = u.cache_read_input_tokens or 0
    prompt = u.input_tokens + cached + (u.cache_creation_input_tokens or 0)
    return usage(id, prompt, u.output_tokens, cached=cached, operation="messages", **more)


def create():
    heard = Heard()
    c = client(heard)
    for again in (False, True):
        r = c.messages.create(**ASK, system=SYSTEM, max_tokens=12)
        assert r.content[0].text and r.stop_reason == "max_tokens" and r.usage.output_tokens == 12, r
        assert (r.usage.cache_read_input_tokens > 0) or not again, r.usage
        yield of(r.usage, heard.id())


def request_id():
    """Anthropic's client reports the id of a request from a header of its own name."""
    heard = Heard()
    r = client(heard).messages.create(**ASK, max_tokens=2)
    assert r._request_id == heard.id(), f"{r._request_id!r}, and x-request-id is {heard.id()}"
    yield of(r.usage, heard.id())
    heard.clear()
    e = raises(anthropic.NotFoundError, lambda: client(heard).messages.create(**{**ASK, "model": "gpt-17"}, max_tokens=2))
    assert e.request_id == heard.id(), f"{e.request_id!r}, and x-request-id is {heard.id()}"


def keys():
    """The key as this client sends it, as a token, and as earlier ones sent it."""
    earlier = {"X-Api-Key": KEY, "Authorization": anthropic.Omit()}
    for name, more in (
        ("authorization", {"key": KEY}),
        ("authorization", {"key": None, "auth_token": KEY}),
        ("x-api-key", {"key": KEY, "default_headers": earlier}),
    ):
        heard = Heard()
        r = client(heard, **more).messages.create(**ASK, max_tokens=3)
        sent = heard[-1].request.headers
        assert {"authorization", "x-api-key"} & set(sent) == {name}, sent
        yield of(r.usage, heard.id())


def stream():
    heard = Heard()
    with client(heard).messages.stream(**ASK, max_tokens=30, stop_sequences=["no such word"]) as s:
        text = "".join(s.text_stream)
        r = s.get_final_message()
    assert text == r.content[0].text and len(text) > 100 and r.usage.output_tokens == 30, r
    yield of(r.usage, heard.id(), stream=True)
    heard.clear()
    with client(heard).messages.create(**ASK, max_tokens=30, stream=True) as s:
        events = [e.type for e in s]
    assert events[0] == "message_start" and events[-1] == "message_stop", events
    yield usage(heard.id(), None, 30, operation="messages", stream=True)


def left():
    """Leaves a long stream after eight events."""
    heard = Heard()
    with client(heard).messages.stream(**ASK, max_tokens=LONG) as s:
        for n, _ in enumerate(s):
            if n == 8:
                break
    yield {"id": heard.id(), "outcome": "client_cut", "stream": True}


def tools():
    heard = Heard()
    c = client(heard)
    r = c.messages.create(**ASK, tools=[TOOL], tool_choice={"type": "any"}, max_tokens=200)
    call = r.content[0]
    assert r.stop_reason == "tool_use" and call.name == "weather" and call.input["days"] >= 2, r
    yield of(r.usage, heard.id())
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "blue"}]}
    messages = [*ASK["messages"], {"role": "assistant", "content": r.content}, {"role": "user", "content": [result]}]
    end = c.messages.create(model=MODEL, messages=messages, tools=[TOOL], max_tokens=9)
    assert end.content[0].type == "text" and end.usage.output_tokens == 9, end
    yield of(end.usage, heard.id())
    with c.messages.stream(**ASK, tools=[TOOL], tool_choice={"type": "tool", "name": "weather"}, max_tokens=200) as s:
        parts = [e.type for e in s].count("input_json")
        streamed = s.get_final_message()
    assert parts > 3 and streamed.content[0].input == call.input, streamed
    yield of(streamed.usage, heard.id(), stream=True)


def beta():
    """Beta calls go to the same path; earlier clients add a query. Counting without an answer is not served."""
    heard = Heard()
    r = client(heard).beta.messages.create(
        **ASK, max_tokens=4, betas=["some-beta-2026-01-01"], extra_query={"beta": "true"}
    )
    assert heard[-1].request.url.query == b"beta=true", heard[-1].request.url
    yield of(r.usage, heard.id())
    heard.clear()
    raises(anthropic.NotFoundError, lambda: client(heard).messages.count_tokens(**ASK))
    yield {"id": heard.id(), "outcome": "refused"}


def image():
    heard = Heard()
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE.partition(",")[2]}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    r = client(heard).messages.create(model=MODEL, messages=[{"role": "user", "content": content}], max_tokens=4)
    yield of(r.usage, heard.id())


def errors():
    for kind, status, type, key, more in (
        (anthropic.AuthenticationError, 401, "authentication_error", "sk-nonsense", {}),
        (anthropic.PermissionDeniedError, 403, "permission_error", SMALL_KEY, {"model": "sim-large"}),
        (anthropic.NotFoundError, 404, "not_found_error", KEY, {"model": "gpt-17"}),
        (anthropic.BadRequestError, 400, "invalid_request_error", KEY, {"model": "", "extra_body": {"model": None}}),
    ):
        heard = Heard()
        c = client(heard, key, max_retries=3)
        e = raises(kind, lambda: c.messages.create(**{**ASK, "max_tokens": 1, **more}))
        assert e.status_code == status and e.body["type"] == "error" and e.body["error"]["message"], e
        assert e.body["error"]["type"] == type, e
        assert len(heard) == 1, heard.statuses()
        yield {"id": heard.id(), "outcome": "refused"}


def too_large():
    heard = Heard()
    e = raises(
        anthropic.ContentTooLargeError,
        lambda: client(heard).messages.create(**ASK, system="x" * (LIMIT + 1), max_tokens=1),
    )
    assert e.body["error"]["type"] == "request_too_large" and len(heard) == 1, e
    yield {"id": heard.id(), "outcome": "refused"}


def rate_limit():
    heard = Heard()
    c = client(heard, RATED_KEY, max_retries=1)
    r = None

    def attempt():
        nonlocal r
        heard.clear()
        since = time.monotonic()
        r = c.messages.create(**ASK, max_tokens=1)
        return retried_once(heard, since)

    patiently(attempt)
    yield of(r.usage, heard.id())
    heard.clear()
    impatient = client(heard, RATED_KEY)
    e = raises(anthropic.RateLimitError, lambda: [impatient.messages.create(**ASK, max_tokens=1) for _ in range(10)])
    assert e.body["error"]["type"] == "rate_limit_error", e
    yield {"id": heard.id(), "outcome": "refused"}


def engine_first_503():
    heard = Heard()
    r = playing(heard, "first-503", max_retries=2).messages.create(**SCRIPTED)
    assert r.content[0].text == "hi" and heard.statuses() == [503, 200], heard.statuses()
    yield {"id": heard[0].headers["x-request-id"], "outcome": "upstream_error", "status": 503}
    yield usage(heard.id(), 7, 3, operation="messages")


def error_event():
    """What an engine says in mid-stream, and what the worker says when the engine dies, is raised to the caller."""
    for name, type, outcome in (
        ("messages-error", "overloaded_error", "upstream_error"),
        ("messages-dies", "api_error", "upstream_cut"),
    ):
        heard, got = Heard(), []

        def read():
            with playing(heard, name).messages.stream(**SCRIPTED) as s:
                got.extend(s.text_stream)

        try:
            read()
            raise AssertionError("nothing was raised")
        except anthropic.APIStatusError as e:
            assert e.body["error"]["type"] == type and "".join(got) == "ab", (e, got)
        yield usage(heard.id(), 7, 2, outcome=outcome, stream=True)


def unicode_echo():
    heard = Heard()
    ask = {**SCRIPTED, "messages": [{"role": "user", "content": UNICODE}]}
    with playing(heard, "messages-echo").messages.stream(**ask) as s:
        text = s.get_final_text()
    assert text == UNICODE, ascii(text)
    yield usage(heard.id(), 7, len(UNICODE), stream=True)


def together():
    async def one(c, i):
        heard = Heard()
        async with c.messages.stream(
            model=MODEL, messages=[{"role": "user", "content": f"stream {i} " * (i + 1)}], max_tokens=5 + i
        ) as s:
            r = await s.get_final_message()
            heard.append(s.response)
        assert r.usage.output_tokens == 5 + i, r
        return of(r.usage, heard.id(), stream=True)

    async def every():
        http = anthropic.DefaultAsyncHttpxClient(http2=HTTP2)
        async with anthropic.AsyncAnthropic(
            base_url=URL, api_key=KEY, max_retries=0, timeout=PATIENCE, http_client=http
        ) as c:
            return await asyncio.gather(*(one(c, i) for i in range(20)))

    yield from asyncio.run(every())


if __name__ == "__main__":
    run(
        *(create, request_id, keys, stream, left, tools, beta, image, errors, rate_limit),
        *(engine_first_503, error_event, unicode_echo, together),
        # httpx over HTTP/2 cannot hear an answer that comes while it is sending.
        *(() if HTTP2 else (too_large,)),
    )
