#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""P and D of examples/router.py, as servers that answer with what they were asked.

engines.py ROUTER   prints the result line of the other test programs
"""
import json
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

TICKET = {"do_remote_prefill": True, "kvpull_ticket": "t"}


class Engine(BaseHTTPRequestHandler):
    """Answers with a ticket as P, with its own request as D."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        answer = self.server.answer
        text = json.dumps(body if answer is None else answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def engine(answer):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.asked, server.answer = [], answer
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def ask(port):
    body = {"prompt": "hello", "max_tokens": 7, "stream": True}
    url = f"http://127.0.0.1:{port}/v1/completions"
    headers = {"Content-Type": "application/json"}
    for _ in range(200):
        try:
            with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=30) as answer:
                return json.load(answer)
        except ConnectionRefusedError:
            time.sleep(0.05)
        except OSError as error:
            if not isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                raise
            time.sleep(0.05)
    raise AssertionError("the router does not listen")


def routed(router, prefill, answer):
    """Return what P was asked and what D was asked, by way of a router."""
    p, d, port = engine(answer), engine(None), free_port()
    address = p.server_address[1] if prefill else free_port()
    process = subprocess.Popen([
        sys.executable, router, str(port), f"http://127.0.0.1:{address}",
        f"http://127.0.0.1:{d.server_address[1]}"], stderr=subprocess.DEVNULL)
    try:
        answered = ask(port)
    finally:
        process.kill()
        process.wait()
    assert [body for _, body in d.asked] == [answered], d.asked
    return p.asked, d.asked


def main(router):
    p, d = routed(router, True, {"kv_transfer_params": TICKET})
    (path, prefill), = p
    assert path == "/v1/completions" and prefill["prompt"] == "hello", p
    assert prefill["max_tokens"] == 1 and not prefill["stream"], p
    assert prefill["kv_transfer_params"]["do_remote_decode"], p
    (_, decode), = d
    assert decode["kv_transfer_params"] == TICKET and decode["max_tokens"] == 7, d
    # P is not there, or holds nothing: D computes.
    for prefill, answer in ((False, None), (True, {"kv_transfer_params": None})):
        _, ((_, decode),) = routed(router, prefill, answer)
        assert not decode.get("kv_transfer_params"), decode
    print("3 passed, 0 failed, 0 skipped")


main(sys.argv[1])
