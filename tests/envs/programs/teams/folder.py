"""A module whose file has the name of one of ours."""

NAME = "folder"
