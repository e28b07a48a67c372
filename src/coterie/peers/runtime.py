"""One peer: a node with its model, its wires, its records and its checkpoint, until all rounds are done."""

import asyncio
import contextlib
import functools
import logging
import signal
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from coterie import files, records
from coterie.config.build import gossip
from coterie.config.configuration import Method
from coterie.contract import Message
from coterie.errors import ConfigError, RunError
from coterie.job import Job, Ledger
from coterie.mail.pace import Pace, Timing
from coterie.metrics import label
from coterie.net import logs, status
from coterie.net.agreement import PHASE, Agreement
from coterie.net.calls import Calls
from coterie.net.identity import Home
from coterie.net.logs import say
from coterie.node.buffers import BufferPool
from coterie.node.limits import Limits
from coterie.node.node import peers
from coterie.node.numbers import asked
from coterie.node.screening import Screen
from coterie.node.sums import Packet
from coterie.peers.agreement import code, fixed, shared, vocabulary
from coterie.peers.checkpoint import Keeper
from coterie.peers.introductions import Introduced, Introductions
from coterie.peers.journal import PeerJournal
from coterie.peers.mailroom import Mailroom, NewestMailroom
from coterie.processes import ASKING
from coterie.protocols import Heard

LINGER = 15.0
"""Seconds, at least, that a peer which has finished stays for neighbours who have not."""
SUMS = 2
"""Pieces of memory for sums that are kept between rounds: of the round under way, and of the next."""
LATE = 1.5
"""Seconds that a peer waits for the rest of its neighbours once most of them say that they have gone on without it."""


@dataclass(frozen=True)
class PeerConfig:
    """All that one peer is given: what to learn, with whom, how, and where to keep it."""

    method: str
    settings: Method
    """One method, with every setting written out."""
    seed: int
    job: Job
    node: int
    numbers: dict[str, int]
    """Neighbours' names -> their numbers in the job's graph."""
    home: Home
    folder: Path
    """Where checkpoint, records, status and log are."""
    timing: Timing
    limits: Limits = Limits()
    half: bool = False
    wait: float = 60.0
    threads: int = 1
    status_host: str = "127.0.0.1"
    status_port: int = 0
    verbose: bool = False
    screen: bool = True
    """Whether warnings go to stderr; they are in the log in any case."""
    introduced: bool = False
    """Whether the neighbours are all those whose cards lie in `home`, now and later."""
    warnings: tuple[str, ...] = ()
    """What was odd while this was put together, to be told in the log."""
    phase: str = "training"
    """`training`, or `gossip` before it; peers in different phases do not talk to each other yet, or any more."""
    onlooker: Callable[[status.Status, str], None] | None = None
    """Is handed the status of this peer and its phase, to show how it goes on."""


class Stopped(Exception):
    """The peer was asked to stop; its checkpoint stands."""


class PeerRuntime:
    """A peer at work: its node, its mail room, its wires, its records and its checkpoint."""

    def __init__(self, config: PeerConfig) -> None:
        self.config = config
        files.make_folder(config.folder)
        torch.set_num_threads(config.threads)
        verbose = config.verbose and config.phase == "training"
        self.log = logs.setup(config.folder, config.home.name, verbose, config.screen)
        rounds = config.settings.rounds
        self.status = status.Status(config.home.name, method=config.method, seed=config.seed, rounds=rounds)
        self.status.metric = label(config.job.roster.metrics[0])
        if config.onlooker:
            config.onlooker(self.status, config.phase)
        for text in (*config.job.notes, *config.warnings):
            say(self.log, logging.WARNING if text in config.warnings else logging.INFO, text)
        self.journal = PeerJournal(config.folder, config.node, self.status, self.log)
        self.worker = ThreadPoolExecutor(1, "training", torch.set_num_threads, (config.threads,))
        self.ledger = Ledger(config.job.roster.nodes, config.job.roster.metrics)
        self.node = peers(config.job, np.array([config.node]), self.ledger)[config.node]
        self.node.work = self._work  # type: ignore[method-assign]
        self.node.pool = BufferPool(SUMS)
        turns = config.job.protocol.in_turn(config.job.roster.nodes)
        waits = config.job.protocol.waits(config.node, config.job.graph(1))
        timing = replace(config.timing, turns=turns, grace=config.timing.deadline if waits else 0.0)
        self.pace = Pace(config.numbers.values(), timing, rounds)
        self.pace.present = lambda neighbour, round: bool(config.job.members(round)[neighbour])
        self.mailroom = self._mailroom()
        codes = {code(t): signature for signature, t in self.node.classmates.items()}
        mode, half = config.timing.mode, config.half
        common = {PHASE: config.phase, "seed": config.seed, "engine.mode": mode, "engine.half": half}
        data = {"classes of the data": config.job.samples.classes, "shape of a sample": config.job.samples.shape}
        same = common | data | fixed(self.node.classmates.values())
        self.agreement = Agreement(shared(config.settings, config.job.protocol, **same), codes)
        expected = vocabulary(config.job, self.node, rounds, half)
        self.links = Calls(config.home, config.numbers, self.mailroom, self.agreement, expected, self.status, self.log)
        self.seldom, self.mailroom.missed = self.links.contacts.seldom, self.links.contacts.missed
        self.links.contacts.noted, self.mailroom.lacking = self.journal.fault, self._lacking
        self.screen = self.mailroom.screen = self._screen()
        self.node.blame = self._blame
        identity = f"{config.home.name} {self.agreement.digest}"
        self.keeper = Keeper(config.folder, config.method, config.seed, identity, self.node, self.pace)
        self.introductions = Introductions(config.home, self.links, self.log)
        self.announce: Callable[[], bool] | None = None
        """Writes down where the status is, if the disk has not taken that yet."""

    def _screen(self) -> Screen:
        """What judges neighbours' numbers; data sizes are known where the whole network is, or all count alike."""
        config, roster, contacts = self.config, self.config.job.roster, self.links.contacts
        everyone, known = np.arange(roster.nodes), not config.introduced or roster.mixing != "data"
        sizes = dict(enumerate(roster.sizes(everyone).flatten().tolist())) if known else None
        screen = Screen(self.node, config.limits, sizes)
        screen.told = contacts.strange
        return screen

    def _blame(self, senders: Collection[int], what: str) -> None:
        """Neighbours' messages did harm, which is undone; told by the thread that trains."""
        self.loop.call_soon_threadsafe(self.links.contacts.harmed, list(senders), what)

    def _mailroom(self) -> Mailroom:
        """The mail room that this peer's rule, protocol and timing ask for."""
        config, rule, protocol = self.config, self.config.job.rule, self.config.job.protocol
        keep, samples, models = protocol.keeps or rule.answers, config.job.samples, len(config.numbers)
        if config.timing.mode == "async" and protocol.in_step:
            name, cure = config.job.roster.protocol.name, "Choose another protocol, or --engine.mode sync."
            what = f"protocol {name} is for peers in the same round, and cannot run asynchronously"
            raise ConfigError(what, cure=cure)
        arranged = protocol.says(samples.shape, samples.classes) or protocol.tells(config.job.roster.nodes)
        if config.timing.mode == "async" and (rule.answers or arranged):
            cure = "Choose another method, or --engine.mode sync."
            raise ConfigError("what answers each neighbour or says several things cannot run asynchronously", cure=cure)
        if config.timing.mode == "async" and config.job.network.changes:
            cure = "Choose another topology, or --engine.mode sync."
            raise ConfigError("asynchronous peers are in different rounds, which have different networks", cure=cure)
        if keep or rule.raw:
            say(self.log, logging.INFO, "this rule or protocol keeps every neighbour's model", models=models)
        if config.timing.mode == "async":
            return NewestMailroom(self.node, self.pace, keep, config.half, config.folder / "spool")
        return Mailroom(self.node, self.pace, keep, config.half)

    async def go(self) -> pl.DataFrame:
        """Begin or go on, to the end or until asked to stop."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self.loop = loop
        for number in ASKING:
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: whoever is there decides
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, stop.set)
        for warning in self.config.home.check():
            say(self.log, logging.WARNING, warning)
        page = await status.serve(self.status, self.config.status_host, self.config.status_port)
        announce = functools.partial(status.announce, self.config.folder, page.port, page.host)
        self.announce = None if announce() else announce
        working = asyncio.create_task(self._all())
        stopping = asyncio.create_task(stop.wait())
        beside = [asyncio.create_task(self.introductions.watch())] if self.config.introduced else []
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self.status.state = "stopped"
                raise Stopped
            return await working
        except (Stopped, Introduced, asyncio.CancelledError):
            self.journal.end()
            raise
        except Exception as error:
            self.journal.end(error)
            self.status.add_error(error)
            say(self.log, logging.ERROR, logs.END, error=error)
            raise
        finally:
            for task in (working, stopping, *beside):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await working
            await self.links.close()
            self.worker.shutdown(wait=False, cancel_futures=True)
            self.mailroom.close()
            self.journal.close()
            page.close()

    async def _all(self) -> pl.DataFrame:
        config, rounds = self.config, self.config.settings.rounds
        done = await self._work(self._restore)
        self.mailroom.resume(done, self.keeper.away)
        self.status.round = done
        await self.links.open()
        if done < rounds:
            await self.gather(done + 1)
            self.journal.gathered()
        evaluated = set(config.settings.evaluated())
        number = done
        while number < rounds:
            await self._meet_others()
            # Who has not joined yet, or has left, has no round of its own to go by: it keeps pace with the others.
            was, is_ = self._present(number), self._present(number + 1)
            await self.mailroom.let_catch_up(number + 1, sits=not is_, patient=not (was and is_))
            # An asynchronous peer goes at its own pace, once it is back where the others are.
            front = self.pace.front() if config.timing.mode == "sync" or number == done else 0
            number = min(max(number + 1, front), rounds)
            if self._present(number):
                await self._round(number, number in evaluated)
            else:
                await self._sit_out(number)
        self.status.state = "finished"
        await self.links.announce(rounds, finished=True)
        self.journal.tell("end", how="done", round=rounds)
        await self._work(self.keeper.finish)
        await self.links.flush(LINGER)
        await self._linger(max(LINGER, 2 * self.pace.deadline))
        say(self.log, logging.INFO, "finished", **{"rounds": rounds, self.status.metric: self.status.score})
        return self.keeper.rows

    def _restore(self) -> int:
        """Go on from the checkpoint, or begin; gives the round that was done last."""
        done = self.keeper.restore(self.journal)
        told = self.config.phase == "training" and (  # where to start
            asked(self.config.job) or gossip(self.config.settings) is not None
        )
        self.node.influenced = told or done is not None
        if done is None:
            cycles = self.config.job.protocol.cycles(self.status.rounds)
            self.journal.begin(sorted(self.config.numbers), cycles)
            if self._present(0):
                self.node.score()
                self._record(0)
            return 0
        self._note_score()
        say(self.log, logging.INFO, "going on", round=done)
        return done

    async def _linger(self, seconds: float) -> None:
        """Stay for those who are behind: they may catch up with the last exchange, and end as the others do."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.pace.unfinished and loop.time() < end:
            await self.mailroom.news()

    async def gather(self, number: int) -> None:
        """Wait for the neighbours before the first round of this process; not for long if the others are under way."""
        self.status.state = "waiting"
        loop = asyncio.get_running_loop()
        start = loop.time()
        while not all(n.alive for n in self.pace.neighbours.values()):
            await self._meet_others()
            patience = min(LATE, self.config.wait) if self.pace.majority > number else self.config.wait
            if loop.time() - start > patience:
                break
            await self.mailroom.news()

    def _present(self, number: int) -> bool:
        return bool(self.config.job.members(number)[self.config.node])

    async def _sit_out(self, number: int) -> None:
        """A round without this peer: it neither trains nor speaks, and its neighbours know."""
        self.mailroom.begin(number, ())
        self.status.round, self.status.state = number, "away"
        await self.links.announce(number)

    async def _meet_others(self) -> None:
        """Go on with other neighbours, if there are others."""
        if not self.config.introduced:
            return
        self.introductions.look()
        try:
            self.introductions.heed()
        except Introduced:
            await self.links.flush(LINGER)
            raise

    async def _round(self, number: int, evaluate: bool) -> None:
        config, node = self.config, self.config.node
        graph, skipped = config.job.graph(number), number - self.status.round - 1
        if skipped > 0:
            say(self.log, logging.INFO, "catching up", round=number, skipped=skipped)
        active = config.job.faults.active(graph, number)
        self.screen.begin(number)
        self.mailroom.begin(number, graph.sources[active & (graph.targets == node)].tolist())
        self.status.round, self.status.state = number, "training"
        self.status.deadline_seconds = self.pace.deadline
        await self.links.announce(number)
        reachable = graph.targets[active & (graph.sources == node)].tolist()
        await self.node.round(number, self, reachable, evaluate)
        for text in self.node.place.remarks:  # which neighbours may bring about all day
            self.journal.tell("warning", round=number, text=text)
            self.seldom.say(self.log, logging.WARNING, text, round=number)
        if config.timing.mode == "async":
            behind = self.mailroom.staleness
            self.ledger.latest["staleness"][node] = np.mean(behind) if behind else np.nan
        if evaluate:
            await self._work(lambda: self.node.judge())
            self._record(number)
        self.mailroom.end()
        self.status.round_seconds = self.pace.times.round_seconds
        self.journal.round(number, evaluate, self.node.place.roles)
        try:
            await self._work(lambda: self.keeper.save(number, self.journal))
            self.status.checkpoints += 1
            if self.announce is not None and self.announce():
                self.announce = None
        except RunError as error:  # the one before is whole: go on, and try again after the next round
            self.status.checkpoint_errors += 1
            self.status.add_error(error)
            if self.seldom.say(self.log, logging.ERROR, "no checkpoint", round=number, error=error):
                self.journal.tell("warning", round=number, text=f"no checkpoint: {error}")
            if number == config.settings.rounds:
                raise
        level = logging.INFO if evaluate else logging.DEBUG
        told = {"round": number, self.status.metric: self.status.score, "deadline": self.pace.deadline}
        say(self.log, level, "round", **told)

    def _record(self, number: int) -> None:
        self.journal.tell("evaluation", round=number, **records.as_lists(self.keeper.record(number)))
        self._note_score()

    def _note_score(self) -> None:
        """Show how the model was judged last."""

        def latest(metric: str) -> float | None:
            known = self.ledger.latest.get(f"test_{metric}")
            value = np.nan if known is None else float(known[self.config.node])
            return value if np.isfinite(value) else None

        self.status.accuracy, self.status.score = latest("accuracy"), latest(self.status.metric)

    async def _work(self, what: Callable[[], Any]) -> Any:
        """Compute beside the event loop: neighbours are served meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, what)

    # The node's transport.

    def send(self, sender: int, to: list[int], tag: str, packet: Packet | None) -> None:
        """Hand a message to the wires, unless an injected fault keeps it: then the receiver knows that by itself."""
        if reached := [each for each in to if each in self.node.reachable]:
            self.ledger.totals["sent_bytes"][sender] += self.links.send(reached, tag, packet or self._nothing())

    def _nothing(self) -> Packet:
        """What is sent where there is nothing to say, so that nobody waits for it."""
        return Packet(self.config.node, self.node.trainer.architecture.signature, Message({}, torch.zeros(1)))

    async def receive(self, node: int, senders: list[int], tag: str) -> Heard:
        """What has come, by the rules of time."""
        self.status.state = "exchanging"
        return await self.mailroom.receive(senders, tag)

    def _lacking(self, heard: int, quorum: int) -> None:
        self.introductions.heed()  # what is waited for may never come, or come from those
        if self.status.state != "waiting":
            self.status.state = "waiting"
            self.seldom.say(self.log, logging.WARNING, "waiting for a quorum", models=heard, quorum=quorum)
