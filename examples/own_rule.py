"""A rule of one's own, beside two that come along: neighbours that agree with me count more."""

from dataclasses import dataclass

import torch
from torch import Tensor

import coterie
from coterie.contract import Fields, Inbox, Me, Message, Rule, State, Term


@dataclass(frozen=True)
class Careful(Rule):
    """Average with the neighbours, but go only part of the way, and less far the fewer there are.

    w ← w + s · k / (k + 1) · (mean of the neighbours − w)
    """

    share: float = 0.9

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        """My model."""
        return {"w": params}

    def lift(self, message: Message) -> dict[str, Term]:
        """A model counts by the number of samples behind it."""
        return {"w": Term(message["w"], message.size)}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        """Part of the way."""
        count = torch.as_tensor(inbox.count)
        return params + self.share * count / (count + 1) * (inbox.mean("w") - params), state


if __name__ == "__main__":
    run = coterie.Experiment(
        nodes=8,
        rounds=15,
        initialiser="common",
        optimiser={"name": "adam", "lr": 0.005},
        topology={"name": "ws", "k": 4, "p": 0.2},
        methods={"careful": {"rule": Careful(share=0.8)}, "decavg": {}, "isolation": {}},
    ).run()
    print(run.table().select("method", "accuracy", "sent_bytes"))
