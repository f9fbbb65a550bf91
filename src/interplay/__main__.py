"""`python -m interplay` is the command `interplay`."""

from interplay.cli.main import main

if __name__ == "__main__":
    main()
