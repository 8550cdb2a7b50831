"""What an object may be: schemas, defaults, CEL rules and their cost, patches, managed fields."""
