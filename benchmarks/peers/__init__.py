"""The peers: one file per engine, each run as a worker in an environment of its own."""
