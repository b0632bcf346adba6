"""How the official OpenAI client meets limits and other refusals, and bodies that it sends encoded; cases of openai_life.py."""

import gzip
import hashlib
import time
from unittest import mock

import openai
import zstandard

from told import (
    ENGINE_KEY, ENGINE_URL, HTTP2, KEY, MODEL, PATIENCE, QUOTA_KEY, RATED_KEY, SMALL_KEY, TOKENS, TOKENS_KEY, UNICODE, URL,
    Heard, patiently, raises, retried_once, scripted, usage,
)  # fmt: skip

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hello from the matrix"}]}


def client(heard, key=KEY, url=URL, **more):
    http = openai.DefaultHttpxClient(http2=HTTP2, event_hooks={"response": [heard]})
    more = {"max_retries": 0, "timeout": PATIENCE, "http_client": http, **more}
    return openai.OpenAI(base_url=url + "/v1", api_key=key, **more)


def playing(heard, name, **more):
    """A client of the engine that plays a script."""
    return client(heard, ENGINE_KEY, ENGINE_URL, default_headers=scripted(name), **more)


def rate_limit():
    """The second request meets the limit, and the client comes again when it was told to, by itself."""
    heard = Heard()
    c = client(heard, RATED_KEY, max_retries=1)
    last = None

    def attempt():
        nonlocal last
        heard.clear()
        since = time.monotonic()
        last = c.chat.completions.with_raw_response.create(**ASK, max_tokens=1)
        assert last.retries_taken == len(heard) - 1
        return retried_once(heard, since)

    patiently(attempt)
    yield usage(heard.id(), last.parse().usage.prompt_tokens, 1)
    heard.clear()
    impatient = client(heard, RATED_KEY)
    e = raises(
        openai.RateLimitError, lambda: [impatient.chat.completions.create(**ASK, max_tokens=1) for _ in range(10)]
    )
    assert e.code == "rate_limit_exceeded" and e.request_id == heard.id(), e
    yield {"id": heard.id(), "outcome": "refused"}


def final_refusals():
    """Errors that no repetition mends are not repeated."""
    for kind, key, model in (
        (openai.AuthenticationError, "sk-nonsense", MODEL),
        (openai.PermissionDeniedError, SMALL_KEY, "sim-large"),
        (openai.NotFoundError, KEY, "gpt-17"),
    ):
        heard = Heard()
        ask = {**ASK, "model": model}
        raises(kind, lambda: client(heard, key, max_retries=3).chat.completions.create(**ask))
        assert len(heard) == 1, heard.statuses()
        yield {"id": heard.id(), "outcome": "refused"}


def tokens_per_minute():
    """An agent uses up the tokens of a minute: it is told until when, and waits for that by itself."""
    heard = Heard()
    c = client(heard, TOKENS_KEY)
    told = []

    def until_refused():
        """Asks until it is refused, and gives what was heard of the last request that passed and of that refusal."""
        for _ in range(100):  # of which a slow machine may let many pass: with each minute come new tokens
            try:
                r = c.chat.completions.create(**ASK, max_tokens=40)
            except openai.RateLimitError as e:
                return e, heard[-2:]
            told.append(usage(heard.id(), r.usage.prompt_tokens, 40))
        raise AssertionError("a hundred requests passed")

    e, (_, refused) = until_refused()
    yield from told
    assert (e.code, e.type, e.status_code, e.request_id) == ("rate_limit_exceeded", "tokens", 429, heard.id()), e.body
    assert "tokens per minute" in e.message, e.message
    for r in heard:
        assert r.headers["x-ratelimit-limit-tokens"] == str(TOKENS), r.headers
        assert 0 <= int(r.headers["x-ratelimit-remaining-tokens"]) < TOKENS, r.headers
        assert r.headers["x-ratelimit-reset-tokens"].endswith("s"), r.headers
        assert "x-ratelimit-limit-requests" not in r.headers, r.headers
    assert 0 < float(refused.headers["retry-after-ms"]) <= 60_000 and "x-should-retry" not in refused.headers, refused.headers
    yield {"id": heard.id(), "outcome": "refused"}

    def waits():
        """A patient client comes again when it was told to. Nobody sleeps for a minute here: it comes too early, twice."""
        until_refused()
        heard.clear()
        with mock.patch("time.sleep") as sleep:
            try:
                client(heard, TOKENS_KEY, max_retries=2).chat.completions.create(**ASK, max_tokens=40)
                return False  # the minute turned
            except openai.RateLimitError:
                pass
        waited = [args[0] for args, _ in sleep.call_args_list]
        assert heard.statuses() == [429] * 3, heard.statuses()
        assert waited == [float(r.headers["retry-after-ms"]) / 1000 for r in heard[:2]], waited
        return True

    patiently(waits)


def used_up():
    """The quota of a day is used up: no client comes again, however patient."""
    heard = Heard()
    c = client(heard, QUOTA_KEY, max_retries=3)
    r = c.chat.completions.create(**ASK, max_tokens=1)
    yield usage(heard.id(), r.usage.prompt_tokens, 1)
    assert heard[-1].headers["x-ratelimit-remaining-requests"] == "0", heard[-1].headers
    heard.clear()
    e = raises(openai.RateLimitError, lambda: c.chat.completions.create(**ASK, max_tokens=1))
    assert (e.code, e.type, e.request_id) == ("insufficient_quota", "insufficient_quota", heard.id()), e.body
    assert heard.statuses() == [429] and "retry-after" not in heard[0].headers, heard[0].headers
    yield {"id": heard.id(), "outcome": "refused"}


class Encoding(openai.DefaultHttpxClient):
    """A client that encodes what it sends."""

    def __init__(self, encoding, encode, **more):
        super().__init__(**more)
        self.encoding, self.encode = encoding, encode

    def send(self, request, **more):
        body = self.encode(request.content)
        headers = {**request.headers, "content-encoding": self.encoding, "content-length": str(len(body))}
        encoded = type(request)(request.method, request.url, headers=headers, content=body, extensions=request.extensions)
        return super().send(encoded, **more)


def encoded():
    """Bodies in gzip and zstd arrive as they were before; one in an encoding that is not decoded is refused."""
    ask = {"model": "cheap", "messages": [{"role": "user", "content": UNICODE * 2000}]}
    for encoding, encode in ("gzip", gzip.compress), ("zstd", zstandard.compress), ("br", lambda body: body):
        heard, plain = Heard(), []

        def keep(body, encode=encode, plain=plain):
            plain.append(body)
            return encode(body)

        http = Encoding(encoding, keep, http2=HTTP2, event_hooks={"response": [heard]})
        c = playing(heard, "digest", http_client=http)
        if encoding == "br":
            e = raises(openai.APIStatusError, lambda c=c: c.chat.completions.create(**ask))
            assert (e.status_code, e.code) == (415, "unsupported_media_type"), e
            yield {"id": heard.id(), "outcome": "refused"}
            continue
        r = c.chat.completions.create(**ask)
        sent = heard[-1].request.content
        assert r.choices[0].message.content == hashlib.sha256(plain[0]).hexdigest()
        assert len(sent) < len(plain[0]), (len(sent), len(plain[0]))
        yield usage(heard.id(), 7, 3, request_bytes=len(sent))
