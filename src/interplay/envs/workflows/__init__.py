"""Workflows as data: state machines whose nodes ask roles, run tools and hand on what was said."""
