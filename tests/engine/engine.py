# SPDX-License-Identifier: Apache-2.0
"""Real vLLM API servers as processes, their calls and their metrics."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

# A start is seconds of CPU time, so it takes longer on a busy machine.
START_S = 240.0 * int(os.environ.get("TEST_PATIENCE", "1"))
CALL_S = 120.0
METRIC = re.compile(
    r"^((?:vllm:|kvpull_)[a-z0-9_]+)(?:\{[^}]*\})? ([-+0-9.eE]+)$", re.M
)

NOISE = re.compile(
    r"HTTP/1.1\" 200|Route: |loggers.py|metrics.py|nanobind| - leak"
)


def patience() -> int:
    """Return how many times as long things take on this machine now."""
    script = Path(__file__).resolve().parent.parent / "patience.sh"
    return int(subprocess.check_output([script], text=True))


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(
    what: str,
    said: Callable[[], bool],
    limit_s: float = 30.0,
    every_s: float = 0.02,
) -> float:
    """Wait until said() holds; return the seconds; raise TimeoutError."""
    began = time.monotonic()
    while not said():
        if time.monotonic() - began > limit_s:
            raise TimeoutError(f"{what}: not within {limit_s:g} s")
        time.sleep(every_s)
    return time.monotonic() - began


def post(
    url: str, body: dict[str, Any] | None, timeout_s: float = CALL_S
) -> tuple[int, Any]:
    """POST JSON; return the status and the answer."""
    data = json.dumps(body or {}).encode()
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text or b"{}")
    except ValueError:
        return status, {"text": text.decode(errors="replace")}


def completion(prompt: list[int], **more: Any) -> dict[str, Any]:
    """Return what asks for a completion, greedy, with token ids in and out."""
    return {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": 24,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **more,
    }


def chat(content: Any, **more: Any) -> dict[str, Any]:
    """Return what asks for a chat completion, greedy."""
    messages = [{"role": "user", "content": content}]
    return {"model": "tiny", "messages": messages, "temperature": 0, **more}


def complete(url: str, prompt: list[int], **more: Any) -> list[list[int]]:
    """Return the tokens of each choice that an engine or router answers."""
    status, answer = post(f"{url}/v1/completions", completion(prompt, **more))
    assert status == 200, answer
    return tokens(answer)


def begin(
    port: int, prompt: list[int], host: str = "127.0.0.1", **more: Any
) -> socket.socket:
    """Send a request to a port of this machine; return its connection."""
    body = json.dumps(completion(prompt, **more)).encode()
    made = socket.create_connection((host, port), CALL_S)
    made.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )
    return made


def is_well(url: str) -> bool:
    """Say whether a server answers that it is well."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def metrics_of(url: str) -> dict[str, float]:
    """Return a server's metrics, summed over their labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for name, value in METRIC.findall(text):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def _stat(pid: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, [] if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rsplit(")", 1)[1].split()


def is_running(pid: int) -> bool:
    """Say whether a thread of a process lives; a zombie does not.

    The first thread may be gone while others still hold what is open.
    """
    if _stat(pid)[:1] not in ([], ["Z"], ["X"]):
        return True
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def of_group(leader: int) -> list[int]:
    """Return the processes of a group, also when its leader is dead."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _stat(entry.name)[2:3] == [str(leader)]
    ]


def environment() -> dict[str, str]:
    """Return what two engines on two cores need, offline."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_LOG_STATS_INTERVAL": "2",
    }


def kill_group(leader: int) -> None:
    """Kill -9 what is left of a process group, and wait until it is gone.

    A forked engine core has the server's port, until its memory is taken down.
    """
    left = of_group(leader)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for("its end", lambda: not any(map(is_running, left)), 60)


class Forked:
    """A server that the nursery has forked, as subprocess shows its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return None while it runs."""
        return None if is_running(self.pid) else 0

    def terminate(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float = START_S) -> int:
        """Wait for its end."""
        try:
            wait_for("its end", lambda: not is_running(self.pid), timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("server", timeout) from None
        return 0


@cache
def _nursery() -> subprocess.Popen[bytes]:
    """Start the process that servers are forked from; it ends with this one."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("nursery.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment()},
    )


def fork_server(argv: list[str], env: dict[str, str], log: Path) -> Forked:
    """Have the nursery fork a server; see nursery.py."""
    nursery = _nursery()
    assert nursery.stdin and nursery.stdout
    order = {"argv": argv, "env": env, "log": str(log)}
    nursery.stdin.write(json.dumps(order).encode() + b"\n")
    nursery.stdin.flush()
    return Forked(int(nursery.stdout.readline()))


def kvpull_config(
    folder: Path, role: str, extra: dict[str, Any]
) -> dict[str, Any]:
    """Return --kv-transfer-config of KVPullConnector."""
    return {
        "kv_connector": "KVPullConnector",
        "kv_role": role,
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "socket_dir": str(folder / "sockets"),
            **extra,
        },
    }


class Engine:
    """An API server with its processes."""

    def __init__(
        self,
        name: str,
        folder: Path,
        model: Path,
        transfer: dict[str, Any],
        options: list[str] | None = None,
        environment: dict[str, str] | None = None,
        server: list[str] | None = None,
        address: tuple[str, int] | None = None,
    ) -> None:
        self.name = name
        self.host, self.port = address or ("127.0.0.1", free_port())
        self.url = f"http://{self.host}:{self.port}"
        self.log = folder / f"{name}.log"
        self.events = ""  # where it publishes what becomes of blocks
        self._environment = environment or {}
        self._server = server  # None: the nursery's
        self._command = [
            "--model", str(model), "--served-model-name", "tiny",
            "--host", self.host, "--port", str(self.port),
            "--dtype", "float32", "--enforce-eager",
            "--block-size", "32", "--max-model-len", "4096",
            "--num-gpu-blocks-override", "1024",
            "--max-num-batched-tokens", "512",
            "--kv-transfer-config", json.dumps(transfer),
            *(options or []),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def _logging(self) -> str:
        """Return a file that makes kvpull's lines complete and timed."""
        path = self.log.with_suffix(".logging.json")
        style = "%(created).6f %(levelname)s %(processName)s %(message)s"
        path.write_text(
            json.dumps(
                {
                    "version": 1,
                    "disable_existing_loggers": False,
                    "formatters": {"timed": {"format": style}},
                    "handlers": {
                        "all": {
                            "class": "logging.StreamHandler",
                            "formatter": "timed",
                        }
                    },
                    "loggers": {
                        "vllm": {
                            "handlers": ["all"],
                            "level": "INFO",
                            "propagate": False,
                        },
                        "vllm.kvpull": {"level": "DEBUG"},
                    },
                }
            )
        )
        return str(path)

    def logged(self, pattern: str) -> list[float]:
        """Return when lines with the pattern were logged, in seconds."""
        return [float(match[1]) for match in self._lines(pattern)]

    def log_words(self, pattern: str) -> list[str]:
        """Return what the pattern's one group matched in each line."""
        return [match[2] for match in self._lines(pattern)]

    def _lines(self, pattern: str) -> Iterator[re.Match[str]]:
        text = self.log.read_text(errors="replace")
        return re.finditer(rf"([0-9]{{9,}}\.[0-9]+) .*{pattern}", text)

    def start(self) -> None:
        """Start; see wait_ready()."""
        own = {
            **os.environ,
            **environment(),
            "VLLM_LOGGING_CONFIG_PATH": self._logging(),
            **self._environment,
        }
        if self._server is None:
            self._process = fork_server(self._command, own, self.log)
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._server, *self._command],
                stdout=log,
                stderr=log,
                env=own,
                process_group=0,
            )

    def use(self, **options: Any) -> None:
        """Change options from the next start on: their names without dashes."""
        for name, value in options.items():
            option = "--" + name.replace("_", "-")
            if option not in self._command:
                self._command += [option, ""]
            text = value if isinstance(value, str) else json.dumps(value)
            self._command[self._command.index(option) + 1] = text

    @property
    def pid(self) -> int:
        """The API server's process."""
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        """Say whether the API server answers that it is well."""
        if self._process is None or self._process.poll() is not None:
            return False
        return is_well(self.url)

    def has_ended(self) -> bool:
        """Say whether the API server has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def wait_ready(self) -> None:
        """Wait until the engine serves; raise with its log's end."""

        def said() -> bool:
            if self.has_ended():
                raise RuntimeError(f"{self.name} ended:\n{self.tail()}")
            return self.is_alive()

        try:
            wait_for(f"start of {self.name}", said, START_S)
        except TimeoutError as error:
            raise RuntimeError(f"{error}\n{self.tail()}") from error

    def tail(self, lines: int = 30) -> str:
        """Return the log's end, without what vLLM says of each call."""
        text = self.log.read_text(errors="replace").splitlines()
        said = [line for line in text if not NOISE.search(line)]
        return "\n".join(line[:300] for line in said[-lines:])

    def first_error(self, lines: int = 40) -> str:
        """Return the log from the first error on: what came of it is longer."""
        text = self.log.read_text(errors="replace").splitlines()
        at = next((i for i, line in enumerate(text) if " ERROR " in line), len(text))
        return "\n".join(line[:300] for line in text[at : at + lines])

    def process(self, word: str) -> int:
        """Return the pid of the child that is named so, e.g. Worker."""
        if word == "APIServer":
            return self.pid
        for pid in of_group(self.pid):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            except OSError:
                continue
            if word in line:
                return pid
        raise LookupError(f"{self.name} has no {word}")

    def cpu_s(self) -> float:
        """Return the core seconds that its processes have used."""
        stats = [_stat(pid) for pid in of_group(self.pid)]
        ticks = sum(int(tick) for stat in stats for tick in stat[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server and all its processes."""
        if self._process is None:
            return
        if how == signal.SIGTERM:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        kill_group(self.pid)
        self._process.wait()
        self._process = None

    # ---- calls ----

    def complete(self, prompt: list[int], **more: Any) -> tuple[int, Any]:
        """Ask for a completion; return the status and the answer."""
        return post(f"{self.url}/v1/completions", completion(prompt, **more))

    def leave(self, prompt: list[int], delay_s: float, **more: Any) -> None:
        """Send a request and disconnect after a while."""
        with begin(self.port, prompt, self.host, **more):
            time.sleep(delay_s)

    def leave_answered(self, prompt: list[int], **more: Any) -> None:
        """Send a request and disconnect when its answer is there, unread."""
        with begin(self.port, prompt, self.host, **more) as made:
            found, _, _ = select.select([made], [], [], CALL_S)
            assert found, "no answer"

    def stream(self, prompt: list[int], **more: Any) -> socket.socket:
        """Begin a stream of tokens; closing the connection ends it."""
        return begin(self.port, prompt, self.host, stream=True, **more)

    def reset_prefix_cache(self) -> None:
        """Forget cached prefixes."""
        post(f"{self.url}/reset_prefix_cache", None)

    def metrics(self) -> dict[str, float]:
        """Return the metrics, summed over their labels."""
        return metrics_of(self.url)

    def counter(self, name: str) -> float:
        """Return one of kvpull's counters."""
        return self.metrics().get(f"vllm:kvpull_{name}_total", 0.0)

    def counters(self) -> dict[str, float]:
        """Return kvpull's counters by their names."""
        return {
            name.removeprefix("vllm:kvpull_").removesuffix("_total"): value
            for name, value in self.metrics().items()
            if name.startswith("vllm:kvpull_") and name.endswith("_total")
        }

    def holds_live(self) -> float:
        """Return the holds that its workers have now."""
        return self.metrics().get("vllm:kvpull_worker_holds_live", 0.0)

    def counters_or_none(self) -> dict[str, float] | None:
        """Return the counters, None of an engine that does not answer."""
        try:
            return {k: v for k, v in self.counters().items() if v}
        except OSError:
            return None

    def maps(self, name: str) -> set[str]:
        """Return the inodes of memory of a name that its worker has mapped."""
        text = Path(f"/proc/{self.process('Worker')}/maps").read_text()
        lines = [line.split(maxsplit=5) for line in text.splitlines()]
        return {line[4] for line in lines if len(line) > 5 and name in line[5]}

    def cache_usage(self) -> float:
        """Return the share of KV blocks in use."""
        return self.metrics()["vllm:kv_cache_usage_perc"]


def tokens(answer: Any) -> list[list[int]]:
    """Return the token ids of each choice of a completion."""
    return [choice["token_ids"] for choice in answer["choices"]]
