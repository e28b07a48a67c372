"""How peers wait for each other, and what they send: alike for peers on one machine and on machines of their own."""

from dataclasses import dataclass
from typing import Literal

from coterie.errors import ConfigError
from coterie.mail.pace import Timing
from coterie.node.limits import Limits
from coterie.node.placing import available


@dataclass(frozen=True)
class PeerSettings:
    """The settings of a peer, apart from what it learns."""

    mode: Literal["sync", "async"] = "sync"
    deadline: float = 30.0
    stretch: float = 4.0
    quorum: int = 0
    discount: float = 1.0
    half: bool = False
    wait: float = 60.0
    restarts: int = 3
    threads: int = 1
    limit: float = 100.0
    share: float = 0.5
    device: str = "cpu"

    def __post_init__(self) -> None:
        at_least = {"deadline": 0.0, "stretch": 1.0, "wait": 0.0, "quorum": 0, "restarts": 0, "limit": 0.0}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise ConfigError(f"engine.{name}", expected=f"at least {least:g}", got=getattr(self, name))
        if not 0 < self.discount <= 1:
            raise ConfigError("engine.discount", expected="above 0, at most 1", got=self.discount)
        if not 0 < self.share <= 1:
            raise ConfigError("engine.share", expected="above 0, at most 1", got=self.share)
        if self.threads < 1:
            raise ConfigError("engine.threads", expected="at least 1", got=self.threads)
        available(self.device)

    @property
    def timing(self) -> Timing:
        """How these peers wait for each other."""
        return Timing(self.mode, self.deadline, self.stretch, self.quorum, self.discount)

    @property
    def limits(self) -> Limits:
        """What these peers let their neighbours say."""
        return Limits(self.limit, self.share)
