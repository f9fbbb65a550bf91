"""How many logits may be in memory at a time: they are computed from hidden states in pieces of this size.

A single prediction is never split, even if the vocabulary is larger.
"""

CPU_LOGITS = 1 << 24
GPU_LOGITS = 1 << 29  # 2 GiB in fp32
