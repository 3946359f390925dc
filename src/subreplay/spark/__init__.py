"""The one package that imports pyspark: it selects, joins, windows and lifts; every rule is in the core."""
