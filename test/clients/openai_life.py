"""What happens to the official OpenAI client in life: limits, failing engines, large bodies, many streams, long connections.

Its limits, and what it may send encoded, are in openai_limits.py.
"""

import asyncio
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai

from openai_limits import ASK, client, encoded, final_refusals, playing, rate_limit, tokens_per_minute, used_up
from told import CASES, HTTP2, IMAGE, KEY, LIMIT, LONG, MODEL, PATIENCE, UNICODE, URL, Heard, raises, run, usage

LINGERS = 120  # seconds for which the scripted engine keeps a connection that the client should end


def chunks_of(c, **more):
    with c.chat.completions.create(**{"model": "cheap", "messages": [], "stream": True, **more}) as s:
        yield from s


def text_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def engine_first_503():
    """The engine refuses the whole first request, with all attempts that Envoy makes; the client's own retry succeeds."""
    heard = Heard()
    r = playing(heard, "first-503", max_retries=2).chat.completions.create(model="cheap", messages=[])
    assert r.choices[0].message.content == "hi" and heard.statuses() == [503, 200], heard.statuses()
    yield {"id": heard[0].headers["x-request-id"], "outcome": "upstream_error", "status": 503}
    yield usage(heard.id(), 7, 3)


def engine_429():
    """An engine's own refusal is passed on, and so is what it says of coming again."""
    heard = Heard()
    e = raises(
        openai.RateLimitError,
        lambda: playing(heard, "429", max_retries=2).chat.completions.create(model="cheap", messages=[]),
    )
    assert e.code == "insufficient_quota", e
    assert len(heard) == 1, "x-should-retry: false of the engine did not reach the client"
    yield {"id": heard.id(), "outcome": "upstream_error", "status": 429}


def error_event():
    heard, got = Heard(), []
    e = raises(openai.APIError, lambda: got.extend(chunks_of(playing(heard, "error-event"))))
    assert e.code == "context_length_exceeded" and "too long" in e.message and text_of(got) == "ab", (e, got)
    yield usage(heard.id(), None, 2, outcome="upstream_error", stream=True)


def engine_dies():
    heard, got = Heard(), []
    e = raises(openai.APIError, lambda: got.extend(chunks_of(playing(heard, "dies"))))
    assert e.code == "upstream_cut" and text_of(got) == "ab", (e, got)
    yield usage(heard.id(), None, 2, outcome="upstream_cut", stream=True)


def closes_at_done():
    """The engine holds its connection open after [DONE]: the client has all that it wants, and closes."""
    heard, since = Heard(), time.monotonic()
    got = list(chunks_of(playing(heard, "done"), stream_options={"include_usage": True}))
    assert text_of(got) == "ab" and got[-1].usage.completion_tokens == 2, got
    assert time.monotonic() - since < LINGERS, "it waited for the end of the body"
    yield usage(heard.id(), 7, 2, stream=True)


def unicode_echo():
    """The engine says what it was asked, whole and as a stream that is cut inside of characters."""
    heard = Heard()
    c = playing(heard, "echo")
    ask = [{"role": "user", "content": UNICODE}]
    whole = c.chat.completions.create(model="cheap", messages=ask)
    assert whole.choices[0].message.content == UNICODE, ascii(whole.choices[0].message.content)
    yield usage(heard.id(), whole.usage.prompt_tokens, whole.usage.completion_tokens)
    got = text_of(chunks_of(c, messages=ask))
    assert got == UNICODE, ascii(got)
    yield usage(heard.id(), 7, len(UNICODE), stream=True)


def image():
    """Six megabytes in a content part arrive as they were sent, and are charged."""
    heard = Heard()
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
    ]
    ask = {"messages": [{"role": "user", "content": content}]}
    r = playing(heard, "digest").chat.completions.create(model="cheap", **ask)
    sent = heard[-1].request.content
    assert r.choices[0].message.content == hashlib.sha256(sent).hexdigest() and len(sent) > 6 << 20, len(sent)
    yield usage(heard.id(), 7, 3, request_bytes=len(sent))
    heard.clear()
    with client(heard).chat.completions.create(
        model=MODEL, **ask, max_tokens=4, stream=True, stream_options={"include_usage": True}
    ) as s:
        used = list(s)[-1].usage
    assert used.prompt_tokens > 1 << 20, used
    yield usage(heard.id(), used.prompt_tokens, 4, stream=True)


def too_large():
    """Above the limit nothing is passed on, and the client is told why, although it is still sending."""
    heard = Heard()
    ask = {"messages": [{"role": "user", "content": "x" * (LIMIT + 1)}]}
    c = client(heard)
    e = raises(openai.APIStatusError, lambda: c.chat.completions.create(model=MODEL, **ask))
    assert e.status_code == 413 and e.code == "body_too_large", e
    yield {"id": heard.id(), "outcome": "refused"}
    r = c.chat.completions.create(**ASK, max_tokens=2)
    yield usage(heard.id(), r.usage.prompt_tokens, 2)


def long_connection():
    """One connection serves hundreds of requests, also after it was idle. The client itself would close it after five seconds."""
    heard = Heard()
    kept = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=600)
    c = client(heard, http_client=openai.DefaultHttpxClient(http2=HTTP2, event_hooks={"response": [heard]}, limits=kept))
    for i in range(200):
        r = c.embeddings.create(model=MODEL, input=f"request {i}")
        if i % 40 == 0:
            yield usage(heard.id(), r.usage.prompt_tokens, 0, operation="embeddings")
        if i == 100:
            time.sleep(3)  # is idle
    assert len(heard.ports()) == 1, heard.ports()


def gives_up():
    """Waits for a whole answer for so long that the engine is at work by then, also on a slow machine."""
    mine = f"{CASES}gives-up-{time.time_ns()}"
    c = client(Heard(), timeout=httpx.Timeout(PATIENCE, read=20))
    raises(
        openai.APITimeoutError,
        lambda: c.chat.completions.create(**ASK, max_tokens=LONG, extra_headers={"x-request-id": mine}),
    )
    return mine


def timeouts():
    """The client gives up while it waits for a whole answer, and in the middle of a stream."""
    yield {"client_id": gave_up.result(), "outcome": "client_cut"}
    for patience in 1, 8, 64:  # a slow machine may not even begin within the first
        heard, got = Heard(), []
        # It is no API error that a stream's read raises, but httpx's own.
        try:
            got.extend(chunks_of(playing(heard, "stalls", timeout=patience)))
            raise AssertionError("the stream ended")
        except Exception as e:
            assert "timed out" in str(e).lower() or "timeout" in type(e).__name__.lower(), repr(e)
        if text_of(got) == "ab":
            break
    yield usage(heard.id(), None, 2, outcome="client_cut", stream=True)


def cancelled():
    """A task is cancelled in mid-stream; the client goes on with the others."""

    async def main():
        http = openai.DefaultAsyncHttpxClient(http2=HTTP2)
        async with openai.AsyncOpenAI(
            base_url=URL + "/v1", api_key=KEY, max_retries=0, timeout=PATIENCE, http_client=http
        ) as c:
            begun = asyncio.Event()
            id = ""

            async def endless():
                nonlocal id
                async with await c.chat.completions.create(**ASK, max_tokens=LONG, stream=True) as s:
                    id = s.response.headers["x-request-id"]
                    async for _ in s:
                        begun.set()

            task = asyncio.create_task(endless())
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            r = await c.chat.completions.with_raw_response.create(**ASK, max_tokens=3)
            return id, r.headers["x-request-id"], r.parse().usage

    id, next_id, used = asyncio.run(main())
    yield {"id": id, "outcome": "client_cut", "stream": True}
    yield usage(next_id, used.prompt_tokens, used.completion_tokens)


def together():
    """Fifty streams at once in one event loop, each of a length of its own."""

    async def one(c, i):
        text, used = 0, None
        async with await c.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"stream {i} " * (i + 1)}],
            max_tokens=5 + i,
            stream=True,
            stream_options={"include_usage": True},
        ) as s:
            async for chunk in s:
                used = chunk.usage or used
                text += bool(chunk.choices and chunk.choices[0].delta.content)
            id = s.response.headers["x-request-id"]
        assert text == 5 + i == used.completion_tokens, (text, used)
        return usage(
            id, used.prompt_tokens, used.completion_tokens, cached=used.prompt_tokens_details.cached_tokens, stream=True
        )

    async def every():
        async with openai.AsyncOpenAI(
            base_url=URL + "/v1",
            api_key=KEY,
            max_retries=0,
            timeout=PATIENCE,
            http_client=openai.DefaultAsyncHttpxClient(http2=HTTP2),
        ) as c:
            return await asyncio.gather(*(one(c, i) for i in range(50)))

    yield from asyncio.run(every())


if __name__ == "__main__":
    gave_up = ThreadPoolExecutor().submit(gives_up)  # while the other cases run
    run(
        *(
            rate_limit,
            tokens_per_minute,
            used_up,
            final_refusals,
            encoded,
            engine_first_503,
            engine_429,
            error_event,
            engine_dies,
            closes_at_done,
            unicode_echo,
        ),
        *(image, long_connection, timeouts, cancelled, together),
        # httpx over HTTP/2 cannot hear an answer that comes while it is sending.
        *(() if HTTP2 else (too_large,)),
    )
