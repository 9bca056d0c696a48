"""`python -m chord`: the same as the `chord` command."""

from chord.cli import main

if __name__ == "__main__":
    main()
