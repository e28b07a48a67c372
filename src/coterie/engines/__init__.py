"""Engines: where the nodes live. One file each; found by looking.

An engine's `open` gives a session, and a session carries out one job (a method with a seed) after the other.
"""

from coterie.engines._need import Need
from coterie.engines._session import CheckpointClock, Engine, JobRun, Outcome, Session, StepwiseSession

BASE = Engine

__all__ = ["CheckpointClock", "Engine", "JobRun", "Need", "Outcome", "Session", "StepwiseSession"]
