from torch import nn

from coterie.datasets import Shape
from coterie.errors import ConfigError
from coterie.models import Model
from coterie.models._transformers import library
from coterie.models.distilbert import distilbert

USUAL = ("q_lin", "v_lin", "q_proj", "v_proj", "query", "value")
"""What the projections of queries and values are called, in one family of models or another."""


def lora(
    shape: Shape,
    classes: int,
    *,
    of: Model = distilbert,
    rank: int = 4,
    alpha: float = 8.0,
    dropout: float = 0.0,
    targets: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> nn.Module:
    """Low-rank adapters in a model that is frozen beside them: they are what is trained and exchanged.

        W x  becomes  W x + alpha/rank · B A x,   with A of `rank` rows, drawn alike for all, and B of zeros at first

    Linear layers whose names end with one of `targets` get adapters, those of queries and values unless said otherwise.
    Parts named in `also` are trained as a whole; unless said otherwise those that a model wants to be, such as the
    classifier of `distilbert` and the projection of `minigpt`. Rules merge A and B each for itself, and the mean of
    products is not the product of means: that is a further approximation.

    Needs peft: pip install "coterie[lora]".

    Reference: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2022
    """
    if rank < 1 or alpha <= 0 or not 0 <= dropout < 1:
        expected = "a rank of at least 1, alpha above 0, dropout from 0 to below 1"
        raise ConfigError("model 'lora'", expected=expected, got=f"{rank}, {alpha:g} and {dropout:g}")
    peft = library("model 'lora'", "peft", "lora")
    net = of(shape, classes)
    inside = net.get_submodule(getattr(net, "adapted", ""))
    wanted = _named(inside, targets or USUAL)
    kept = [_part(net, name) for name in also or getattr(net, "beside", ())]
    trained = [p for part in kept for p in part.parameters()]
    net.requires_grad_(False)
    settings = peft.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=wanted)
    peft.inject_adapter_in_model(settings, inside)
    for layer in inside.modules():
        if isinstance(layer, peft.tuners.lora.LoraLayer):
            for part in (layer.lora_A, layer.lora_B):
                part.requires_grad_(True)
                vars(part)["given"] = True
    for p in trained:
        p.requires_grad_(True)
    return net


def _named(net: nn.Module, ends: tuple[str, ...]) -> list[str]:
    """The linear layers whose names end like this."""
    linear = [name for name, layer in net.named_modules() if isinstance(layer, nn.Linear)]
    if found := [name for name in linear if name.rpartition(".")[2] in ends]:
        return found
    known = dict.fromkeys(name.rpartition(".")[2] for name in linear)
    cure = f"Name some of: {', '.join(list(known)[:12]) or 'none, it has no linear layers'}."
    raise ConfigError("model.targets", expected="ends of names of linear layers", got=", ".join(ends), cure=cure)


def _part(net: nn.Module, name: str) -> nn.Module:
    try:
        return net.get_submodule(name)
    except AttributeError:
        known = ", ".join(child for child, _ in net.named_children())
        raise ConfigError("model.also", expected=f"parts of the model: {known}, …", got=name) from None
