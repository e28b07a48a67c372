"""Run an experiment: every method with every seed, recorded, observed, interruptible, resumable."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl

from coterie import files, processes, records, waiting
from coterie.config.build import build, load_samples
from coterie.config.configuration import Configuration
from coterie.config.objects import stays_here
from coterie.engines import Engine, JobRun, Need, Session
from coterie.errors import ConfigError, CoterieError, DataError, DivergedError, GraphError, in_words
from coterie.job import Job, Samples
from coterie.records import Channel, Journal, Observer, nodes
from coterie.records.journal import JobKey
from coterie.records.models import NodeModels
from coterie.runs.gossip import with_findings
from coterie.runs.run import Run
from coterie.version import __version__


class Interrupted(CoterieError):
    """Ctrl-C: a checkpoint has been written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        cure = "Nothing was written: no folder was named."
        if folder:
            cure = f"Go on with `coterie resume {folder}`, in Python coterie.open({str(folder)!r}).resume()."
        super().__init__("interrupted", cure=cure)


def run(experiment: Configuration, out: str | Path | None = None, observers: Sequence[Observer] = ()) -> Run:
    """Run an experiment from the beginning; what it brought, also written to `out` if named."""
    folder = None
    if out is not None:
        folder = records.RunFolder(out)
        folder.create(experiment)
    try:
        runner = _Runner(experiment, folder, observers)
        return Run(runner.go(), folder.path if folder else None, runner.models, go_on=resume)
    except (ConfigError, DataError, GraphError):
        if folder:  # the same folder may be named again once the setting is mended
            folder.discard()
        raise


def resume(out: str | Path, observers: Sequence[Observer] = (), parts: Sequence[Any] = ()) -> Run:
    """Go on with a run: finished jobs are kept, the one under way goes on from its checkpoint.

    A run whose `parts` were Python objects wants the same ones again, if this process is not the one that began it.
    """
    return Run(
        _Runner(records.configuration(out, parts), records.RunFolder(out), observers).go(), Path(out), go_on=resume
    )


def open_run(out: str | Path) -> Run:
    """The run in a folder, finished or not: its records, table, curves and models, and `resume()`."""
    return Run(records.load(out), Path(out), go_on=resume)


class _Runner:
    def __init__(
        self, experiment: Configuration, folder: records.RunFolder | None, observers: Sequence[Observer]
    ) -> None:
        self.experiment, self.folder = experiment, folder
        self.channel = Channel(None, observers)
        self.methods = experiment.resolved
        self.stopping = False
        self.noted: set[str] = set()
        self.preparing = True
        """Whether no round is under way: nothing is lost by an end at once."""
        self.models: dict[JobKey, NodeModels] = {}
        """Of a run that is kept nowhere else."""
        self.plans: dict[JobKey, dict[str, Any]] = {}
        self.built: dict[JobKey, Job] = {}
        """Jobs that were looked at before the first began."""
        self.damaged: dict[JobKey, list[str]] = {}
        """What was found damaged of each job, and is not used."""

    def go(self) -> pl.DataFrame:
        jobs = [(m, s) for s in self.experiment.seeds for m in self.methods]
        if self.folder is None:
            with contextlib.closing(self.channel):
                return self._all(jobs, jobs)
        with self.folder.lock(), contextlib.closing(self.channel):
            self.folder.check_configuration()
            left = [j for j in jobs if not self.folder.finished(*j)]
            with files.disk(self.folder.path):
                for job in set(jobs) - set(left):
                    self.folder.tidy(*job)
            self.damaged = {job: self.folder.set_damaged_aside(*job) for job in left}
            kept: dict[JobKey | None, int] = {job: self.folder.journalled(*job) for job in left}
            self.channel.journal = Journal(self.folder.path, kept)
            if lines := self.channel.journal.damaged:
                self.channel.live("warning", text=f"{self.channel.journal.path} is damaged in {lines} of its lines")
            self._all(jobs, left)
            with files.disk(self.folder.path):
                return self.folder.collect()

    def _all(self, jobs: list[JobKey], left: list[JobKey]) -> pl.DataFrame:
        """Carry out the jobs that are left, and say how it ended."""
        if not left:
            if self.channel.journal is not None and not self.channel.journal.ended:
                self.channel.tell("end", how="done")
            return records.empty()
        every, rest = [list(job) for job in jobs], [list(job) for job in left]
        begin = self.channel.live if self.channel.count else self.channel.tell  # an earlier process may have written it
        begin("begin", jobs=every, left=rest, rounds=max(m.rounds for m in self.methods.values()), version=__version__)
        try:
            with _how_it_ends(self.channel), processes.asked_to_stop(self._stop):
                done = self._carry_out(left)
            self.channel.tell("end", how="done")
            return done
        except KeyboardInterrupt:
            raise Interrupted(self.folder.path if self.folder else None) from None

    def _carry_out(self, left: list[JobKey]) -> pl.DataFrame:
        with waiting.heard_by(self._waiting):
            return self._prepared(left)

    def _waiting(self, text: str, done: int = 0, total: int | None = None) -> None:
        self.channel.live("phase", text=text, done=done, total=total)

    def _prepared(self, left: list[JobKey]) -> pl.DataFrame:
        first = next(iter(self.methods.values()))
        data = first.choice("dataset")
        self._waiting(f"loading {data.name if data.called == data.name else 'the data in hand'}")
        samples = load_samples(first)
        engine: Engine = first.choice("engine").make()
        if why := stays_here(choice for method in self.methods.values() for choice in method.shipped):
            engine = engine.alone()
            self.channel.live("warning", text=f"all nodes are computed in this process: {why}")
        session = engine.open()
        try:
            self._fix_plans(session, samples, left)
            return records.together(self._each(session, samples, left))
        finally:
            session.close()

    def _fix_plans(self, session: Session, samples: Samples, left: list[JobKey]) -> None:
        """Choose how every job is computed before the first begins: whoever goes on, and where, does it so.

        What a setting cannot be is told here, whichever method has it, and not after hours of another's rounds.
        """
        self.plans = self.folder.plans() if self.folder else {}
        new: dict[JobKey, dict[str, Any]] = {}
        needs: list[Need] = []
        for method, seed in [job for job in left if job not in self.plans]:
            alike = next((plan for (m, _), plan in new.items() if m == method), None)
            if alike is None:
                self._waiting(f"preparing {method}, seed {seed}")
                try:
                    job = self.built[method, seed] = build(self.methods[method], samples, seed)
                    if need := session.need(job):
                        needs.append(need)
                        need.check(method)
                    alike = session.choose(job, times=sum(m == method for m, _ in left))
                except ConfigError:
                    raise
                except CoterieError:  # of this seed's draw alone; raised again in its turn: it costs no other job
                    continue
            new[method, seed] = alike
        self.plans |= new
        if needs:
            self.channel.live("need", bytes=max(need.all for need in needs), free=processes.memory_free())
        if new and self.folder:
            self.folder.note_plans(self.plans)

    def _each(self, session: Session, samples: Samples, left: list[JobKey]) -> Iterator[pl.DataFrame]:
        """Every job's records; one that diverges does not stop the others, and is told at the end."""
        broken: list[DivergedError] = []
        for place, (method, seed) in enumerate(left, 1):
            try:
                yield self._job(session, samples, method, seed)
            except DivergedError as error:
                broken.append(DivergedError(f"{method}, seed {seed}: {error}"))
            if self.stopping and place < len(left):
                raise KeyboardInterrupt
        if broken:
            raise broken[0]

    def _job(self, session: Session, samples: Samples, method: str, seed: int) -> pl.DataFrame:
        """One method with one seed, from its checkpoint if there is one."""
        settings, channel = self.methods[method], self.channel.job(method, seed)
        with _how_it_ends(channel):
            self.preparing = True
            for text in self.damaged.get((method, seed), ()):
                channel.tell("warning", text=text)
            job = self.built.pop((method, seed), None) or build(settings, samples, seed)
            for text in set(job.notes) - self.noted:
                self.channel.live("warning", text=text)
            self.noted |= set(job.notes)
            job = job if session.estimates else with_findings(job, settings)
            found = session.run(
                JobRun(
                    method,
                    seed,
                    settings,
                    job,
                    self.experiment,
                    self.folder,
                    channel,
                    stopping=lambda: self.stopping,
                    prepared=lambda: self._begin_rounds(method, seed, job),
                    plan=self.plans.get((method, seed)),
                )
            )
            if found.models is not None and self.folder is not None:
                self.folder.keep_models(method, seed, found.models, settings.rounds)
            elif found.models is not None:
                self.models[method, seed] = found.models.models(
                    method=method, seed=str(seed), round=str(settings.rounds)
                )
            with channel.sealed("end", how="done", round=settings.rounds):
                if self.folder:
                    self.folder.finish(method, seed, found.rows, found.measures)
        return found.rows

    def _begin_rounds(self, method: str, seed: int, job: Job) -> None:
        self.preparing = False
        if self.folder is not None:
            with files.disk(self.folder.path):
                nodes.note(self.folder.job(method, seed), job)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """The first Ctrl-C ends the run after the present round, a second at once; so does one before the rounds."""
        if self.stopping or self.preparing:
            raise KeyboardInterrupt
        self.stopping = True
        self.channel.live("warning", text="stopping after this round (Ctrl-C again to stop at once)")


@contextmanager
def _how_it_ends(channel: Channel) -> Iterator[None]:
    """Tell how a job or a run has ended, if badly; what went wrong goes on its way."""
    try:
        yield
    except BaseException as error:
        how = "failed"
        if isinstance(error, KeyboardInterrupt):
            how = "interrupted"
        elif isinstance(error, DivergedError):
            how = "diverged"
        why = {} if how == "interrupted" else {"error": in_words(error)}
        with contextlib.suppress(CoterieError):  # a full disk may be what went wrong
            channel.tell("end", how=how, **why)
        raise
