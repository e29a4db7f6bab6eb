"""Pure builders of Kubernetes objects as plain dicts, one kind per file: no clock, no client, no randomness."""
