"""The command line: arguments, commands, what is kept between two of them."""
