# SPDX-License-Identifier: Apache-2.0
"""Real engines in two guests that only RDMA joins; runs in the guests.

guest.py serve FOLDER SHARE NAME: P of a scenario, until it is told to end.
guest.py judge FOLDER SHARE NAME ADDRESS: D, and the scenario itself: P is at
that address. What the machines are to suffer is asked of the runner, by a
file in SHARE. FOLDER has the models, SHARE takes the logs.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import Engine, begin, complete, is_well, kvpull_config, wait_for
from judged import NEAR, TWICE, asked_of, pulled, verdicts
from world import Delta, World, pulled_bytes

PORT = 8100
LEASE_S = 6.0
START_S = 400.0
CLIENTS, PROMPTS, ANSWERS = 4, 12, 120
ANSWERS_S = 300.0
PULL = {"route": "verbs", "verbs_ack_timeout": 16, "lease_ms": 6000}
CUT_S = 3.0
LEAVES_MAX = 5  # tries of a client to leave in mid-pull
STATES = ["--dtype", "bfloat16", "--enable-prefix-caching"]
RECURRENT = ["--no-enable-prefix-caching"]  # as in states.py


@dataclass
class Scenario:
    """A scenario: the options of P and D, and the claim that must hold."""

    claim: Callable[[Guest], None]
    both: dict[str, Any] = field(default_factory=dict)
    p: dict[str, Any] = field(default_factory=dict)
    d: dict[str, Any] = field(default_factory=dict)
    model: str = "model"
    p_model: str = ""  # where P has another one
    d_module: str = ""  # of D's connector, where it is not the package's
    both_options: list[str] = field(default_factory=list)
    p_options: list[str] = field(default_factory=list)
    d_options: list[str] = field(default_factory=list)
    d_environment: dict[str, str] = field(default_factory=dict)
    d_starts: bool = True


class Elsewhere(Engine):
    """An engine of another guest: only its calls work here."""

    def is_alive(self) -> bool:
        """Say whether the API server answers that it is well."""
        return is_well(self.url)


class Guest(World):
    """D in this guest, P in another one."""

    share: Path
    _asked = 0

    def suffer(self, what: str) -> None:
        """Have the runner do something to the machines."""
        self._asked += 1
        ask = self.share / f"ask.{self._asked}"
        ask.with_suffix(".new").write_text(what)
        ask.with_suffix(".new").rename(ask)
        done = self.share / f"done.{self._asked}"
        wait_for(f"the runner to {what}", done.exists, 60, 0.05)

    def claims(self) -> int:
        """Return how many tickets D has claimed; metrics come a step later."""
        return len(self.d.logged("ticket claimed for"))

    def claimed(self, before: int = 0) -> None:
        """Wait until D has claimed one more."""
        wait_for("a claim", lambda: self.claims() > before, 60)

    def equal(self, prompt: list[int], found: list[list[int]]) -> None:
        """Assert that these are the tokens of one engine."""
        alone = self.alone(prompt)
        assert found == alone, f"{len(prompt)}: {found}, {alone}"


def engine(
    name: str, folder: Path, share: Path, scenario: Scenario, host: str
) -> Engine:
    """Return an engine for this guest, or for another one, not started."""
    is_p = name == "p"
    made = Engine if is_p == (share.name == "guest1") else Elsewhere
    config = kvpull_config(
        Path("/tmp"),
        "kv_producer" if is_p else "kv_consumer",
        {**PULL, **scenario.both, **(scenario.p if is_p else scenario.d)},
    )
    if scenario.d_module and not is_p:
        config["kv_connector_module_path"] = scenario.d_module
    model = (is_p and scenario.p_model) or scenario.model
    return made(
        name,
        share,
        folder / model,
        config,
        [
            "--num-gpu-blocks-override", "256",
            # A worker needs this time to close before it is killed.
            "--shutdown-timeout", "15",
            *scenario.both_options,
            *(scenario.p_options if is_p else scenario.d_options),
        ],
        {
            "VLLM_CACHE_ROOT": str(share / "vllm"),
            "VLLM_HOST_IP": host,
            # Two ranks compile a function; the guest has no room for g++.
            "TORCHDYNAMO_DISABLE": "1",
            **({} if is_p else scenario.d_environment),
        },
        [str(Path(__file__).with_name("guest_server.py"))],
        (host, PORT),
    )  # fmt: skip


# ---- what must hold ----


def tokens_equal(guest: Guest) -> None:
    """Short and long prompts, by the router; each byte came by READs."""
    for length in (7, 32, 100, 2048):
        prompt = guest.prompt(length)
        at_p, at_d = Delta(guest.p), Delta(guest.d)
        guest.equal(prompt, complete(guest.router_url, prompt))
        guest.settled()
        at_d.check(
            worker_pulls_done=1,
            worker_pulls_failed=0,
            worker_bytes_pulled=pulled_bytes(length),
        )
        at_p.check(worker_holds_taken=1, worker_holds_released=1)
        guest.say(f"{length} tokens: equal")
    siblings = {"n": 4, "temperature": 1, "top_k": 1}
    prompt = guest.prompt(200)
    alone = guest.alone(prompt)[0]
    at_p, at_d = Delta(guest.p), Delta(guest.d)
    found = guest.decode(prompt, guest.prefill(prompt, **siblings), **siblings)
    assert found == [alone] * 4, f"{found}, {alone}"
    guest.settled()
    at_d.check(worker_pulls_done=1, worker_bytes_pulled=pulled_bytes(200))
    at_p.check(worker_holds_taken=1, worker_holds_released=1)
    guest.say("n = 4: one pull")
    read_bytes_are(guest, guest.d.counter("worker_bytes_pulled"))


def states_equal(guest: Guest) -> None:
    """Recurrent states: each length, siblings. Zeroed they give other tokens."""
    for length in (7, 289, 1000):
        prompt, right = asked_of(guest, length)
        at_d = Delta(guest.d)
        found = pulled(guest, prompt)
        assert found == right, f"{length}: {found}, {right}"
        twice = pulled(guest, prompt, **TWICE)
        guest.settled()
        at_d.check(worker_pulls_done=3, worker_pulls_failed=0)
        counts = verdicts(guest, [(prompt, right)], twice)
        assert not counts["wrong"], counts
        found = pulled(guest, prompt, fault="states zeroed")
        assert found != right, f"{length}: zeroed states give these tokens, too"
        guest.say(f"{length} tokens: equal, zeroed: other ones")


def states_alone(guest: Guest) -> None:
    """A model whose layers all keep a state, by READs.

    Such a pull is too short for a client to leave during it.
    """
    states_equal(guest)
    read_bytes_are(guest, guest.d.counter("worker_bytes_pulled"))


def states_beside_attention(guest: Guest) -> None:
    """States and blocks of attention, by READs; a client leaves in mid-pull."""
    guest.near = NEAR
    states_equal(guest)
    states_aborted(guest)
    # No counter has the bytes that the pull read before its client left.
    count = guest.d.counter("worker_bytes_pulled")
    read = bytes_read(guest)
    assert read >= count > 0, f"{read} bytes read, {count:.0f} pulled"


def states_aborted(guest: Guest) -> None:
    """A client leaves D in mid-pull: P's hold ends, and the next is right.

    In a guest that is slow to abort a request, the pull may have ended by then:
    another client leaves.
    """
    for tries in range(1, LEAVES_MAX + 1):
        prompt, right = asked_of(guest, 1000)
        params, before = guest.prefill(prompt), guest.claims()
        at_p, at_d = Delta(guest.p), Delta(guest.d)
        guest.suffer("slower")
        with begin(
            guest.d.port, prompt, guest.d.host, kv_transfer_params=params
        ):
            guest.claimed(before)
        # The pull would go on fast before D has aborted the request.
        guest.settled(3 * LEASE_S)
        guest.suffer("heal")
        at_p.check(worker_holds_released=1, worker_holds_expired=0)
        done = at_d("worker_pulls_done")
        assert pulled(guest, prompt) == right
        if not done:
            guest.say(f"left in mid-pull, {tries} tries: released")
            return
    raise AssertionError(f"{LEAVES_MAX} clients left, all after their pulls")


def bytes_read(guest: Guest) -> int:
    """End D; return how many bytes it has read by RDMA."""
    guest.d.stop()
    said = re.findall(
        r"verbs: read (\d+) bytes by (\d+) work requests, (\d+) doorbells",
        guest.d.log.read_text(errors="replace"),
    )
    read, requests, doorbells = (
        sum(int(line[column]) for line in said) for column in range(3)
    )
    guest.say(f"{read} bytes, {requests} READs, {doorbells} doorbells")
    return read


def read_bytes_are(guest: Guest, count: float) -> None:
    """End D; assert that it has read so many bytes, by RDMA alone."""
    read = bytes_read(guest)
    assert read == count > 0, f"{read} bytes read, {count:.0f} pulled"


def rails_and_auto(guest: Guest) -> None:
    """Two rails, and nobody says which route."""
    for length in (100, 2048):
        prompt = guest.prompt(length)
        found = guest.decode(prompt, guest.prefill(prompt))
        guest.equal(prompt, found)
        guest.settled()
    read_bytes_are(guest, pulled_bytes(100) + pulled_bytes(2048))


def other_weights(guest: Guest) -> None:
    """The negative control: pulled bytes of other weights change tokens."""
    prompt = guest.prompt(100)
    found = guest.decode(prompt, guest.prefill(prompt))
    assert found != guest.alone(prompt), "tokens do not depend on the cache"
    assert guest.d.counter("worker_pulls_done") == 1
    guest.say("pulled where nobody compares, and wrong")


def refused(guest: Guest) -> None:
    """P is another one, or a stranger: D computes, and both say why."""
    prompt = guest.prompt(100)
    began = time.monotonic()
    found = guest.decode(prompt, guest.prefill(prompt))
    took = time.monotonic() - began
    guest.equal(prompt, found)
    assert guest.d.counter("worker_pulls_done") == 0
    # A key of another one is seen at the ticket, the rest on connecting.
    assert guest.d.counter("worker_peer_failures") + guest.d.counter(
        "scheduler_bad_tickets"
    )
    assert took < LEASE_S + 30, f"{took:.1f} s"
    guest.settled(3 * LEASE_S)
    guest.say(f"computed, {took:.1f} s")


def memlock_named(guest: Guest) -> None:
    """D may lock less than its KV memory: it ends, and says what to do."""
    wait_for("D's end", guest.d.has_ended, START_S, 0.5)
    assert guest.d.logged(r"memlock \(ulimit -l\) must hold"), guest.d.tail()
    guest.say("not started, memlock named")


def cut_and_stopped(guest: Guest) -> None:
    """The link is cut in mid-pull; later D stands for more than a lease."""
    prompt = guest.prompt(2048)
    alone = guest.alone(prompt)
    params = guest.prefill(prompt)
    guest.suffer("slow")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(guest.decode, prompt, params)
        guest.claimed()
        guest.suffer("cut")
        time.sleep(CUT_S)
        guest.suffer("heal")
        assert asked.result() == alone
    guest.settled(4 * LEASE_S)
    counts = guest.d.counters()
    guest.say(
        f"cut: {counts.get('worker_pulls_done', 0):.0f} pulled,"
        f" {counts.get('worker_pulls_failed', 0):.0f} failed"
    )
    prompt = guest.prompt(300)
    alone = guest.alone(prompt)
    params = guest.prefill(prompt)
    os.killpg(guest.d.pid, signal.SIGSTOP)
    # P's counters come a step later than its hold.
    wait_for("P's hold", lambda: guest.p.holds_live() == 1, LEASE_S / 2)
    guest.settled(3 * LEASE_S)
    os.killpg(guest.d.pid, signal.SIGCONT)
    assert guest.decode(prompt, params) == alone
    wait_for(
        "D's word on the expiry",
        lambda: guest.d.counter("worker_pulls_expired") >= 1,
        LEASE_S / 2,
    )
    guest.say("stopped for a lease: computed")
    prompt = guest.prompt(100)
    guest.equal(prompt, guest.decode(prompt, guest.prefill(prompt)))
    guest.settled()


def killed(guest: Guest) -> None:
    """P dies in mid-pull, then before a pull: D computes, in time."""
    prompts = [guest.prompt(length) for length in (2048, 300)]
    alone = [guest.alone(prompt) for prompt in prompts]
    params = [guest.prefill(prompt) for prompt in prompts]
    guest.suffer("slow")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(guest.decode, prompts[0], params[0])
        guest.claimed()
        guest.suffer("kill")
        assert asked.result() == alone[0]
    guest.say(
        f"in mid-pull: {guest.d.counter('worker_pulls_failed'):.0f} failed"
    )
    began = time.monotonic()
    assert guest.decode(prompts[1], params[1]) == alone[1]
    guest.say(f"before: computed, {time.monotonic() - began:.1f} s")


def client(
    guest: Guest,
    asked: list[tuple[list[int], list[list[int]]]],
    number: int,
    right: list[bool],
    over: threading.Event,
) -> None:
    """Ask P, then D, again and again; note whether D was right."""
    draw = random.Random(number)
    count = 0
    while not over.is_set():
        count += 1
        prompt, alone = draw.choice(asked)
        # The salt keeps D's prefix cache from answering for P.
        more = {"max_tokens": 4, "cache_salt": f"{number}-{count}"}
        params = guest.prefill(prompt, **{**more, "max_tokens": 1})
        right.append(guest.decode(prompt, params, **more) == alone)


def trouble(guest: Guest) -> None:
    """Have both machines suffer what an answer may take longer by."""
    for during, after, lasts_s in (
        ("loss", "heal", 4.0),
        ("cut", "heal", 1.5),
        ("pause", "continue", 1.2 * LEASE_S),
        ("slow", "heal", 4.0),
    ):
        guest.suffer(during)
        time.sleep(lasts_s)
        guest.suffer(after)
        time.sleep(2.0)
    os.killpg(guest.d.pid, signal.SIGSTOP)
    time.sleep(1.2 * LEASE_S)
    os.killpg(guest.d.pid, signal.SIGCONT)


def chaos(guest: Guest) -> list[tuple[list[int], list[list[int]]]]:
    """No answer is wrong, whatever both suffer; return what was asked."""
    asked = []
    for number in range(PROMPTS):
        prompt = guest.prompt(20 + 23 * number)
        asked.append((prompt, guest.alone(prompt, max_tokens=4)))
    right: list[bool] = []
    over = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [
            pool.submit(client, guest, asked, number, right, over)
            for number in range(CLIENTS)
        ]
        try:
            trouble(guest)
            wait_for("answers", lambda: len(right) >= ANSWERS, ANSWERS_S, 0.2)
        finally:
            over.set()
    for asking in clients:
        asking.result()
    assert all(right), f"{right.count(False)} of {len(right)} wrong"
    guest.settled(3 * LEASE_S)
    counts = guest.d.counters()
    pulled = counts.get("worker_pulls_done", 0)
    failed = counts.get("worker_pulls_failed", 0)
    assert pulled > len(right) / 2, f"{pulled:.0f} pulled of {len(right)}"
    guest.say(
        f"{len(right)} answers, 0 wrong: {pulled:.0f} pulled,"
        f" {failed:.0f} failed"
    )
    return asked


def chaos_and_p_dies(guest: Guest) -> None:
    """In the end P's machine dies with tickets out: D computes them."""
    asked = chaos(guest)[:CLIENTS]
    params = [guest.prefill(prompt) for prompt, _ in asked]
    guest.suffer("kill")
    for (prompt, alone), ticket in zip(asked, params, strict=True):
        assert guest.decode(prompt, ticket, max_tokens=4) == alone
    guest.say(f"P is gone: {len(params)} computed")


def chaos_and_d_dies(guest: Guest) -> None:
    """In the end D is killed in mid-pull: P has all its blocks again."""
    prompt = guest.prompt(2048)
    chaos(guest)
    params = guest.prefill(prompt)
    before = guest.claims()
    guest.suffer("slow")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(guest.d.complete, prompt, kv_transfer_params=params)
        guest.claimed(before)
        os.killpg(guest.d.pid, signal.SIGKILL)
        assert isinstance(asked.exception(), OSError)
    guest.suffer("heal")
    took = guest.settled(3 * LEASE_S)
    wait_for("P's blocks", lambda: guest.p.cache_usage() == 0, LEASE_S)
    guest.say(f"D is gone: all blocks free after {took:.1f} s")


KEYS = {"key_file": "/tmp/key"}
ANYBODY = {"weights": "w", "model": "m"}
SCENARIOS = {
    "tokens": Scenario(tokens_equal, both=KEYS),
    "states": Scenario(
        states_beside_attention, model="states", d_module="spoiled",
        both_options=STATES,
    ),
    "recurrent": Scenario(
        states_alone, model="recurrent", d_module="spoiled",
        both_options=RECURRENT,
    ),
    "rails": Scenario(rails_and_auto, both={"route": "auto"}),
    "other_weights": Scenario(other_weights, both=ANYBODY, p_model="other"),
    "identity": Scenario(refused, p_model="other"),
    "networks": Scenario(refused, p={"networks": "192.168.0.0/16"}),
    "key": Scenario(refused, d=KEYS),
    "memlock": Scenario(
        memlock_named, d_environment={"MEMLOCK": f"{1 << 20}"}, d_starts=False
    ),
    "cut": Scenario(cut_and_stopped),
    "killed": Scenario(killed),
    "chaos_p": Scenario(chaos_and_p_dies),
    "chaos_d": Scenario(chaos_and_d_dies),
    "tp": Scenario(
        rails_and_auto, d_options=["--tensor-parallel-size", "2"]
    ),
}  # fmt: skip


# ---- the two programs ----


def queue_pairs() -> str:
    """Return what this guest's devices have open for programs."""
    with os.popen("rdma resource show qp; rdma resource show mr") as said:
        return "".join(line for line in said if " comm [" not in line)


def serve(folder: Path, share: Path, name: str, host: str) -> int:
    """Run P until SIGTERM."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    p = engine("p", folder, share, SCENARIOS[name], host)
    p.start()
    while not told:
        time.sleep(0.2)
    p.stop()
    left = queue_pairs()
    print(left or "nothing is left open", flush=True)
    return 1 if left else 0


def judge(folder: Path, share: Path, name: str, hosts: list[str]) -> int:
    """Run D and the scenario; 0 if it holds."""
    scenario = SCENARIOS[name]
    p, d = (
        engine(side, folder, share, scenario, host)
        for side, host in zip("pd", hosts, strict=True)
    )
    guest = Guest(share, p, d)
    guest.share = share
    try:
        d.start()
        if scenario.d_starts:
            wait_for("D", d.is_alive, START_S, 0.5)
            wait_for("P", p.is_alive, START_S, 0.5)
            guest.start_router()
        scenario.claim(guest)
    except BaseException:
        print(d.first_error(), d.tail(20), sep="\n...\n")
        raise
    finally:
        guest.stop()
    left = queue_pairs()
    print(", ".join(guest.said))
    print(left or "nothing is left open", flush=True)
    return 1 if left else 0


def main() -> int:
    """Be one of the two."""
    role, folder, share, name, *hosts = sys.argv[1:]
    places = Path(folder), Path(share)
    if role == "serve":
        return serve(*places, name, hosts[0])
    return judge(*places, name, hosts)


if __name__ == "__main__":
    raise SystemExit(main())
