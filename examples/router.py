#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A router in 40 lines: prefill at P, then decode at D by P's ticket.

    python router.py 8000 http://127.0.0.1:8100 http://127.0.0.1:8200

To learn from. python -m kvpull_vllm.router streams, has several P and D, and gives
tickets back that no D took.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import URLError
from urllib.request import Request, urlopen

PORT, P, D = sys.argv[1:]


def ask(url, body):
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


class Router(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        keep = {"do_remote_decode": True, "do_remote_prefill": False}
        prefill = {**body, "max_tokens": 1, "stream": False}
        try:  # P computes the prompt, keeps its blocks, and answers with a ticket
            held = ask(P + self.path, {**prefill, "kv_transfer_params": keep})
            body["kv_transfer_params"] = held["kv_transfer_params"]
        except (URLError, KeyError) as error:  # then D computes by itself
            print("no ticket from P:", error, file=sys.stderr)
        answer = json.dumps(ask(D + self.path, {**body, "stream": False})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


ThreadingHTTPServer(("127.0.0.1", int(PORT)), Router).serve_forever()
