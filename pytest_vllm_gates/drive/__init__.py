"""What makes things happen: environment, process, server, chat."""
