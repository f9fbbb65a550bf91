"""Train policies: the loop, the learners and checkpoints."""
