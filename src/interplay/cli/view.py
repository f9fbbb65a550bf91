"""`interplay view`: starts the viewer, or exports runs as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from interplay.cli.effect import refuse_unused
from interplay.errors import counted

console = Console()


def view(
    context: typer.Context,
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, or folders that hold them; default runs.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write one HTML file that needs no server, instead of serving.")
    ] = None,
    episodes: Annotated[int, typer.Option(help="With --export: episodes of each run in the file.", min=1)] = 40,
) -> None:
    """Show runs in the browser, even while they train: curves, episodes, trees, tokens, advantages, leagues.

    interplay view runs/demo

    interplay view runs/demo --export demo.html

    Only this machine can open the page. To open it from another machine: ssh -L PORT:127.0.0.1:PORT HOST
    """
    folders = runs or [Path("runs")]
    if export is not None:
        refuse_unused(context, "port browser", "with --export, which starts no server")
        _export(folders, export, episodes)
    else:
        refuse_unused(context, "episodes", "without --export", "add --export FILE")
        _serve(folders, port, browser)


def _serve(folders: list[Path], port: int, browser: bool) -> None:
    from interplay.viewer.server import serve

    def ready(url: str) -> None:
        console.print(f"{url}\nCtrl-C ends the viewer.", highlight=False, soft_wrap=True)
        console.file.flush()
        if browser:
            webbrowser.open(url)

    serve(folders, port, ready)


def _export(folders: list[Path], path: Path, episodes: int) -> None:
    from interplay.viewer.export import export
    from interplay.viewer.library import Library

    count = export(Library(folders), path, episodes)
    size = path.stat().st_size / 2**20
    console.print(f"{path}: {counted(count, 'episode')}, {size:.1f} MiB", highlight=False, soft_wrap=True)
