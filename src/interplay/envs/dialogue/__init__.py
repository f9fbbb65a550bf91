"""Environments for training with judges. Each also has an exact gold score, to check what the judge teaches."""
