"""What tests see of a cluster, ours or anybody's: namespaces to work in, waiting that explains itself, evidence."""
