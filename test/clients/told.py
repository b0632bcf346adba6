"""What the matrix of clients has in common.

A script runs cases; each yields what its client was told of the requests that it made, one JSON line each, which the test
compares with the journals. A case that goes wrong prints its traceback as such a line.

Environment: SPOKEGATE_URL and SPOKEGATE_KEY of a door before simulated engines, SPOKEGATE_KEY_SMALL (sim-small only) and
SPOKEGATE_KEY_RATED (one request in ten seconds), SPOKEGATE_KEY_TOKENS (SPOKEGATE_TOKENS of them a minute) and
SPOKEGATE_KEY_QUOTA (one request a day) of the same; SPOKEGATE_ENGINE_URL and SPOKEGATE_ENGINE_KEY of a door before
an engine that plays a script, which is chosen by the user-agent; SPOKEGATE_CASES begins the name of each script;
SPOKEGATE_HTTP2=1 offers HTTP/2; SSL_CERT_FILE holds whom to trust.
"""

import base64
import json
import os
import sys
import time
import traceback

URL = os.environ["SPOKEGATE_URL"]
KEY = os.environ["SPOKEGATE_KEY"]
SMALL_KEY = os.environ["SPOKEGATE_KEY_SMALL"]
RATED_KEY = os.environ["SPOKEGATE_KEY_RATED"]
TOKENS_KEY = os.environ["SPOKEGATE_KEY_TOKENS"]
TOKENS = int(os.environ["SPOKEGATE_TOKENS"])
QUOTA_KEY = os.environ["SPOKEGATE_KEY_QUOTA"]
ENGINE_URL = os.environ["SPOKEGATE_ENGINE_URL"]
ENGINE_KEY = os.environ["SPOKEGATE_ENGINE_KEY"]
CASES = os.environ["SPOKEGATE_CASES"]
HTTP2 = os.environ.get("SPOKEGATE_HTTP2") == "1"

MODEL = "sim-small"
PATIENCE = 180  # seconds that a client gives a request which is to succeed, on a machine that does much else
LONG = 100_000  # tokens that take the engine minutes: whoever asks for them leaves before
LIMIT = 8 << 20  # the body limit of the door
IMAGE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * (6 << 12)).decode()[: 6 << 20]

# What JSON, SSE and terminals are known to get wrong.
UNICODE = 'Grüße, Ωmega, 日本語, עברית, 👩‍👩‍👧‍👦 e\u0301 \u2028\u2029 \u0000\u001f "\\" </script> \U0010ffff\n'

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 2}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


class Heard(list):
    """Every response that a client got, those to its own retries too; a hook of httpx."""

    def __call__(self, response):
        self.append(response)

    async def later(self, response):
        self.append(response)

    def statuses(self):
        return [r.status_code for r in self]

    def id(self):
        return self[-1].headers["x-request-id"]

    def ports(self):
        return {r.extensions["network_stream"].get_extra_info("client_addr") for r in self}


def usage(id, prompt, completion, **more):
    """What a client was told of a request that ended well; or, with other fields, what must have been journaled."""
    return {"id": id, "prompt": prompt, "completion": completion, "outcome": "complete", **more}


def scripted(name):
    """The header that makes the engine play a script."""
    return {"user-agent": CASES + name}


def patiently(attempt):
    """Repeats until a limit was met: a slow machine lets the rate recover between two requests."""
    for _ in range(30):
        if attempt():
            return
    raise AssertionError("the limit was never met")


def retried_once(heard, since):
    """Whether the last request met the limit, waited as it was told, and then passed."""
    if heard.statuses() == [200]:
        return False
    assert heard.statuses() == [429, 200], heard.statuses()
    wait = float(heard[0].headers["retry-after-ms"]) / 1000
    assert 0 < wait <= 10, wait
    assert time.monotonic() - since >= wait, "came back before the time"
    return True


def raises(kind, call):
    """The error that a call raises; it must be of this class."""
    try:
        call()
    except Exception as e:
        assert isinstance(e, kind), f"want {kind.__name__}, got {type(e).__name__}: {e}"
        return e
    raise AssertionError(f"want {kind.__name__}, and nothing was raised")


def run(*cases):
    for case in cases:
        name, told = case.__name__, 0
        try:
            for line in case():
                told += 1
                print(json.dumps({"case": name, **line}), flush=True)
            assert told > 0, "the case tells nothing"
        except Exception:
            print(json.dumps({"case": name, "error": traceback.format_exc()}), flush=True)
    sys.stdout.flush()
