"""Build a lane's environment, and read what is installed in one."""
