"""A tiny vision-language model whose parts are pre-trained apart, in some seconds: eyes on patterns, tongue on words.

With random parts nothing can be learnt through the projection alone: what a random Q-Former says hardly varies with the
picture, and a random language model cannot be told anything. So the language model learns to answer prompts about a
word that stands in the slots of the picture, and vision encoder and Q-Former learn to tell ten patterns apart.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.datasets import patterns
from coterie.datasets.patterns import END, PAD, SHAPES, WORDS, pictures, texts
from coterie.files import cache_folder
from coterie.randomness import generator, key

SLOTS, WIDTH, STEPS, BATCH, RATE = 4, 32, 400, 40, 3e-3


def tiny_pair(kinds: Any, side: int) -> Any:
    """The whole model for pictures of this size, its projection not yet trained; from the cache if it is there."""
    sources = (Path(__file__), Path(patterns.__file__))
    mark = hashlib.blake2b(b"".join(path.read_bytes() for path in sources), digest_size=4).hexdigest()
    folder = cache_folder() / "models" / f"tiny-pair-{side}-{mark}"
    try:
        return _kept(kinds, folder)
    except Exception:  # it is not there, of another version, or damaged
        made = _trained(kinds, side)
    try:
        _keep(made, folder)
    except OSError:  # a cache that cannot be written only costs the next process some seconds
        return made
    return _kept(kinds, folder)


def _kept(kinds: Any, folder: Path) -> Any:
    return kinds.Blip2ForConditionalGeneration.from_pretrained(folder, local_files_only=True)


def _keep(made: Any, folder: Path) -> None:
    """Put the model into a folder, whole or not at all; who comes later finds it there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as making:
        made.save_pretrained(making)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(making, folder)
        Path(making).mkdir()


def _trained(kinds: Any, side: int) -> Any:
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(key(0, "tiny pair") >> 1)
        whole = kinds.Blip2ForConditionalGeneration(_configuration(kinds, side))
        nn.init.normal_(whole.query_tokens, std=1.0)  # the library leaves them at zero, and then all slots say the same
        whole.train()
        _teach_words(whole)
        _teach_patterns(whole, side)
    return whole.eval()


def _configuration(kinds: Any, side: int) -> Any:
    sizes = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
    calm = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    text = kinds.LlamaConfig(**sizes, vocab_size=len(WORDS), pad_token_id=PAD, eos_token_id=END, bos_token_id=END)
    return kinds.Blip2Config(
        vision_config={**sizes, "image_size": side, "patch_size": max(side // 4, 1), "attention_dropout": 0.0},
        qformer_config={**sizes, **calm, "encoder_hidden_size": WIDTH, "cross_attention_frequency": 1, "vocab_size": 2},
        text_config=text.to_dict(),
        num_query_tokens=SLOTS,
    )


def _teach_words(whole: Any) -> None:
    """Let the language model answer each prompt about a word that stands in all slots, more or less."""
    model, (asked, answers) = whole.language_model, texts()
    optimiser = torch.optim.AdamW(model.parameters(), RATE)
    words = torch.tensor([WORDS.index(name) for name in SHAPES]).repeat_interleave(answers.shape[1])
    prompts, targets = asked["prompts"].repeat(len(SHAPES), 1), answers.flatten(0, 1)
    given = torch.cat([prompts, targets[:, :-1].clamp(min=0)], 1)
    for step in range(STEPS):
        look = model.get_input_embeddings()
        slots = look(words).unsqueeze(1).expand(-1, SLOTS, -1)
        noise = torch.randn_like(slots) * slots.detach().std() / 2
        scores = model(inputs_embeds=torch.cat([slots + noise, look(given)], 1), use_cache=False).logits
        loss = F.cross_entropy(scores[:, -targets.shape[1] :].flatten(0, 1), targets.flatten())
        _step(optimiser, loss, step)


def _teach_patterns(whole: Any, side: int) -> None:
    """Let vision encoder and Q-Former tell the patterns apart, by a classifier that is thrown away."""
    classifier, rng = nn.Linear(WIDTH, len(SHAPES)), generator(0, "tiny pair")
    whole.language_projection, kept = nn.Identity(), whole.language_projection
    parts = [*whole.vision_model.parameters(), *whole.qformer.parameters(), whole.query_tokens]
    optimiser = torch.optim.AdamW([*parts, *classifier.parameters()], RATE)
    for step in range(STEPS):
        labels = rng.integers(0, len(SHAPES), BATCH)
        seen: Tensor = whole.get_image_features(
            pixel_values=pictures(labels, side, rng), return_dict=True
        ).pooler_output
        _step(optimiser, F.cross_entropy(classifier(seen.mean(1)), torch.from_numpy(labels)), step)
    whole.language_projection = kept


def _step(optimiser: torch.optim.Optimizer, loss: Tensor, step: int) -> None:
    """A step that is shorter the later it is."""
    optimiser.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
