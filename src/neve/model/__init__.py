"""Vocabulary: schema, keys, transforms, predicates and batches as plain values, without I/O."""
