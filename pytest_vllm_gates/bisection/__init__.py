"""From a good lane and a bad one to the change between them that is the cause."""
