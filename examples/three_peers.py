"""Three machines, one behind a router: joined by tickets, watched, stopped, resumed, and their models exported.

Run it as root on Linux, with `ip` and `nft` installed:  python examples/three_peers.py FOLDER

Network namespaces play the machines: each has its own addresses, ports and loopback. Carol's is behind a router that
translates addresses and forwards no port, so nobody can call her. What is typed at each machine is printed before it
is done; on real machines type the same, without `ip netns exec`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

SETTINGS = """
rounds = 150
batches = 8
batch_size = 16
lr = 0.1
seeds = 0
rule = "decavg"
initialiser = "common"
evaluate = 5

[model]
name = "mlp"
sizes = [64]

[dataset]
name = "own"
classes = 10

[engine]
name = "peer"
quorum = 2       # nobody goes on before it has heard both of the others
"""
DIGITS = {"alice": [0, 1, 2, 3], "bob": [4, 5, 6], "carol": [7, 8, 9]}
ADDRESSES = {"alice": "10.77.0.1", "bob": "10.77.0.2", "carol": "192.168.7.2"}
TAG = os.getpid()
"""Namespaces and devices of this process have names of their own."""


def why_not() -> str:
    """Why this cannot be shown here, if so."""
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "nft") if shutil.which(tool) is None]:
        return f"there is no {missing[0]} command"
    try:
        with ExitStack() as stack:
            network(stack)
    except subprocess.CalledProcessError as error:
        return f"`{' '.join(error.cmd)}` fails: {error.stderr.strip()}"
    return ""


def do(*words: str) -> str:
    """Run a command of the system."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def network(stack: ExitStack) -> None:
    """A switch with alice, bob and a router on it; carol is behind the router."""
    for name in ("switch", "alice", "bob", "router", "carol"):
        do("ip", "netns", "add", f"{name}-{TAG}")
        stack.callback(do, "ip", "netns", "delete", f"{name}-{TAG}")
        do("ip", "-n", f"{name}-{TAG}", "link", "set", "lo", "up")
    do("ip", "-n", f"switch-{TAG}", "link", "add", "bridge", "type", "bridge")
    do("ip", "-n", f"switch-{TAG}", "link", "set", "bridge", "up")
    for name, address in (("alice", "10.77.0.1"), ("bob", "10.77.0.2"), ("router", "10.77.0.3")):
        cable(f"switch-{TAG}", name, f"{name}-{TAG}", "eth0", f"{address}/24")
        do("ip", "-n", f"switch-{TAG}", "link", "set", name, "master", "bridge")
    cable(f"router-{TAG}", "eth1", f"carol-{TAG}", "eth0", "192.168.7.2/24")
    do("ip", "-n", f"router-{TAG}", "address", "add", "192.168.7.1/24", "dev", "eth1")
    do("ip", "-n", f"carol-{TAG}", "route", "add", "default", "via", "192.168.7.1")
    within = ["ip", "netns", "exec", f"router-{TAG}"]
    do(*within, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    do(*within, "nft", "add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }")
    do(*within, "nft", "add rule ip nat out oifname eth0 masquerade")


def cable(one: str, its: str, other: str, others: str, address: str) -> None:
    """Connect two namespaces."""
    do("ip", "link", "add", its, "netns", one, "type", "veth", "peer", "name", others, "netns", other)
    do("ip", "-n", one, "link", "set", its, "up")
    do("ip", "-n", other, "address", "add", address, "dev", others)
    do("ip", "-n", other, "link", "set", others, "up")


class Machine:
    """One of the three, with a folder of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir(parents=True)

    def start(self, *words: str, log: str) -> "subprocess.Popen[str]":
        """Type a command here, and leave it running."""
        print(f"{self.name}$ {' '.join(words)} &", flush=True)
        with open(self.folder / log, "a") as file:
            return subprocess.Popen(self.within(*words), cwd=self.folder, stdout=file, stderr=file, text=True)

    def type(self, *words: str, good: tuple[int, ...] = (0,)) -> str:
        """Type a command here; what it prints."""
        print(f"{self.name}$ {' '.join(words)}", flush=True)
        done = subprocess.run(self.within(*words), cwd=self.folder, capture_output=True, text=True, timeout=120)
        if done.returncode not in good:
            raise SystemExit(f"{done.stdout}{done.stderr}")
        print(done.stdout, end="", flush=True)
        return done.stdout

    def within(self, *words: str) -> list[str]:
        """A command as it is run in this namespace."""
        command = [str(Path(sys.executable).with_name("coterie")), *words[1:]] if words[0] == "coterie" else [*words]
        return ["ip", "netns", "exec", f"{self.name}-{TAG}", *command]

    @property
    def log(self) -> str:
        """What its peer has printed."""
        return (self.folder / "run.log").read_text()

    @property
    def events(self) -> str:
        """What its peer has noted, a line of JSON for each event."""
        noted = self.folder / "coterie-peer" / "run" / "log.jsonl"
        return noted.read_text() if noted.exists() else ""


@contextmanager
def running(machine: Machine) -> Iterator["subprocess.Popen[str]"]:
    """A peer at work, which is ended at last."""
    words = ("coterie", "peer", "run", "my.toml", "--data", "own.npz")
    peer = machine.start(*words, log="run.log")
    try:
        yield peer
    finally:
        if peer.poll() is None:
            peer.kill()
            peer.wait()


def until(what: Callable[[], object], seconds: float = 180) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise SystemExit("waited in vain")
        time.sleep(0.05)


def deal(machines: list[Machine]) -> tuple[np.ndarray, np.ndarray]:
    """Give each machine the samples of some digits, and the test samples of all."""
    x, y = load_digits(return_X_y=True)
    x, order = (x / 16).astype(np.float32), np.random.default_rng(0).permutation(len(y))
    test, train = order[:360], order[360:]
    for machine in machines:
        own = train[np.isin(y[train], DIGITS[machine.name])]
        np.savez(machine.folder / "own.npz", x=x[own], y=y[own], x_test=x[test], y_test=y[test])
        (machine.folder / "my.toml").write_text(SETTINGS)
    return x[test], y[test]


def join(inviter: Machine, other: Machine) -> None:
    """One line makes two peers neighbours; only the inviter must be one that can be called."""
    waiting = inviter.start("coterie", "peer", "invite", "--wait", log="invite.log")
    line = inviter.folder / "invite.log"
    until(lambda: line.exists() and line.read_text().startswith("coterie-ticket-") and "\n" in line.read_text())
    other.type("coterie", "peer", "join", line.read_text().split()[0], "--patience", "60")
    if waiting.wait(60) != 0:
        raise SystemExit(line.read_text())
    line.unlink()


def stop(machine: Machine, peer: "subprocess.Popen[str]") -> None:
    """Ctrl-C: the checkpoint of the last round stands."""
    print(f"{machine.name} types Ctrl-C", flush=True)
    peer.send_signal(signal.SIGINT)
    if peer.wait(60) != 0:
        raise SystemExit(machine.log)


def walk(folder: Path) -> float:
    """All of it; gives the worst accuracy of the three exported models."""
    crew = [Machine(name, folder) for name in ADDRESSES]
    alice, bob, carol = crew
    x, y = deal(crew)
    for each in crew:
        listen = ("--listen", "0.0.0.0:7001", "--address", f"{ADDRESSES[each.name]}:7001")
        each.type("coterie", "peer", "init", "--name", each.name, *listen)
    join(alice, bob)
    join(alice, carol)  # nobody can call carol: she takes tickets, and gives none
    join(bob, carol)
    with ExitStack() as stack:
        peers = {each.name: stack.enter_context(running(each)) for each in crew}
        until(lambda: '"round": 5' in alice.events)
        stop(alice, peers["alice"])  # the others wait for her: a quorum of two
        until(lambda: "waiting for a quorum" in carol.events)
        carol.type("coterie", "peer", "status")
        bob.type("coterie", "peer", "doctor", good=(1,))
        carol.type("coterie", "peer", "doctor", good=(1,))
        stop(carol, peers["carol"])
        carol.type("coterie", "peer", "export", "early.safetensors")
        for each in (alice, carol):  # the same command goes on where each was
            peers[each.name] = stack.enter_context(running(each))
        for name, peer in peers.items():
            if peer.wait(300) != 0:
                raise SystemExit((folder / name / "run.log").read_text())
    for each in crew:
        each.type("coterie", "peer", "export", "model.safetensors")
    alice.type("coterie", "collect", *(f"../{each.name}/coterie-peer" for each in crew), "--out", "../together")
    return min(accuracy(each.folder / "model.safetensors", x, y) for each in crew)


def accuracy(path: Path, x: np.ndarray, y: np.ndarray) -> float:
    """The exported model in PyTorch alone."""
    import torch
    from safetensors.torch import load_file
    from torch import nn

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model.load_state_dict(load_file(path))
    with torch.no_grad():
        return float((model(torch.from_numpy(x)).argmax(1).numpy() == y).mean())


def main(folder: Path) -> float:
    """The walk on a network of its own."""
    with ExitStack() as stack:
        network(stack)
        worst = walk(folder)
    print(f"The exported models know {worst:.1%} of all ten digits; alone, nobody could know half.")
    return worst


if __name__ == "__main__":
    if reason := why_not():
        raise SystemExit(f"This cannot be shown here: {reason}.")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "three-peers"))
