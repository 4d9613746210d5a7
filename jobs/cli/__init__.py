"""The command line: arguments, commands, and the plan cache."""
