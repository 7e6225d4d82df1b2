"""Where `mailboat` and `python -m mailboat.cli` start."""

from mailboat.cli.signals import end_at_sigterm


def run() -> None:
    """Run the command line of this process; loads the program once the signal handler is set."""
    end_at_sigterm()
    from mailboat.cli.main import run as run_program

    run_program()


if __name__ == "__main__":
    run()
