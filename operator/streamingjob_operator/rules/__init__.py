"""The rules of the decision, one concern per file. Pure: a rule reads the draft and writes to it, and nothing
else."""
