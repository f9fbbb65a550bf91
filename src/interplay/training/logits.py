"""How many logits may exist at a time: they are made from hidden states in pieces of this size.

A single prediction over a larger vocabulary is still made whole.
"""

CPU_LOGITS = 1 << 24
GPU_LOGITS = 1 << 29  # 2 GiB of them
