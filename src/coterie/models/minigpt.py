import hashlib
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from coterie.datasets import IGNORED, Shape
from coterie.errors import ConfigError
from coterie.models import takes
from coterie.models._tiny_pair import tiny_pair
from coterie.models._transformers import configuration, library, pretrained

REMEMBERED = 1 << 28
"""Bytes of features that a module keeps at most."""


class _Speaker(nn.Module):
    """Vision encoder, Q-Former and language model, all frozen, and the projection between them."""

    adapted, beside = "whole.language_model", ("projection",)

    def __init__(self, whole: Any, note: str, remember: bool) -> None:
        super().__init__()
        self.whole, self.note, self.vocabulary = whole.requires_grad_(False), note, whole.config.text_config.vocab_size
        self.projection = whole.language_projection.requires_grad_(True)
        whole.language_projection = nn.Identity()
        self._known: OrderedDict[bytes, Tensor] | None = OrderedDict() if remember else None

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        """Scores of the tokens of each answer, `[B, prompts, A, words]`."""
        embeddings, mask = self._asked(x)
        answers = x["answers"].flatten(0, 1)
        told = torch.cat([embeddings, self._words(answers)], 1)
        seen = torch.cat([mask, torch.ones_like(answers)], 1)
        scores: Tensor = self.whole.language_model(inputs_embeds=told, attention_mask=seen, use_cache=False).logits
        return scores[:, embeddings.shape[1] - 1 :].view(*x["answers"].shape[:2], -1, scores.shape[-1])

    def generate(self, x: dict[str, Tensor]) -> Tensor:
        """Greedy answers to each prompt, `[B, prompts, A]`, with -100 after the end."""
        told, mask = self._asked(x)
        end, past, found = self.whole.config.text_config.eos_token_id, None, list[Tensor]()
        for _ in range(x["answers"].shape[-1] + 1):
            said = self.whole.language_model(
                inputs_embeds=told, attention_mask=mask, past_key_values=past, use_cache=True
            )
            past, token = said.past_key_values, said.logits[:, -1].argmax(-1)
            found.append(token)
            told, mask = self._words(token.unsqueeze(1)), torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        answers = torch.stack(found, 1)
        over = (answers == end).cumsum(1) - (answers == end).long() > 0
        return answers.masked_fill(over, IGNORED).view(*x["prompts"].shape[:2], -1)

    def _asked(self, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What the language model is told of each picture and prompt, and which of it is no padding."""
        prompts, mask = x["prompts"].flatten(0, 1), x["mask"].flatten(0, 1).long()
        slots = self.projection(self._features(x["image"])).repeat_interleave(x["prompts"].shape[1], 0)
        seen = torch.cat([torch.ones(slots.shape[:2], dtype=mask.dtype, device=mask.device), mask], 1)
        return torch.cat([slots, self._words(prompts)], 1), seen

    def _words(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.whole.language_model.get_input_embeddings()(tokens)
        return found

    def _features(self, images: Tensor) -> Tensor:
        """What the Q-Former says of each picture, `[B, slots, width]`.

        They never change, so they are kept by what is in the picture, and computed one by one: whoever is shown with a
        picture must not change its last bits.
        """
        return torch.cat([self._feature(image.unsqueeze(0)) for image in images])

    @torch.no_grad()
    def _feature(self, image: Tensor) -> Tensor:
        if self._known is None:
            return self._seen(image)
        digest = hashlib.blake2b(image.cpu().contiguous().numpy().tobytes(), digest_size=16).digest()
        if digest not in self._known:
            self._known[digest] = self._seen(image)
            if len(self._known) * self._known[digest].nbytes > REMEMBERED:
                self._known.popitem(last=False)
        return self._known[digest]

    def _seen(self, image: Tensor) -> Tensor:
        found: Tensor = self.whole.get_image_features(pixel_values=image, return_dict=True).pooler_output
        return found


@takes("image", "prompts", "mask", "answers")
def minigpt(shape: Shape, classes: int, *, weights: str | None = None, remember: bool = True) -> nn.Module:
    """A vision-language model of which only the projection between frozen parts is trained, as in MiniGPT-4.

    Pictures pass through a vision encoder and a Q-Former; the projection turns what these say into words for a language
    model, which is then given a prompt and answers. `weights` is a folder with a BLIP-2 and a decoder-only language
    model (`save_pretrained`); the projection begins with what is there. Without it there is a tiny pair, which is
    pre-trained in some seconds on simple patterns (data set `patterns`), and kept in the cache. What is known of a
    picture before the projection is computed once and kept in memory (`remember`).

    Needs transformers: pip install "coterie[transformers]". Nothing is downloaded.

    Reference: Zhu et al., MiniGPT-4: Enhancing Vision-Language Understanding with Advanced Large Language Models, 2023
    """
    kinds = library("model 'minigpt'")
    side = shape["image"][-1]
    if weights is not None:
        made = configuration("model.weights", kinds.Blip2Config, weights)
        if not made.use_decoder_only_language_model:
            got = made.text_config.model_type
            raise ConfigError("model.weights", expected="a decoder-only language model", got=got)
        if made.vision_config.image_size != side:
            wanted, cure = made.vision_config.image_size, f"Use --dataset.size {made.vision_config.image_size}."
            raise ConfigError("model.weights", expected=f"pictures of {wanted} pixels a side", got=side, cure=cure)
        whole: Any = pretrained("model.weights", kinds.Blip2ForConditionalGeneration, weights)
        whole.language_projection.given = True
        return _Speaker(whole, "", remember)
    note = "minigpt is a tiny one, pre-trained on simple patterns; --model.weights takes a folder with a BLIP-2"
    return _Speaker(tiny_pair(kinds, side), note, remember)
