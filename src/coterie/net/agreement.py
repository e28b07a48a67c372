"""What peers tell each other of their settings when they meet, and why one may refuse the other."""

import json
from dataclasses import dataclass
from hashlib import sha256

from coterie.net.logs import clean
from coterie.net.wire import VERSION, hello_mismatch
from coterie.net.wire_pb2 import Hello

PHASE = "phase"
"""The one shared setting in which peers may differ for a while."""
SHOWN = 32
"""Characters of a signature that are shown: they may be a neighbour's, who may say anything."""


@dataclass(frozen=True)
class Agreement:
    """What neighbours must have in common."""

    shared: dict[str, str]
    """Setting -> its value as JSON."""
    codes: dict[str, str]
    """The architectures that the configuration allows: short code -> signature."""

    @property
    def digest(self) -> str:
        return sha256(json.dumps([self.shared, sorted(self.codes)], sort_keys=True).encode()).hexdigest()

    def hello(self, session: str, round: int, finished: bool) -> Hello:
        """What a peer says first."""
        return Hello(
            version=VERSION,
            session=session,
            digest=self.digest,
            shared=self.shared,
            signatures=sorted(self.codes),
            round=round,
            finished=finished,
        )


def disagreement(mine: Hello, theirs: Hello) -> str | None:
    """Why two peers cannot work together, if so, in the words of the first."""
    if mine.version != theirs.version:
        return f"protocol version: mine {mine.version}, theirs {theirs.version}"
    if mine.digest == theirs.digest:
        return None
    phases = [{PHASE: said.shared[PHASE]} if PHASE in said.shared else {} for said in (mine, theirs)]
    for own, other in (phases, (dict(mine.shared), dict(theirs.shared))):
        if difference := hello_mismatch(own, other):
            return difference
    shown = [[clean(each, SHOWN) for each in said.signatures[:8]] for said in (mine, theirs)]
    return f"model signature: mine {shown[0]}, theirs {shown[1]}"
