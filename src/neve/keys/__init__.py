"""Primary keys: their bytes, their 64-bit forms, their order, and the merge of sorted runs."""
