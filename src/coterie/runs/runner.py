"""Run an experiment: every method with every seed, round by round, recorded, interruptible, resumable."""

import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import polars as pl

from coterie import files, records
from coterie.config.build import build, load_samples
from coterie.config.configuration import Configuration
from coterie.config.slots import choice
from coterie.engines import Session
from coterie.engines.peer import Fleet
from coterie.errors import ConfigError, CoterieError, DataError, DivergedError, GraphError
from coterie.job import Samples
from coterie.runs.gossip import with_estimated_gains

CHECKPOINT_SECONDS = 15.0
"""At most this much work is lost to a sudden end (more, if writing a checkpoint is slow: see `_Clock`)."""


class Interrupted(CoterieError):
    """Ctrl-C: a checkpoint has been written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        cure = f"Go on with `coterie resume {folder}`." if folder else "Nothing was written: no folder was named."
        super().__init__("interrupted", cure=cure)


class Display(Protocol):
    """Whoever wants to see a run go on."""

    def begin(self, jobs: list[tuple[str, int]], rounds: int) -> None: ...

    def progress(self, method: str, seed: int, round: int, rounds: int, accuracy: float | None) -> None: ...

    def peers(self, names: Sequence[str], statuses: Sequence[dict[str, Any] | None]) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class Silent:
    """A display that shows nothing."""

    def begin(self, jobs: list[tuple[str, int]], rounds: int) -> None:
        pass

    def progress(self, method: str, seed: int, round: int, rounds: int, accuracy: float | None) -> None:
        pass

    def peers(self, names: Sequence[str], statuses: Sequence[dict[str, Any] | None]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def end(self) -> None:
        pass


def run(experiment: Configuration, out: str | Path | None = None, display: Display | None = None) -> pl.DataFrame:
    """Run an experiment from the beginning; records are returned, and written to `out` if named."""
    folder = None
    if out is not None:
        folder = records.RunFolder(out)
        folder.create(experiment)
    try:
        return _Runner(experiment, folder, display or Silent()).go()
    except (ConfigError, DataError, GraphError):
        if folder:  # the same folder may be named again once the setting is mended
            folder.discard()
        raise


def resume(out: str | Path, display: Display | None = None) -> pl.DataFrame:
    """Go on with a run: finished jobs are kept, the one under way goes on from its checkpoint."""
    return _Runner(records.configuration(out), records.RunFolder(out), display or Silent()).go()


class _Runner:
    def __init__(self, experiment: Configuration, folder: records.RunFolder | None, display: Display) -> None:
        self.experiment, self.folder, self.display = experiment, folder, display
        self.methods = experiment.resolved
        self.stopping = False

    def go(self) -> pl.DataFrame:
        if self.folder is None:
            return self._all()
        with self.folder.lock():
            self._all()
            with files.disk(self.folder.path):
                return self.folder.collect()

    def _all(self) -> pl.DataFrame:
        jobs = [(m, s) for s in self.experiment.seeds for m in self.methods]
        left = [j for j in jobs if not (self.folder and self.folder.finished(*j))]
        if not left:
            return records.empty()
        first = next(iter(self.methods.values()))
        self.display.begin(left, self.experiment.rounds)
        try:
            samples = load_samples(first)
            session: Session | Fleet = choice("engine", first.engine).make().open()  # type: ignore[arg-type]
            try:
                with self._watch_interrupt():
                    return pl.concat(self._each(session, samples, left))
            finally:
                session.close()
        except KeyboardInterrupt:
            raise Interrupted(self.folder.path if self.folder else None) from None
        finally:
            self.display.end()

    def _each(self, session: Session | Fleet, samples: Samples, left: list[tuple[str, int]]) -> Iterator[pl.DataFrame]:
        """Every job's records; one that diverges does not stop the others, and is told at the end."""
        broken: list[DivergedError] = []
        for place, (method, seed) in enumerate(left, 1):
            try:
                yield self._job(session, samples, method, seed)
            except DivergedError as error:
                broken.append(DivergedError(f"{method}, seed {seed}: {error}"))
                self.display.note(str(broken[-1]))
            if self.stopping and place < len(left):
                raise KeyboardInterrupt
        if broken:
            raise broken[0]

    def _job(self, session: Session | Fleet, samples: Samples, method: str, seed: int) -> pl.DataFrame:
        """One method with one seed, from its checkpoint if there is one."""
        settings = self.methods[method]
        if isinstance(session, Fleet):
            return self._fleet(session, samples, method, seed)
        rounds, evaluated = settings.rounds, set(settings.evaluated())
        found = self.folder.latest(method, seed) if self.folder else None
        job = with_estimated_gains(build(settings, samples, seed), settings)
        session.begin(job, found[3] if found else None)
        measured = None
        if found:
            last, state, done, _ = found
            measured = self.folder.latest_measures(method, seed) if self.folder else None
            session.restore(state)
        else:
            last = 0
            session.evaluate()
            done = records.rows(method, seed, 0, session.ledger, job.members(0))
            if settings.measures:
                measured = records.measured(method, seed, 0, session.ledger, job.members(0))
            if self.folder:
                self.folder.note_plan(method, seed, session.plan)
        clock = _Clock(CHECKPOINT_SECONDS)
        self.display.progress(method, seed, last, rounds, _accuracy(done))
        for number in range(last + 1, rounds + 1):
            try:
                session.round(number, number in evaluated)
            except Exception:  # the models are spoilt in the middle of a round: keep the records, not the models
                if self.folder:
                    self.folder.keep_rows(method, seed, done, measured)
                raise
            if number in evaluated:
                fresh = records.rows(method, seed, number, session.ledger, job.members(number))
                done = pl.concat([done, fresh])
                if measured is not None:
                    fresh = records.measured(method, seed, number, session.ledger, job.members(number))
                    measured = pl.concat([measured, fresh])
            self.display.progress(method, seed, number, rounds, _accuracy(done) if number in evaluated else None)
            if self.folder and number < rounds and (self.stopping or clock.due()):
                with clock:
                    self.folder.checkpoint(method, seed, number, session.snapshot(), done, session.plan, measured)
            if self.stopping and number < rounds:
                raise KeyboardInterrupt
        if self.folder:
            self.folder.finish(method, seed, done, measured)
        return done

    def _fleet(self, fleet: Fleet, samples: Samples, method: str, seed: int) -> pl.DataFrame:
        """One method with one seed by peers, who keep their own checkpoints and records."""
        rounds = self.methods[method].rounds
        self.display.progress(method, seed, 0, rounds, None)
        job = build(self.methods[method], samples, seed)
        with tempfile.TemporaryDirectory() as scratch:
            config = Path(scratch) / "config.toml"
            config.write_text(records.frozen(self.experiment))
            there = self.folder.job(method, seed) if self.folder else Path(scratch)
            if self.folder:
                self.folder.note_plan(method, seed, {"processes": job.roster.nodes})
            try:
                done = fleet.job(
                    config,
                    method,
                    seed,
                    job,
                    there / "peers",
                    watch=self.display.peers,
                    stopping=lambda: self.stopping,
                    note=self.display.note,
                )
            except (KeyboardInterrupt, CoterieError):
                if self.folder:
                    self.folder.keep_rows(method, seed, fleet.kept(), fleet.measures())
                raise
        self.display.progress(method, seed, rounds, rounds, _accuracy(done))
        if self.folder:
            self.folder.finish(method, seed, done, fleet.measures())
        return done

    @contextmanager
    def _watch_interrupt(self) -> Iterator[None]:
        """The first Ctrl-C ends the run after the present round, a second one at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping = True
            self.display.note("stopping after this round (Ctrl-C again to stop at once)")

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


class _Clock:
    """Says when a checkpoint is due: every so many seconds, but never more than a tenth of the time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.cost, self.last = seconds, 0.0, time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self.last >= max(self.seconds, 10 * self.cost)

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.last = time.monotonic()
        self.cost = self.last - self.started


def _accuracy(done: pl.DataFrame) -> float | None:
    latest = done.filter(pl.col("round") == pl.col("round").max())
    mean = latest["test_accuracy"].mean()
    return float(mean) if isinstance(mean, float) else None
