"""Sends the conversations of the matrix to a server, whole and streamed, and checks the answers."""
