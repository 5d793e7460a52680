"""The command line: one file per subcommand, loaded only when called."""
