"""The shell: processes, sockets, threads and clocks around the pure protocol parts.

On the driver: the JobMaster. In each Spark task: a slot. `spark.py` is the only file that imports pyspark.
"""
