# SPDX-License-Identifier: GPL-2.0-or-later
"""Hugging Face: GPT-2 by Trainer in bfloat16, and greedy generation by a Llama; both begin with random weights."""

import tempfile

import torch
import transformers

transformers.enable_full_determinism(1)
transformers.logging.set_verbosity_error()


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, number):
        words = torch.randint(0, 500, (64,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": words, "labels": words}


model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=500, n_positions=64, n_embd=128, n_layer=2, n_head=4))
with tempfile.TemporaryDirectory() as directory:
    options = transformers.TrainingArguments(directory, max_steps=40, per_device_train_batch_size=16, bf16=True, logging_steps=10, report_to=[],
                                             save_steps=20, dataloader_num_workers=2, disable_tqdm=True)
    trainer = transformers.Trainer(model, options, train_dataset=Words())
    trainer.remove_callback(transformers.PrinterCallback)  # it prints times
    trainer.train()
    print("losses", *(f"{line['loss']:.4f}" for line in trainer.state.log_history if "loss" in line))
llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                                                               num_attention_heads=4)).cuda().eval()
words = llama.generate(torch.arange(8, device="cuda")[None], max_new_tokens=40, do_sample=False)
print("generated", *words[0].tolist())
