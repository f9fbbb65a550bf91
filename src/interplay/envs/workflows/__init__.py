"""Workflows as data: state machines whose nodes ask roles, run tools and pass on the replies."""
