"""Five peers, each a process that has said `coterie peer run`; whoever leads is killed from outside, now and then.

As a program it does that in a folder, and prints as JSON who was killed after which round was led, and how all ended.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import tomlkit
from sklearn.datasets import load_digits

from coterie.app import cli, peer_commands  # noqa: F401  loaded once, before processes are made
from coterie.engines.peer import free_ports
from coterie.net.identity import Home
from coterie.peers import deployment, founding, runtime  # noqa: F401
from coterie.randomness import key

PARTS = Path(__file__).parent / "mortal_parts.py"
NAMES = ("ann", "bob", "cat", "dan", "eve")
MODELS = ("mlp[8]", "mlp[12,6]", "mlp[16]", "mlp[10,10]", "logistic")
PATIENCE = 600.0
"""Seconds after which a run has failed."""


def prepare(folder: Path, rounds: int) -> None:
    """Keys, cards of two neighbours each, data of one's own, and the file that all share."""
    homes = [Home.create(folder / n, n, f"127.0.0.1:{p}") for n, p in zip(NAMES, free_ports(len(NAMES)), strict=True)]
    for i, home in enumerate(homes):
        home.add(homes[i - 1].card)
        homes[i - 1].add(home.card)
    x, y = load_digits(return_X_y=True)
    skewed = np.argsort(y + np.random.default_rng(0).normal(0, 3, len(y)), kind="stable")
    for name, mine in zip(NAMES, np.array_split(skewed, len(NAMES)), strict=True):
        np.savez(folder / f"{name}.npz", x=(x[mine[::3]] / 16).astype(np.float32), y=y[mine[::3]])
    protocol = {"name": f"{PARTS}:Mortal", "folder": str(folder), "lesson": {"name": "mutual", "epochs": 4}}
    settings = {
        "rounds": rounds,
        "evaluate": rounds,
        "batch_size": 16,
        "lr": 0.1,
        "seeds": 0,
        "methods": {"dfml": {"protocol": protocol}},
        "model": list(MODELS),
        "dataset": {"name": "own", "classes": 10},
        "engine": {"name": "peer", "deadline": 60.0, "stretch": 1e6},
    }
    (folder / "my.toml").write_text(tomlkit.dumps(settings))


def start(folder: Path, name: str) -> int:
    """Say `coterie peer run`, with an architecture of one's own; the number of the process."""
    number = os.fork()
    if number:
        return number
    with open(folder / f"{name}.log", "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    words = f"peer run my.toml --data {name}.npz --architecture {NAMES.index(name)} --home {name}"
    os.chdir(folder)
    code = cli.main(words.split())
    os._exit(code)


def last_led(folder: Path) -> tuple[int, str] | None:
    """The latest round that somebody has led, and who."""
    try:
        lines = (folder / "led").read_text().splitlines()
    except OSError:
        return None
    number, identity, _ = max(tuple(map(int, line.split())) for line in lines)
    return number, next(n for n in NAMES if key(0, f"peer {n}") >> 1 == identity)


def main(folder: Path, rounds: int, seed: int, *kills: int) -> None:
    """Kill whoever leads in about these rounds, at any moment; the last one stays dead."""
    prepare(folder, rounds)
    rng, left, killed = random.Random(seed), list(kills), list[tuple[str, int]]()
    running, codes, end = {start(folder, name): name for name in NAMES}, dict[str, int](), time.monotonic() + PATIENCE
    while running:
        led = last_led(folder)
        if left and led and led[0] >= left[0]:
            time.sleep(rng.uniform(0, 0.3))
            number, name = led
            victim = next(n for n, whose in running.items() if whose == name)
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            del running[victim]
            killed.append((name, number))
            left.pop(0)
            if left:
                running[start(folder, name)] = name
        for process in [*running]:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                codes[running.pop(process)] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            for process in running:
                os.kill(process, signal.SIGKILL)
            raise SystemExit("waited in vain")
        time.sleep(0.005)
    print(json.dumps({"killed": killed, "codes": codes}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
