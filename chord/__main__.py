"""The `chord` command, and `python -m chord`."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run the command line and exit.

    While the command's modules load, Ctrl-C ends the process at once without a traceback, because no work has begun
    yet.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # modules are no garbage, and a collector that searches them takes a tenth of the start
    from chord.cli import main as command_line

    gc.enable()
    command_line()


if __name__ == "__main__":
    main()
