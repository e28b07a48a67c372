"""The model walks from node to node."""

from dataclasses import dataclass

import numpy as np

from coterie.contract import Rule
from coterie.protocols import Adopt, Place, Protocol, Receive, Round, Send, Train


@dataclass(frozen=True)
class Relay(Protocol):
    """The model walks along the nodes in order, each training on it in turn; on a ring it comes back to the first.

        w_k ← train(w_{k−1}),   k = 1 … n;   on a ring w_0 ← w_n at the end of the round

    The walk needs a link from each node to the next (a line or a ring at least). Where a link is down the walk ends
    there, and a node that heard nobody goes on from its own model.

    Reference: Jiang et al., Performance Analysis of Decentralized Federated Learning Deployments
    """

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        before, after = place.neighbours[place.neighbours < place.node], place.audience[place.audience > place.node]
        previous, following = before[before == place.node - 1], after[after == place.node + 1]
        if place.node > 0 and previous.size:
            came = yield Receive(previous)
            if came:
                yield Adopt(came[place.node - 1])
        yield Train()
        if following.size:
            yield Send(following, model=True)
        elif 0 in place.audience and place.node > 1:
            yield Send(np.array([0]), "home", model=True)
        if place.node == 0 and place.neighbours.size and place.neighbours[-1] > 1:
            home = yield Receive(place.neighbours[-1:], "home")
            if home:
                yield Adopt(home[int(place.neighbours[-1])])
