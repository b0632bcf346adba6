"""LangChain's ChatOpenAI and OpenAIEmbeddings, as applications use them."""

import asyncio
import time

import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from told import (
    ENGINE_KEY, ENGINE_URL, HTTP2, IMAGE, KEY, LONG, MODEL, PATIENCE, RATED_KEY, UNICODE, URL,
    Heard, patiently, raises, retried_once, run, scripted, usage,
)  # fmt: skip

ASK = [SystemMessage("Be brief."), HumanMessage("Hello from the matrix")]


class Event(pydantic.BaseModel):
    """A thing that happens."""

    name: str
    guests: list[str]


@tool
def weather(city: str, days: int) -> str:
    """The forecast for a city."""
    return f"blue over {city} for {days} days"


def model(heard, key=KEY, url=URL, http2=HTTP2, **more):
    return ChatOpenAI(
        **{"model": MODEL, "max_retries": 0, "timeout": PATIENCE, "include_response_headers": True, **more},
        base_url=url + "/v1",
        api_key=key,
        http_client=openai.DefaultHttpxClient(http2=http2, event_hooks={"response": [heard]}),
        http_async_client=openai.DefaultAsyncHttpxClient(http2=http2, event_hooks={"response": [heard.later]}),
    )


def playing(heard, name, **more):
    return model(heard, ENGINE_KEY, ENGINE_URL, model="cheap", default_headers=scripted(name), **more)


def of(message, **more):
    u = message.usage_metadata
    cached = u["input_token_details"].get("cache_read")
    id = more.pop("id", None) or message.response_metadata["headers"]["x-request-id"]
    return usage(id, u["input_tokens"], u["output_tokens"], cached=cached, **more)


def invoke():
    r = model(Heard(), max_tokens=12).invoke(ASK)
    assert r.content and r.response_metadata["finish_reason"] == "length", r
    yield of(r, operation="chat")


def whole(chunks):
    r = chunks[0]
    for c in chunks[1:]:
        r += c
    return r


def stream():
    heard = Heard()
    chunks = list(model(heard, max_tokens=30, stream_usage=True).stream(ASK))
    assert len(chunks) > 20 and len(whole(chunks).content) > 100, chunks
    yield of(whole(chunks), id=heard.id(), operation="chat", stream=True)
    heard.clear()
    text = "".join(c.content for c in model(heard, max_tokens=30, stream_usage=False).stream(ASK))
    assert text == whole(chunks).content, text
    yield usage(heard.id(), None, 30, stream=True)


def left():
    heard = Heard()
    chunks = model(heard, max_tokens=LONG).stream(ASK)
    for _ in range(8):
        next(chunks)
    chunks.close()
    yield {"id": heard.id(), "outcome": "client_cut", "stream": True}


def tools():
    heard = Heard()
    m = model(heard).bind_tools([weather], tool_choice="any")
    r = m.invoke(ASK)
    yield of(r)
    call = r.tool_calls[0]
    result = weather.invoke(call)
    assert call["name"] == "weather" and isinstance(result, ToolMessage) and result.content.startswith("blue"), (
        r,
        result,
    )
    end = model(heard, max_tokens=9).bind_tools([weather]).invoke([*ASK, r, result])
    assert (
        end.content and not end.tool_calls and end.usage_metadata["input_tokens"] > r.usage_metadata["input_tokens"]
    ), end
    yield of(end)
    heard.clear()
    streamed = whole(list(model(heard, stream_usage=True).bind_tools([weather], tool_choice="weather").stream(ASK)))
    assert streamed.tool_calls[0]["args"] == call["args"], streamed
    yield of(streamed, id=heard.id(), stream=True)


def structured():
    for method in ("json_schema", "function_calling"):
        r = model(Heard()).with_structured_output(Event, method=method, include_raw=True).invoke(ASK)
        assert isinstance(r["parsed"], Event) and r["parsing_error"] is None, r
        yield of(r["raw"])
    r = model(Heard()).with_structured_output(None, method="json_mode", include_raw=True).invoke(ASK)
    assert isinstance(r["parsed"], dict), r
    yield of(r["raw"])


def batch():
    """Threads share a client, for which httpx over HTTP/2 is not made: one request in some hundreds is never sent."""
    m = model(Heard(), max_tokens=12, http2=False)
    for r in m.batch([f"question {i}" for i in range(12)], {"max_concurrency": 6}):
        yield of(r)


def together():
    async def every():
        m = model(Heard(), max_tokens=12)
        return await m.abatch([f"later question {i}" for i in range(12)])

    for r in asyncio.run(every()):
        yield of(r)


def responses():
    r = model(Heard(), use_responses_api=True, max_tokens=14).invoke(ASK)
    assert r.text and r.usage_metadata["output_tokens"] == 14, r
    yield of(r, operation="responses")
    heard = Heard()
    streamed = whole(list(model(heard, use_responses_api=True, max_tokens=14).stream(ASK)))
    assert streamed.text == r.text, streamed
    yield of(streamed, id=heard.id(), operation="responses", stream=True)


def image():
    heard = Heard()
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": IMAGE}}]
    yield of(model(heard, max_tokens=4).invoke([HumanMessage(content)]))


def embeddings():
    heard = Heard()
    http = openai.DefaultHttpxClient(http2=HTTP2, event_hooks={"response": [heard]})
    e = OpenAIEmbeddings(
        model=MODEL, base_url=URL + "/v1", api_key=KEY, http_client=http, check_embedding_ctx_length=False
    )
    assert len(e.embed_documents(["one", "two"])[1]) == 64
    yield usage(heard.id(), heard[-1].json()["usage"]["prompt_tokens"], 0, operation="embeddings")


def rate_limit():
    heard = Heard()
    m = model(heard, RATED_KEY, max_retries=1, max_tokens=1)
    r = None

    def attempt():
        nonlocal r
        heard.clear()
        since = time.monotonic()
        r = m.invoke(ASK)
        return retried_once(heard, since)

    patiently(attempt)
    yield of(r)
    impatient = model(heard, RATED_KEY, max_tokens=1)
    raises(openai.RateLimitError, lambda: [impatient.invoke(ASK) for _ in range(10)])
    yield {"id": heard.id(), "outcome": "refused"}


def error_event():
    for name, code, outcome in (
        ("error-event", "context_length_exceeded", "upstream_error"),
        ("dies", "upstream_cut", "upstream_cut"),
    ):
        heard, got = Heard(), []
        try:
            got.extend(c.content for c in playing(heard, name).stream(ASK))
            raise AssertionError("nothing was raised")
        except openai.APIError as e:
            assert e.code == code and "".join(got) == "ab", (e, got)
        yield usage(heard.id(), None, 2, outcome=outcome, stream=True)


def unicode_echo():
    heard = Heard()
    text = "".join(c.content for c in playing(heard, "echo").stream([HumanMessage(UNICODE)]))
    assert text == UNICODE, ascii(text)
    yield usage(heard.id(), 7, len(UNICODE), stream=True)


if __name__ == "__main__":
    run(
        *(invoke, stream, left, tools, structured, batch, together, responses, image, embeddings),
        *(rate_limit, error_event, unicode_echo),
    )
