#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch peer: whole training steps (forward, loss, backward, AdamW) of a GPT in fp32 on the CPU.

gpt2     12 layers, 12 heads, width 768, vocabulary 50257, context 1024, tied head, batch 4 x 64, biases, tanh GELU
nanogpt  4 layers, 4 heads, width 128, vocabulary 65, context 64, tied head, batch 12 x 64, no biases, erf GELU
Neither has dropout. Every step draws a new batch of random tokens, so the loss stays near log(vocabulary).
"""

import argparse
import sys

import peer

SETTINGS = {
    "gpt2": dict(layers=12, heads=12, width=768, vocabulary=50257, context=1024, batch=4, length=64, bias=1,
                 gelu="tanh"),
    "nanogpt": dict(layers=4, heads=4, width=128, vocabulary=65, context=64, batch=12, length=64, bias=0,
                    gelu="none"),
}


def make_gpt(torch, setting, attention):
    nn, functional = torch.nn, torch.nn.functional
    width, heads = setting["width"], setting["heads"]

    class LayerNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))
            self.bias = nn.Parameter(torch.zeros(width)) if setting["bias"] else None

        def forward(self, x):
            return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width, bias=bool(setting["bias"]))
            self.out = nn.Linear(width, width, bias=bool(setting["bias"]))
            length = setting["length"]
            future = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
            self.register_buffer("future", future, persistent=False)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = (
                part.view(batch, length, heads, width // heads).transpose(1, 2)
                for part in self.qkv(x).split(width, dim=2)
            )
            if attention == "sdpa":
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = (q @ k.transpose(-2, -1)) * (width // heads) ** -0.5
                y = functional.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1) @ v
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2 = LayerNorm(), Attention(), LayerNorm()
            self.up = nn.Linear(width, 4 * width, bias=bool(setting["bias"]))
            self.down = nn.Linear(4 * width, width, bias=bool(setting["bias"]))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate=setting["gelu"]))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(setting["vocabulary"], width)
            self.positions = nn.Embedding(setting["context"], width)
            self.blocks = nn.ModuleList([Block() for _ in range(setting["layers"])])
            self.norm = LayerNorm()
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)  # the head is the embedding
            return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    return Gpt()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer.add_common_arguments(parser)
    parser.add_argument("--model", choices=SETTINGS, default="gpt2")
    parser.add_argument("--batch", type=int, help="sequences a step (default: the model's setting)")
    parser.add_argument("--bias", choices=["yes", "no"], help="biases in linear layers and norms")
    parser.add_argument("--gelu", choices=["none", "tanh"], help="form of the GELU (default: the model's setting)")
    parser.add_argument("--attention", choices=["auto", "eager", "sdpa"], default="auto",
                        help="auto takes scaled_dot_product_attention where this torch has it")
    parser.add_argument("--clip-norm", type=float, default=0.0, help="clip the global gradient norm; 0 is off")
    parser.add_argument("--compile", action="store_true", help="forward and backward through torch.compile")
    arguments = parser.parse_args()

    torch = peer.import_torch(arguments.threads)
    facts = peer.describe(torch, arguments.threads)
    setting = dict(SETTINGS[arguments.model])
    if arguments.bias:
        setting["bias"] = int(arguments.bias == "yes")
    if arguments.gelu:
        setting["gelu"] = arguments.gelu
    if arguments.batch:
        setting["batch"] = arguments.batch

    has_sdpa = hasattr(torch.nn.functional, "scaled_dot_product_attention")
    attention = arguments.attention if arguments.attention != "auto" else ("sdpa" if has_sdpa else "eager")
    for wanted, present, name in ((attention == "sdpa", has_sdpa, "scaled_dot_product_attention"),
                                  (arguments.compile, hasattr(torch, "compile"), "compile")):
        if wanted and not present:
            peer.emit(event="error", message="torch %s has no %s" % (torch.__version__, name))
            return 1

    kind = peer.best_adamw(arguments.threads) if arguments.optimizer == "auto" else arguments.optimizer
    model = make_gpt(torch, setting, attention)
    parameters = list(model.parameters())
    optimizer = peer.adamw_or_end(torch, kind, parameters)
    forward = torch.compile(model) if arguments.compile else model
    shape = (setting["batch"], setting["length"])

    def step():
        tokens = torch.randint(setting["vocabulary"], shape)
        targets = torch.randint(setting["vocabulary"], shape)
        loss = forward(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if arguments.clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(parameters, arguments.clip_norm)
        optimizer.step()
        return loss.item()

    for _ in range(arguments.warm_up):
        step()
    peer.emit(event="ready", model=arguments.model, attention=attention, optimizer=kind, compiled=arguments.compile,
              tokens_per_step=shape[0] * shape[1], parameters=sum(p.numel() for p in parameters),
              peak_resident_bytes=peer.peak_resident_bytes(), **facts)
    return peer.run(arguments, step)


if __name__ == "__main__":
    sys.exit(main())
