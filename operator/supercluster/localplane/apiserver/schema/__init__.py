"""The validity of objects: schemas, defaults, CEL rules and their cost, patches, managed fields."""
