"""The differential fuzzer's rooms: values, schemas, queries, steps, sides, shrinking."""
