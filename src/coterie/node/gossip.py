"""The gain by gossip: nodes that know only their neighbours estimate the gain of the gain-corrected start.

It takes a few rounds of messages before the first round of training. A rule and a protocol like any other, so they run
in the simulator and at real peers; they are not among the parts that users choose from, because nobody learns by them.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import Fields, Inbox, Me, Message, Range, Rule, State, Term
from coterie.job import Job, Samples
from coterie.metrics import DEFAULT
from coterie.network.rounds import Network
from coterie.parts import Choice
from coterie.protocols import Merge, Place, Protocol, Receive, Round, Send
from coterie.randomness import generator

DRAW = "census"
"""The purpose in the key of the draws; another word would change the estimates of every seed."""
REST = 3
"""After so many rounds without a change of anybody's minima all have heard of everyone: someone new changes some."""
ERROR = 0.1
"""By how much of itself an estimate may be wrong."""
UNKNOWN = 10
"""Rounds of gossip of a peer who does not know the network."""
LARGE = 10_000
"""The most nodes that a network is taken to have where nothing is said of that."""


@dataclass(frozen=True)
class GossipGain(Rule):
    """Estimate two sums over the network from the smallest of everyone's random draws; models stay as they are.

        r_i = d_i (ω_ii d_i + Σ_{j ∈ N_i} ω_ij d_j);   x ~ Exp(1), `samples` of them;   e = x / r_i,   e' = x / r_i²
        Σr ≈ (samples − 1) / Σ min e;   Σr² ≈ (samples − 1) / Σ min e';   gain = Σr / √Σr²

    In the first round nodes tell their data sizes d. A minimum told twice or late does no harm, so lost messages only
    delay. Both sums are told by the same x, so that their errors partly cancel. With equal data sizes and weights r_i
    is the degree plus one, up to a factor that the gain does not see. ω_ii is that of the rule that will be merging.
    Where links go one way r_i says nothing of the steady state: such networks are refused.

    Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning, §4.4
    """

    span = "model"
    raw = True
    samples: int = 4000
    merging: Rule = field(default_factory=Rule)

    def init(self, me: Me, params: Tensor) -> State:
        return {"minima": params.new_zeros(*me.size.shape[:-1], 2 * self.samples)}

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"data": me.size} if me.round == 1 else {"minima": state["minima"]}

    def ranges(self, round: int) -> dict[str, Range]:
        return {"data": Range(least=0.0), "minima": Range(least=0.0)}

    def lift(self, message: Message) -> dict[str, Term]:
        return {"data": Term(message["data"])} if "data" in message else {}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        if "data" in inbox:
            near = inbox.sum("data") * me.degree / inbox.count  # who was not heard is taken for an average neighbour
            return params, {"minima": self._draw(me, self._rate(me, near))}
        mine = state["minima"]
        if not (mine > 0).all():  # heard nobody in the first round: neighbours have as much data as I, then
            mine = torch.where(mine > 0, mine, self._draw(me, self._rate(me, me.size * me.degree)))
        heard = inbox.rows("minima")
        heard = torch.where(heard > 0, heard, torch.inf)  # who has not drawn yet says nothing
        return params, {"minima": torch.minimum(heard.amin(-2), mine)}

    def _rate(self, me: Me, near: Tensor) -> Tensor:
        own = self.merging.own_weight(me.size, near, me.degree)
        return me.size * (near + me.size * (1.0 if own is None else own))

    def _draw(self, me: Me, rates: Tensor) -> Tensor:
        nodes = me.node.reshape(-1).tolist()
        drawn = np.stack([generator(me.seed, DRAW, node).exponential(size=self.samples) for node in nodes])
        scale = rates / rates.new_tensor(1e4)  # numbers near one, whatever the data sizes
        e = torch.from_numpy(drawn).to(rates).view(*rates.shape[:-1], self.samples)
        return torch.cat([e / scale, e / scale**2], dim=-1)

    def gain(self, minima: Tensor) -> Tensor:
        """Each node's estimate `[..., 1]`; NaN where it has heard nobody."""
        first, second = minima.double().split(self.samples, -1)
        total, squares = ((self.samples - 1) / x.sum(-1, keepdim=True) for x in (first, second))
        return torch.where(minima[..., :1] > 0, total / squares.sqrt(), torch.nan)


@dataclass(frozen=True)
class Gossip(Protocol):
    """Send to the neighbours and merge what arrives, without training.

    round:  send to all who hear me;  w ← merge(w, what I heard)
    """

    keeps, tags = False, ("news",)

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        yield Send(place.audience, "news")
        heard = yield Receive(place.neighbours, "news")
        if heard:
            yield Merge(heard)


@dataclass(frozen=True)
class Ready(Choice):
    """A part that is made already."""

    thing: Any = field(default=None)

    def make(self) -> Any:
        return self.thing


def gossip_job(job: Job, samples: int) -> Job:
    """A job in which the same nodes, with the same data and faults, estimate the gain."""
    return asking_job(job, GossipGain(samples, job.rule), samples=samples)


def asking_job(job: Job, asks: Rule, **settings: Any) -> Job:
    """A job in which the same nodes, with the same data and faults, ask around by this rule; all have a small model."""
    rule = Ready("rules", "gossip", settings, thing=asks)
    protocol = Ready("protocols", "gossip", thing=Gossip())
    roster = replace(
        job.roster,
        models=(Choice("models", "logistic"),),
        rule=rule,
        protocol=protocol,
        groups=(np.sort(np.concatenate(job.roster.groups)),),
        degree=_degree(job),
        objective=Choice("objectives", "cross_entropy"),
        metrics=DEFAULT,
        device="cpu",
    )
    made = {"rule": rule.make(), "protocol": protocol.make(), "initialiser": Choice("initialisers", "default")}
    faults = job.faults.founding(job.roster.nodes)
    return replace(
        job,
        roster=roster,
        samples=_blank(len(job.samples.train_y)),
        **made,
        merge_first=False,
        origin=None,
        faults=faults,
        test=np.arange(1),
        measures=(),
    )


def _blank(size: int) -> Samples:
    """As many samples as there are, of which nothing is to be learnt: any data set will do for asking around."""
    one, label = torch.zeros(size, 1), torch.zeros(size, dtype=torch.int64)
    return Samples(one, label, one[:1], label[:1], classes=1, shape=(1,))


def _degree(job: Job) -> NDArray[np.int64]:
    """How many members of the network each node can hear before the first round."""
    graph, members = job.graph(1), job.members(1)
    return np.bincount(graph.targets[members[graph.sources]], minlength=graph.nodes).astype(np.int64)


def enough_rounds(network: Network) -> int:
    """Rounds in which every node has heard every other, and some more for messages that are lost."""
    reach = _rounds_across(network) if network.changes else network.graph(1).diameter()
    return REST + int(reach) if math.isfinite(reach) else UNKNOWN


def _rounds_across(network: Network) -> float:
    """After how many rounds of a network that changes everyone has heard of everyone."""
    nodes = network.graph(1).nodes
    heard = np.eye(nodes, dtype=np.bool_)
    for number in range(1, nodes + UNKNOWN):
        graph = network.graph(number)
        before = heard.copy()
        np.logical_or.at(heard, graph.targets, before[graph.sources])
        if heard.all():
            return number
    return math.inf


def greatest(nodes: int | None = None) -> float:
    """The greatest gain that is believed: √n, up to errors of the estimate; n is `LARGE` if it is not known."""
    return (1 + ERROR) * math.sqrt(nodes or LARGE)


def own_estimate(rule: GossipGain, minima: Tensor, nodes: int | None = None) -> float:
    """One peer's estimate of the gain, 1 if it has heard nobody; no lie makes it other than a gain can be."""
    found = float(rule.gain(minima))
    return float(np.clip(found, 1 - ERROR, greatest(nodes))) if np.isfinite(found) else 1.0
