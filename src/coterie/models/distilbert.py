from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from coterie.datasets import Shape
from coterie.errors import ConfigError
from coterie.models import takes
from coterie.models._transformers import configuration, drawn_small, library, pretrained, unlike

SMALL = {"width": 64, "layers": 2, "heads": 4, "pieces": 2000}
"""What it is where neither settings nor weights say anything else."""


class _Classifier(nn.Module):
    """Scores of the first token of a text."""

    adapted, beside = "body", ("inner", "scores")

    def __init__(self, body: Any, classes: int, dropout: float, note: str) -> None:
        super().__init__()
        self.body, self.vocabulary, self.note = body, body.config.vocab_size, note
        self.inner = nn.Linear(body.config.dim, body.config.dim)
        self.dropout = nn.Dropout(dropout)
        self.scores = nn.Linear(body.config.dim, classes)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        first: Tensor = self.body(input_ids=x["tokens"], attention_mask=x["mask"]).last_hidden_state[:, 0]
        scores: Tensor = self.scores(self.dropout(F.relu(self.inner(first))))
        return scores


@takes("tokens", "mask")
def distilbert(
    shape: Shape,
    classes: int,
    *,
    width: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    pieces: int | None = None,
    dropout: float = 0.1,
    weights: str | None = None,
) -> nn.Module:
    """DistilBERT for texts as tokens with a mask: with the weights in a folder, or small and with random ones.

    Without `weights` it is 64 wide, with 2 layers of 4 heads, for a vocabulary of 2,000 word pieces; the published one
    has 768, 6, 12 and 30,522. Weights from a folder (`save_pretrained`) bring their own sizes, and want samples of the
    tokenizer that belongs to them; the classifier on top is drawn in any case.

    Needs transformers: pip install "coterie[transformers]". Nothing is downloaded unless
    `weights` is a name on the hub of Hugging Face, `hf://NAME`.

    Reference: Sanh et al., DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter, 2019
    """
    if not 0 <= dropout < 1:
        raise ConfigError("model.dropout", expected="a share from 0 to below 1", got=dropout)
    kinds = library("model 'distilbert'")
    (length,) = shape["tokens"]
    asked = {"width": width, "layers": layers, "heads": heads, "pieces": pieces}
    if weights is None:
        sizes = {name: SMALL[name] if size is None else size for name, size in asked.items()}
        body = _small(kinds, sizes, length, dropout)
        about = "{width} wide, {layers} layers of {heads} heads, {pieces} word pieces".format(**sizes)
        note = f"distilbert is small and has random weights ({about}); --model.weights takes a folder with trained ones"
    else:
        body, note = _trained(kinds, asked, length, dropout, weights), ""
    return _Classifier(body, classes, dropout, note)


def _small(kinds: Any, sizes: dict[str, int], length: int, dropout: float) -> nn.Module:
    if min(sizes.values()) < 1 or sizes["width"] % sizes["heads"]:
        expected = "sizes of at least 1, and a width that the number of heads divides"
        got = ", ".join(f"{name} {size}" for name, size in sizes.items())
        cure = "Change --model.width, --model.heads, --model.layers or --model.pieces, or leave them out."
        raise ConfigError("model 'distilbert'", expected=expected, got=got, cure=cure)
    made = kinds.DistilBertConfig(
        dim=sizes["width"],
        hidden_dim=4 * sizes["width"],
        n_layers=sizes["layers"],
        n_heads=sizes["heads"],
        vocab_size=sizes["pieces"],
        max_position_embeddings=length,
        dropout=dropout,
        attention_dropout=dropout,
        attn_implementation="eager",
    )
    return drawn_small(kinds.DistilBertModel(made))


def _trained(kinds: Any, asked: dict[str, int | None], length: int, dropout: float, folder: str) -> nn.Module:
    made = configuration("model.weights", kinds.DistilBertConfig, folder)
    found = {"width": made.dim, "layers": made.n_layers, "heads": made.n_heads, "pieces": made.vocab_size}
    unlike("model.weights", asked, found, folder)
    if (most := made.max_position_embeddings) < length:
        cure = f"Cut the texts: --dataset.length {most}."
        raise ConfigError(f"model.weights in {folder}", expected=f"places for {length} tokens", got=most, cure=cure)
    settings = {"dropout": dropout, "attention_dropout": dropout, "attn_implementation": "eager"}
    return pretrained("model.weights", kinds.DistilBertModel, folder, **settings)
