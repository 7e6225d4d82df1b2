"""The command line: parse, call a use case, render. One module a group of commands; `main` is where it starts."""
