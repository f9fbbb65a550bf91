"""The players of roles: local models, remote models and bots."""
